import math
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.apps.experiments.sweep import Planned, Sweep, Varied, number_of_runs, planned_runs, seeds_of
from distrl.config.load import validated
from distrl.errors import ConfigError


def sweep(**tree):
    return validated(Sweep, tree, {})


def words(**tree):
    return [planned.words for planned in planned_runs(sweep(**tree))]


def test_a_grid_has_every_combination_under_every_seed():
    assert words(vary={"a": [1, 2], "b": ["x", None]}, seeds=[7, 9]) == [
        'a=1 b="x" seed 7',
        'a=1 b="x" seed 9',
        "a=1 b=null seed 7",
        "a=1 b=null seed 9",
        'a=2 b="x" seed 7',
        'a=2 b="x" seed 9',
        "a=2 b=null seed 7",
        "a=2 b=null seed 9",
    ]
    assert number_of_runs(sweep(vary={"a": [1, 2], "b": ["x", None]}, seeds=[7, 9])) == 8


def test_a_setting_with_a_condition_varies_only_where_it_holds():
    vary = {
        "kind": ["p", "q", "r"],
        "clip": {"values": [0.1, 0.2], "when": {"kind": "p"}},
        "deep": {"values": [1, 2], "when": {"clip": 0.2, "kind": ["p", "q"]}},
    }
    assert words(vary=vary) == [
        'kind="p" clip=0.1 seed 1',
        'kind="p" clip=0.2 deep=1 seed 1',
        'kind="p" clip=0.2 deep=2 seed 1',
        'kind="q" seed 1',
        'kind="r" seed 1',
    ]


def test_runs_have_numbers_names_and_assignments():
    first, second = planned_runs(sweep(vary={"network.learning_rate": [1e-3, 1e-4]}))
    assert (first.number, first.name, second.name) == (1, "0001", "0002")
    assert second.sets == ["network.learning_rate=0.0001"]
    assert Planned(1, {"a": [1, {"b": True}]}, 1).sets == ['a=[1, {"b": true}]']


def test_a_budget_of_runs_ends_a_grid_and_random():
    vary = {"a": {"values": [1, 2, 3]}}
    assert len(words(vary=vary, budget={"runs": 2})) == 2
    assert len(words(vary=vary, seeds="1..3", method="random", budget={"runs": 7})) == 7
    assert len(words(vary=vary, method="random", budget={"runs": 7})) == 3
    assert number_of_runs(sweep(vary=vary, method="random", budget={"minutes": 1})) is None


def test_a_larger_budget_keeps_the_first_runs_and_another_draw_seed_changes_them():
    tree = {"method": "random", "vary": {"a": {"low": 0.0, "high": 1.0}, "b": {"low": 1, "high": 9}}}
    few, many, other = (
        list(islice(planned_runs(sweep(**tree, budget={"runs": runs}, draw_seed=seed)), 5))
        for runs, seed in ((5, 0), (50, 0), (5, 1))
    )
    assert few == many
    assert few != other


def test_random_draws_nothing_twice_and_ends_when_all_is_drawn():
    tree = {"method": "random", "vary": {"a": ["x", "y"], "b": [1, 2, 3]}, "budget": {"runs": 50}}
    found = words(**tree)
    assert len(found) == len(set(found)) == 6


def test_a_condition_changes_no_later_draw():
    tree = {"method": "random", "budget": {"runs": 20}}
    plain = {"kind": ["p", "q"], "clip": [0.1, 0.2], "rate": {"low": 0.0, "high": 1.0}}
    conditional = plain | {"clip": {"values": [0.1, 0.2], "when": {"kind": "p"}}}
    left, right = (list(planned_runs(sweep(**tree, vary=vary))) for vary in (plain, conditional))
    assert [one.values["rate"] for one in left] == [one.values["rate"] for one in right]
    assert {"clip" in one.values for one in right if one.values["kind"] == "p"} == {True}
    assert {"clip" in one.values for one in right if one.values["kind"] == "q"} == {False}


@given(low=st.integers(-50, 50), width=st.integers(1, 50), seed=st.integers(0, 1000))
def test_whole_numbers_stay_whole_and_within_their_bounds(low, width, seed):
    drawn = Varied(low=low, high=low + width).draw(Random(seed))
    assert isinstance(drawn, int)
    assert low <= drawn <= low + width


