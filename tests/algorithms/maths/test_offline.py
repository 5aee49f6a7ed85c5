"""Weights, expectiles, conservative gaps and margins by hand and against slow twins. Runs on every Keras backend."""

import math

import numpy as np
import pytest

from distrl.algorithms.maths.offline import (
    advantage_weights,
    conservative_gap,
    expectile_loss,
    margin_loss,
    normalized_weights,
)

RNG = np.random.default_rng(0)
A = RNG.normal(0.0, 3.0, (3, 5)).astype("float32")
VALUES = RNG.normal(0.0, 2.0, (3, 5, 4)).astype("float32")
CHOICES = RNG.integers(0, 4, (3, 5)).astype("int32")


def test_weights_are_exponentials_up_to_the_largest():
    found = np.asarray(advantage_weights(np.array([0.0, 1.0, -1.0, 3.0, 1e30], "float32"), 2.0, 100.0))
    np.testing.assert_allclose(found, [1.0, math.exp(2.0), math.exp(-2.0), 100.0, 100.0], rtol=1e-5)
    np.testing.assert_array_equal(advantage_weights(A, 0.0, 100.0), np.ones_like(A))


def test_normalized_weights_have_the_mean_1_over_valid_entries():
    valid = RNG.random(A.shape) < 0.7
    found = np.asarray(normalized_weights(A, valid, 0.5))
    exponentials = [math.exp(0.5 * float(A[at])) for at in zip(*np.nonzero(valid), strict=True)]
    mean = sum(exponentials) / len(exponentials)
    np.testing.assert_allclose(found[valid], np.array(exponentials) / mean, rtol=1e-5)
    assert not found[~valid].any()
    large = np.array([1e4, 1e4 + 1.0, -1e4], "float32")  # no exponential of these is finite
    found = np.asarray(normalized_weights(large, np.ones(3, bool), 1.0))
    np.testing.assert_allclose(found, [3.0 / (1.0 + math.e), 3.0 * math.e / (1.0 + math.e), 0.0], rtol=1e-5)
    np.testing.assert_array_equal(normalized_weights(large, np.zeros(3, bool), 1.0), np.zeros(3))


def test_an_expectile_weighs_the_side_of_an_error_by_hand():
    found = np.asarray(expectile_loss(np.array([2.0, -2.0, 0.0], "float32"), 0.7))
    np.testing.assert_allclose(found, [0.7 * 4.0, 0.3 * 4.0, 0.0], rtol=1e-6)


def test_the_loss_is_least_at_the_expectile():
    """Targets 0 and 10, tau 0.9: 0.9 (10 - v) = 0.1 v at v = 9."""
    targets, grid = np.array([0.0, 10.0], "float32"), np.linspace(0.0, 10.0, 101, dtype="float32")
    losses = [float(np.mean(np.asarray(expectile_loss(targets - v, 0.9)))) for v in grid]
    assert grid[int(np.argmin(losses))] == pytest.approx(9.0)


def test_the_gap_is_that_of_a_slow_twin():
    found = np.asarray(conservative_gap(VALUES, CHOICES))
    for at in np.ndindex(CHOICES.shape):
        exact = math.log(sum(math.exp(float(q)) for q in VALUES[at])) - float(VALUES[at][CHOICES[at]])
        assert found[at] == pytest.approx(exact, rel=1e-5, abs=1e-5)
    forbidden = np.array([1.0, -1e9], "float32")
    np.testing.assert_allclose(conservative_gap(forbidden, np.array(0, "int32")), 0.0, atol=1e-6)


@pytest.mark.row("H15", "G32")
def test_the_margin_by_hand():
    """Q = [1, 1.2], the expert chose 0, margin .5: max(1, 1.7) - 1 = .7."""
    found = margin_loss(np.array([1.0, 1.2], "float32"), np.array(0, "int32"), 0.5)
    assert float(found) == pytest.approx(0.7)
    better = margin_loss(np.array([2.0, 1.2], "float32"), np.array(0, "int32"), 0.5)
    assert float(better) == 0.0


@pytest.mark.row("H15")
def test_the_margin_is_that_of_a_slow_twin():
    found = np.asarray(margin_loss(VALUES, CHOICES, 0.8))
    for at in np.ndindex(CHOICES.shape):
        made, best = CHOICES[at], -math.inf
        for choice, q in enumerate(VALUES[at]):
            best = max(best, float(q) + (0.0 if choice == made else 0.8))
        assert found[at] == pytest.approx(best - float(VALUES[at][made]), rel=1e-5, abs=1e-5)
