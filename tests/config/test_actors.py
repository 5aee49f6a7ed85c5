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


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"actors": {"count": 0}}, "actors.count: 0 is one process"),
        ({"launch": {"launcher": "ray"}}, "launch.launcher: ray places each actor by itself"),
        ({"algorithm": {"name": "a3c"}}, "actors of a3c hold the network to differentiate it"),
        ({"actors": {"weight_mixing_rate": 0.5}}, "weight_mixing_rate: 0.5 gives each actor weights of its own"),
        (
            {"algorithm": {"name": "dqn"}, "exploration": {"kind": "parameter_noise"}},
            "exploration.kind: parameter_noise gives each actor weights of its own",
        ),
    ],
)
def test_a_policy_is_shared_only_where_every_actor_has_the_same(sections, why):
    shared = {**sections, "actors": {**sections.get("actors", {}), "inference": "host"}}
    with pytest.raises(ValueError, match=f"actors.inference: host shares the policy of a host's actors, but .*{why}"):
        RunConfig.model_validate(shared)
    RunConfig.model_validate(sections)
