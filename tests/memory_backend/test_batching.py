"""Unrolls joined side by side."""

import numpy as np

from distrl.memory_backend.batching import stack
from distrl.types import Unroll, UnrollHeader


def unroll(tag, environments):
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
        recurrent_state={"h": np.full((environments, 4), tag, np.float32)},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


def test_unrolls_stand_side_by_side_in_their_order():
    batch = stack([unroll(1, 1), unroll(2, 2)])
    assert batch.observations["observation"][..., 0].tolist() == [[1, 2, 2]] * 3
    assert batch.actions["action"].tolist() == [[1, 2, 2]] * 2
    assert batch.rewards.tolist() == [[10, 20, 20]] * 2
    assert batch.terminated.tolist() == [[True, False, False]] * 2
    assert batch.truncated.tolist() == [[False, True, True]] * 2
    assert batch.valid.all()
    assert batch.behaviour_log_probabilities.tolist() == [[-1, -2, -2]] * 2
    assert batch.recurrent_state["h"][:, 0].tolist() == [1, 2, 2]
