import pytest

from distrl.apps.experiments.search import Search
from distrl.config.load import validated
from distrl.errors import ConfigError


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({}, "vary names no setting to search"),
        ({"vary": {"a": [1]}, "trials": 0}, "trials"),
        ({"vary": {"a": [1]}, "sampler": "tp"}, "sampler"),
        ({"vary": {"a": {"low": 1, "high": 1}}}, "vary.a: low must be less than high"),
        ({"vary": {"a": {"values": [1], "when": {"b": 1}}}}, "vary.a.when: b is no setting that varies before it"),
        ({"vary": {"a": [1]}, "seeds": [1]}, "unknown key seeds"),
    ],
)
def test_bad_searches_are_one_line(tree, told):
    with pytest.raises(ConfigError, match=told) as caught:
        validated(Search, tree, {})
    assert "\n" not in str(caught.value)


def test_an_interval_needs_no_method():
    found = validated(Search, {"vary": {"a": {"low": 1, "high": 4}, "b": ["x", "y"]}}, {})
    assert (found.vary["a"].low, found.vary["b"].values, found.trials) == (1, ("x", "y"), 30)


def test_seeds_follow_the_number_and_the_draw_seed():
    seeds = [
        validated(Search, {"vary": {"a": [1]}, "draw_seed": draw}, {}).planned(3, {"a": 1}).seed for draw in (0, 1, 2)
    ]
    assert seeds == [3, 1003, 2003]
