"""The section actors: bounds of their number."""

import pytest

from distrl.config import RunConfig


@pytest.mark.parametrize(
    ("actors", "message"),
    [
        ({"autoscale": {"min_count": 3, "max_count": 2}}, "min_count: 3 is more than max_count: 2; set one of them"),
        ({"max_count": 4, "autoscale": {"max_count": 5}}, r"autoscale\.max_count: 5 is more than actors\.max_count: 4"),
        ({"max_count": 4, "autoscale": {"min_count": 5}}, r"autoscale\.min_count: 5 is more than actors\.max_count: 4"),
        ({"count": 0, "autoscale": {"enabled": True}}, r"autoscale\.enabled needs actors\.count >= 1"),
        ({"autoscale": {"window_s": 0}}, "window_s"),
    ],
)
def test_autoscaling_needs_bounds_that_agree(actors, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.model_validate({"actors": actors})
