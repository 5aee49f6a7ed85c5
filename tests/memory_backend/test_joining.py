"""Unrolls joined side by side."""

from dataclasses import replace

import numpy as np

from distrl.memory_backend.joining import Joined, stack
from distrl.types import Unroll, UnrollHeader


def unroll(tag, environments, **fields):
    shape = (2, environments)
    return Unroll(
        header=UnrollHeader(0, 1, tag, 1, 2 * environments),
        observations={"observation": np.full((3, environments, 1), tag, np.float32)},
        actions={"action": np.full(shape, tag, np.int32)},
        rewards=np.full(shape, 10 * tag, np.float32),
        terminated=np.full(shape, tag == 1),
        truncated=np.full(shape, tag == 2),
        valid=np.ones(shape, np.bool_),
        behaviour_log_probabilities=np.full(shape, -tag, np.float32),
        recurrent_state={"h": np.full((1, environments, 4), tag, np.float32)},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
        **fields,
    )


def test_unrolls_stand_side_by_side_in_their_order():
    batch = stack([unroll(1, 2), unroll(2, 2)], {})
    assert batch.observations["observation"][..., 0].tolist() == [[1, 1, 2, 2]] * 3
    assert batch.actions["action"].tolist() == [[1, 1, 2, 2]] * 2
    assert batch.rewards.tolist() == [[10, 10, 20, 20]] * 2
    assert batch.terminated.tolist() == [[True, True, False, False]] * 2
    assert batch.truncated.tolist() == [[False, False, True, True]] * 2
    assert batch.valid.all()
    assert batch.behaviour_log_probabilities.tolist() == [[-1, -1, -2, -2]] * 2
    assert batch.recurrent_state["h"][:, 0].tolist() == [1, 1, 2, 2]
    assert batch.reward_moments == {}


def test_moments_of_rewards_stay_apart_one_by_one():
    batch = stack([unroll(tag, 1, reward_moments={"mean": np.array(0.5 * tag)}) for tag in (1, 2, 3)], {})
    assert batch.reward_moments["mean"].tolist() == [0.5, 1.0, 1.5]


def test_stacks_are_made_again_of_single_frames_for_each_unroll():
    first, second = unroll(1, 2), unroll(2, 2)
    # T = 2, n = 3: two older frames, then three rows; the second unroll's second environment begins anew at row 1.
    frames = {
        "observation": np.float32([[1, 6], [2, 7], [3, 8], [4, 9], [5, 10]])[..., None],
        "map": np.float32([[0, 1]] * 3)[..., None],
    }
    first = replace(first, observations=frames)
    frames = {
        "observation": np.float32([[11, 21], [12, 22], [13, 23], [14, 30], [15, 31]])[..., None],
        "map": np.float32([[6, 7]] * 3)[..., None],
    }
    second = replace(second, observations=frames, valid=np.array([[True, False], [True, True]]))
    batch = stack([first, second], {"observation": 3})
    assert batch.observations["observation"].tolist() == [
        [[1, 2, 3], [6, 7, 8], [11, 12, 13], [21, 22, 23]],
        [[2, 3, 4], [7, 8, 9], [12, 13, 14], [30, 30, 30]],
        [[3, 4, 5], [8, 9, 10], [13, 14, 15], [30, 30, 31]],
    ]
    assert batch.observations["map"][..., 0].tolist() == [[0, 1, 6, 7]] * 3


def test_unrolls_have_their_places_whoever_is_written_first():
    unrolls = [unroll(1, 2), unroll(2, 2), unroll(3, 2)]
    joined = Joined(unrolls[0], 3, {})
    for number in (2, 0, 1):
        joined.write(number, unrolls[number])
    assert joined.batch.rewards.tolist() == stack(unrolls, {}).rewards.tolist() == [[10, 10, 20, 20, 30, 30]] * 2
