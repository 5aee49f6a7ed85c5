"""Loss terms against numbers computed by hand. Runs on every Keras backend (see test_backends.py)."""

from functools import partial

import numpy as np
import pytest
from keras import ops

from distrl.algorithms.maths import losses

VALID = np.array([[True, True], [False, True]])
NONE = np.zeros((2, 2), bool)


def grid(*values):
    """Four numbers -> float32 [T=2, N=2]; the third, row 1 of sequence 0, is not valid."""
    return np.array(values, "float32").reshape(2, 2)


def number(scalar):
    return float(ops.convert_to_numpy(scalar))


def test_masked_mean_leaves_invalid_entries_out():
    assert number(losses.masked_mean(grid(1, 2, 1000, 6), VALID)) == pytest.approx(3.0)


def test_normalised_over_valid_entries():
    # 1, 2 and 6: mean 3, variance (4 + 1 + 9) / 3
    deviation = np.sqrt(14 / 3)
    found = ops.convert_to_numpy(losses.normalized(grid(1, 2, 1000, 6), VALID))
    np.testing.assert_allclose(found, grid(-2 / deviation, -1 / deviation, 0, 3 / deviation), rtol=1e-5)


@pytest.mark.parametrize("valid", [VALID, NONE], ids=["equal", "none"])
def test_nothing_that_varies_is_normalised_to_zero(valid):
    found = ops.convert_to_numpy(losses.normalized(grid(5, 5, 1000, 5), valid))
    np.testing.assert_array_equal(found, grid(0, 0, 0, 0))


def test_a_single_valid_entry_is_not_normalised():
    """Less its mean it would be 0, and a policy would never learn from minibatches of one row."""
    one = grid(0, 1, 0, 0).astype(bool)
    found = ops.convert_to_numpy(losses.normalized(grid(3, -2, 1000, 5), one))
    np.testing.assert_array_equal(found, grid(0, -2, 0, 0))


def test_policy_gradient():
    # -(-1 x 2 + -2 x 1 + -3 x -2) / 3 = -(2 / 3)
    assert number(losses.policy_gradient(grid(-1, -2, -9, -3), grid(2, 1, 0, -2), VALID)) == pytest.approx(-2 / 3)


def test_value_loss_has_the_half():
    # .5 x (1 + 4 + 16) / 3
    assert number(losses.value_loss(grid(1, 2, 50, 4), grid(2, 0, 0, 0), VALID)) == pytest.approx(3.5)


@pytest.mark.row("A20")
def test_hubers_value_loss_is_linear_beyond_1():
    # errors .5, 2 and -3: .125, 1.5 and 2.5
    loss = losses.value_loss(grid(0, 0, 50, 0), grid(0.5, 2, 0, -3), VALID, huber=True)
    assert number(loss) == pytest.approx((0.125 + 1.5 + 2.5) / 3)


def test_entropy_loss_is_the_negative_mean():
    assert number(losses.entropy_loss(grid(0.1, 0.2, 9, 0.6), VALID)) == pytest.approx(-0.3)


@pytest.mark.parametrize(
    ("values", "explained"),
    [
        ((1, 2, 99, 6), 1.0),  # a perfect critic, whatever it says where not valid
        ((4, 4, 4, 4), 0.0),  # a constant
        # Targets 1, 2, 6: variance 14 / 3. Residuals -1, 2, 2: mean 1, variance 6 / 3. 1 - 6 / 14.
        ((2, 0, 4, 4), 1 - 6 / 14),
    ],
)
def test_explained_variance(values, explained):
    assert number(losses.explained_variance(grid(*values), grid(1, 2, 3, 6), VALID)) == pytest.approx(explained)


@pytest.mark.row("H01")
@pytest.mark.parametrize(
    "loss",
    [losses.policy_gradient, losses.value_loss, partial(losses.value_loss, huber=True)],
    ids=["pg", "v", "huber"],
)
def test_a_loss_is_the_mean_of_its_items(loss):
    first, second = grid(-1, -2, -9, -3), grid(2, 4, 0, -2)
    items = [
        number(loss(first[t : t + 1, n : n + 1], second[t : t + 1, n : n + 1], VALID[t : t + 1, n : n + 1]))
        for t, n in np.argwhere(VALID)
    ]
    assert len(set(items)) == 3
    assert number(loss(first, second, VALID)) == pytest.approx(np.mean(items))


def test_share_is_of_the_valid_entries():
    assert number(losses.share(np.array([[True, False], [True, False]]), VALID)) == pytest.approx(1 / 3)
    assert number(losses.share(~NONE, NONE)) == 0.0


def test_explained_variance_of_constant_targets_is_0():
    assert number(losses.explained_variance(grid(1, 2, 3, 4), grid(5, 5, 5, 5), VALID)) == 0.0


@pytest.mark.parametrize(
    "term",
    [
        losses.masked_mean,
        losses.entropy_loss,
        lambda values, valid: losses.policy_gradient(values, values, valid),
        lambda values, valid: losses.value_loss(values, -values, valid),
        lambda values, valid: losses.explained_variance(values, -values, valid),
    ],
)
def test_nothing_valid_is_0_and_not_nan(term):
    assert number(term(grid(1, 2, 3, 4), NONE)) == 0.0
