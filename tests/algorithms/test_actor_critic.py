"""The loss that actor-critics share, against numbers computed by hand."""

import numpy as np
import pytest
from keras import ops

from distrl.algorithms.actor_critic import actor_critic_loss
from distrl.algorithms.maths.returns import Returns

VALID = np.array([[True, True], [False, True]])


def grid(*values):
    """Four numbers -> float32 [T=2, N=2]; the third, row 1 of sequence 0, is not valid."""
    return np.array(values, "float32").reshape(2, 2)


@pytest.mark.row("P07.3")
@pytest.mark.parametrize(("huber", "value_loss"), [(False, 10.5 / 3), (True, 5.5 / 3)])
def test_every_term_is_the_heads_own_and_a_mean_over_valid_steps(huber, value_loss):
    terms, metrics = actor_critic_loss(
        Returns(value_targets=grid(2, 0, 0, 0), advantages=grid(2, 1, 0, -2)),
        grid(1, 2, 50, 4),
        grid(-1, -2, -9, -3),
        grid(0.1, 0.2, 9, 0.6),
        VALID,
        value_loss_weight=0.5,
        entropy_weight=10.0,
        huber=huber,
    )
    # errors 1, -2 and -4: squares .5 x (1 + 4 + 16) / 3; Huber's (.5 + 1.5 + 3.5) / 3
    told = {name: float(ops.convert_to_numpy(value)) for name, value in (terms | metrics).items()}
    assert told == pytest.approx(
        {
            "policy": -2 / 3 - 10.0 * 0.3,
            "value": 0.5 * value_loss,
            "policy_loss": -2 / 3,
            "value_loss": value_loss,
            "entropy": 0.3,
            "mean_value": 7 / 3,
            # targets 2, 0, 0 have the variance 8/9, the errors 1, -2, -4 the variance 21/3 - (5/3)^2 = 38/9
            "explained_variance": 1 - 38 / 8,
            # advantages 2, 1, -2
            "mean_advantage": 1 / 3,
            "std_advantage": (26 / 9) ** 0.5,
        },
        rel=1e-5,
    )
