"""`environment.metrics` and `stop.metrics`: names that can be columns, and ways that are known."""

import pytest

from distrl.config.load import load
from distrl.errors import ConfigError


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (
            ["environment.metrics.x=median"],
            "environment.metrics.x: 'median' (from flag --set) must be 'sum', 'mean', 'la",
        ),
        (
            ["environment.metrics={a/b: sum, a_b: mean}"],
            "'a/b' and 'a_b' would share the column info_a_b_100; leave one",
        ),
        (["environment.metrics={episode.r: last}"], "environment.metrics.episode.r"),
        (
            ["stop.metrics.x=3"],
            "stop.metrics.x waits for a metric that is not in environment.metrics; declare it there",
        ),
        (["environment.metrics.x=sum", "stop.metrics.x=.nan"], "must be a finite number"),
    ],
)
def test_what_cannot_be_is_one_line(sets, told):
    with pytest.raises(ConfigError) as caught:
        load(sets=sets)
    assert "\n" not in str(caught.value)
    assert told in str(caught.value)


def test_keys_are_those_of_info_in_their_order():
    config = load(
        sets=["environment.metrics={reward/ctrl: sum, is_success: max}", "stop.metrics.is_success=0.9"]
    ).config
    assert list(config.environment.metrics.items()) == [("reward/ctrl", "sum"), ("is_success", "max")]
    assert config.stop.metrics == {"is_success": 0.9}
