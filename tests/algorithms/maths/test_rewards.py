"""Reward clipping by the row's numbers. Runs on every Keras backend (see test_backends.py)."""

import numpy as np
import pytest
from keras import ops

from distrl.algorithms.maths.rewards import clipped, learned_rewards
from distrl.config import RunConfig
from distrl.types import Batch

REWARDS = np.array([[5.0, -5.0], [1.0, -1.0], [0.0, 0.25]], "float32")


def batch_of(rewards, bonus=None):
    none = np.zeros(rewards.shape, bool)
    return Batch({}, {}, rewards, none, none, ~none, np.zeros_like(rewards), {}, bonus=bonus)


@pytest.mark.row("H04")
@pytest.mark.parametrize(
    ("clipping", "expected"),
    [
        (None, REWARDS),
        ("clamp_one", [[1.0, -1.0], [1.0, -1.0], [0.0, 0.25]]),
        ("soft_asymmetric", [[3.80797, -1.14239], [0.98688, -0.29606], [0.0, 0.249792]]),
    ],
)
def test_clipping_by_hand(clipping, expected):
    np.testing.assert_allclose(ops.convert_to_numpy(clipped(REWARDS, clipping)), expected, rtol=2e-5)


@pytest.mark.row("H04")
@pytest.mark.parametrize("name", ["impala", "a3c", "a2c", "vpg"])
def test_every_policy_gradient_clips_and_then_scales(name):
    section = {"name": name, "reward_clipping": "clamp_one", "reward_scale": 0.5}
    parameters = RunConfig.model_validate({"algorithm": section}).algorithm
    expected = [[0.5, -0.5], [0.5, -0.5], [0.0, 0.125]]
    np.testing.assert_allclose(ops.convert_to_numpy(learned_rewards(batch_of(REWARDS), parameters)), expected)


@pytest.mark.row("D175")
def test_a_bonus_is_neither_clipped_nor_scaled():
    section = {"name": "ppo", "reward_clipping": "clamp_one", "reward_scale": 0.5}
    parameters = RunConfig.model_validate({"algorithm": section}).algorithm
    bonus = np.array([[3.0, 0.0], [0.25, 2.0], [0.0, 8.0]], "float32")
    expected = np.array([[0.5, -0.5], [0.5, -0.5], [0.0, 0.125]]) + bonus
    np.testing.assert_allclose(ops.convert_to_numpy(learned_rewards(batch_of(REWARDS, bonus), parameters)), expected)


@pytest.mark.row("D175")
@pytest.mark.parametrize("name", ["dqn", "c51", "sac", "naf"])
def test_algorithms_of_replay_scale_and_do_not_clip(name):
    parameters = RunConfig.model_validate({"algorithm": {"name": name, "reward_scale": 0.5}}).algorithm
    found = learned_rewards(batch_of(REWARDS, np.ones_like(REWARDS)), parameters)
    np.testing.assert_allclose(ops.convert_to_numpy(found), 0.5 * REWARDS + 1.0)
