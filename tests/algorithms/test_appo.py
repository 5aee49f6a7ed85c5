"""APPO's returns: which correction for old policies goes in. The formulas themselves: test_returns.py."""

import math

import numpy as np
import pytest
from keras import ops

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.types import Batch

# V = [.5, 1, 1.5], bootstrap 2, rewards [1, 0, 2], gamma .9, lambda .5, importance weights [.5, 1, 2].
VALUES = np.float32([[0.5], [1.0], [1.5], [2.0]])
LOG_RHOS = np.log(np.float32([[0.5], [1.0], [2.0]]))


def make_batch(rewards):
    rewards = np.array(rewards, "float32")
    flags = np.zeros(rewards.shape, bool)
    return Batch(
        observations={},
        actions={},
        rewards=rewards,
        terminated=flags,
        truncated=flags,
        valid=~flags,
        behaviour_log_probabilities=np.full(rewards.shape, math.log(0.5), "float32"),
        recurrent_state={},
    )


@pytest.mark.parametrize(
    ("settings", "targets", "advantages"),
    [
        # Differences 1.4, .35 and 2.3, of which targets take .5, 1 and 1; vs_1 - V_1 = .35 + .45 x 2.3 = 1.385,
        # vs_0 - V_0 = .7 + .45 x .5 x 1.385; advantages 1.4 + .45 x 1.385 and .35 + .45 x 2.3.
        ({}, (1.511625, 2.385, 3.8), (2.02325, 1.385, 2.3)),
        # rho_bar 2: vs_2 - V_2 = 4.6 with c_2 as it was, vs_1 - V_1 = .35 + .45 x 4.6 = 2.42.
        ({"rho_bar": None}, (0.5 + 0.7 + 0.225 * 2.42, 3.42, 6.1), (1.4 + 0.45 * 2.42, 2.42, 2.3)),
        # c_bar .5: vs_1 - V_1 = .35 + .9 x .5 x .5 x 2.3 = .8675.
        ({"c_bar": 0.5}, (0.5 + 0.7 + 0.225 * 0.8675, 1.8675, 3.8), (1.4 + 0.45 * 0.8675, 1.385, 2.3)),
        # As PPO's: 2.3; .35 + .45 x 2.3 = 1.385; 1.4 + .45 x 1.385 = 2.02325; targets V + advantage.
        ({"correction": "none"}, (2.52325, 2.385, 3.8), (2.02325, 1.385, 2.3)),
    ],
    ids=["vtrace", "rho_bar", "c_bar", "none"],
)
def test_returns_by_hand(settings, targets, advantages):
    config = {"algorithm": {"name": "appo", "discount": 0.9, "gae_lambda": 0.5, **settings}}
    algorithm = make_algorithm(RunConfig.model_validate(config))
    returns = algorithm.returns(VALUES, LOG_RHOS, make_batch([[1.0], [0.0], [2.0]]))
    np.testing.assert_allclose(ops.convert_to_numpy(returns.value_targets)[:, 0], targets, rtol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(returns.advantages)[:, 0], advantages, rtol=1e-5)


def test_rewards_are_scaled():
    config = {"algorithm": {"name": "appo", "discount": 0.0, "reward_scale": 0.1}}
    returns = make_algorithm(RunConfig.model_validate(config)).returns(VALUES, LOG_RHOS, make_batch([[1.0], [0], [2]]))
    np.testing.assert_allclose(ops.convert_to_numpy(returns.advantages)[:, 0], [-0.4, -1.0, -1.3], rtol=1e-5)
