"""Combinations of settings that no run can have."""

import pytest

from distrl.config import RunConfig


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"actors": {"weight_mixing_rate": 0.5}}, "actors.weight_mixing_rate < 1 mixes old weights .* algorithm a2c"),
        (
            {"memory": {"queue_batches": 4}},
            "memory.queue_batches, memory.queue_bytes: a2c queues one gradient of every",
        ),
        ({"memory": {"compression": "zstd"}}, "memory.compression: zstd is for unrolls; actors of a2c ship gradients"),
        ({"learner": {"batch_size": 2}}, "learner.batch_size: a2c applies one gradient of every worker; leave it out"),
        (
            {"actors": {"autoscale": {"enabled": True}}},
            "actors.autoscale.enabled: a2c makes each update of one gradient of every actor: their number is the size",
        ),
    ],
)
def test_rounds_leave_no_room_for_some_settings(sections, told):
    with pytest.raises(ValueError, match=told):
        RunConfig.model_validate({"algorithm": {"name": "a2c"}, **sections})


def test_what_actors_tell_of_their_rewards_follows_from_how_they_are_normalised():
    def discount(**algorithm):
        return RunConfig.model_validate({"algorithm": {"discount": 0.9, **algorithm}}).algorithm.reward_moments_discount

    assert discount() is None
    assert discount(reward_normalization={}) == 0.9
    assert discount(name="a2c", reward_normalization={"kind": "reward"}) == 0.0