def test_every_whole_number_is_drawn_as_often_and_a_logarithm_evenly():
    chance = Random(0)
    drawn = [Varied(low=1, high=4).draw(chance) for _ in range(4_000)]
    assert all(abs(drawn.count(number) / 4_000 - 0.25) < 0.03 for number in (1, 2, 3, 4))
    rates = [Varied(low=1e-4, high=1e-2, log=True).draw(chance) for _ in range(2_000)]
    assert all(1e-4 <= rate <= 1e-2 for rate in rates)
    assert sum(rate < 1e-3 for rate in rates) / 2_000 == pytest.approx(0.5, abs=0.04)
    assert math.log10(sorted(rates)[500]) == pytest.approx(-3.5, abs=0.1)


@pytest.mark.parametrize(
    ("text", "seeds"), [("1..3", (1, 2, 3)), ("4..4", (4,)), ("1,4,9", (1, 4, 9)), ([2, 3], [2, 3])]
)
def test_seeds(text, seeds):
    assert seeds_of(text) == seeds


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({}, "vary names no setting and seeds one seed, so there is nothing to compare"),
        ({"seeds": "3..1"}, "3..1 names no seeds"),
        ({"seeds": "one"}, "'one' names no seeds; write 1..5, or 1,4,9"),
        ({"seeds": [1, 1]}, r"seeds must differ, and there must be one: \[1, 1\]"),
        ({"vary": {"a": []}}, "vary.a: the list of values is empty"),
        ({"vary": {"a": {"low": 1.0}}}, "vary.a: low and high belong together"),
        ({"vary": {"a": {"low": 2, "high": 1}}}, "vary.a: low must be less than high, and both finite, not 2 and 1"),
        ({"vary": {"a": {"low": 0.0, "high": 1.0, "log": True}}}, "vary.a: log needs a low above 0, not 0.0"),
        ({"vary": {"a": {"values": [1], "low": 0.0}}}, "vary.a: give either a list of values, or low and high"),
        ({"vary": {"a": {"low": 0.0, "high": 1.0}}}, "vary.a: a grid needs a list of values; or set method: random"),
        ({"vary": {"a": {"values": [1], "when": {"b": 2}}}}, "vary.a.when: b is no setting that varies before it"),
        ({"vary": {"a": [float("inf"), 1.0]}}, "vary.a: values must be finite"),
        ({"vary": {"a": [1e-3, 0.001]}}, "vary.a: 0.001 is there twice"),
        ({"vary": {"a": {"low": 1, "high": 10**400}}}, "vary.a: low must be less than high, and both finite"),
        ({"vary": {"a": {"values": [1], "log": True}}}, "vary.a: log is for low and high"),
        ({"vary": {"a": ["x"], "b": {"values": [1], "when": {"a": "y"}}}}, "vary.b.when: a never is 'y'"),
        ({"seeds": [-1, 2]}, "seeds"),
        ({"vary": {"seed": [1, 2]}}, "vary.seed: every run has a seed already"),
        ({"vary": {"a": [1, 2]}, "method": "random"}, "method random needs settings to draw and a budget"),
        ({"vary": {"a": {"lo": 1}}}, "unknown key vary.a.lo"),
        ({"vary": {"a": [1]}, "budget": {"minutes": 0}}, "budget.minutes"),
    ],
)
def test_bad_sweeps_are_one_line(tree, told):
    with pytest.raises(ConfigError, match=told) as caught:
        sweep(**tree)
    assert "\n" not in str(caught.value)


def test_a_grid_without_an_end_is_refused():
    vary = {name: [*range(100)] for name in ("a", "b", "c")}
    with pytest.raises(ConfigError, match=r"the grid has more than 100,000 runs; set budget\.runs"):
        number_of_runs(sweep(vary=vary))
    assert number_of_runs(sweep(vary=vary, budget={"runs": 10})) == 10


def test_secrets_are_masked_in_words_and_not_in_settings():
    planned = Planned(1, {"environment.kwargs.api_key": "s3cret", "environment.kwargs.url": "http://me:s3cret@host"}, 2)
    assert planned.words == 'environment.kwargs.api_key="•••" environment.kwargs.url="http://•••@host" seed 2'
    assert planned.sets[0] == 'environment.kwargs.api_key="s3cret"'
