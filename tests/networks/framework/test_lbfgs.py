import numpy as np
import pytest

from distrl.errors import MissingExtraError
from distrl.networks.framework.lbfgs import minimise


def rosenbrock(weights):
    """(1 - a)^2 + 100 (b - a^2)^2 with its minimum 0 at (1, 1); a and b as two weights of their own."""
    a, b = weights[0][0], weights[1][0, 0]
    loss = (1 - a) ** 2 + 100 * (b - a**2) ** 2
    return loss, [np.array([-2 * (1 - a) - 400 * a * (b - a**2)]), np.array([[200 * (b - a**2)]])]


def start(dtype=np.float64):
    return [np.array([-1.2], dtype), np.array([[1.0]], dtype)]


def least_squares(rows=20, dtype=np.float64):
    """Mean squared error of x @ kernel + bias, weights of zeros, and the exact solution."""
    random = np.random.default_rng(3)
    x, y = random.normal(size=(rows, 4)), random.normal(size=(rows, 2))

    def loss(weights):
        kernel, bias = weights
        error = x @ kernel + bias - y
        return float(np.mean(error**2)), [2 * x.T @ error / error.size, 2 * error.sum(0) / error.size]

    exact = np.linalg.lstsq(np.column_stack([x, np.ones(rows)]), y, rcond=None)[0]
    return loss, [np.zeros((4, 2), dtype), np.zeros(2, dtype)], exact


@pytest.mark.row("A15")
def test_rosenbrock():
    (a, b), result = minimise(rosenbrock, start(), max_iterations=100, tolerance=1e-12)
    assert a == pytest.approx(1.0, abs=1e-5)
    assert b == pytest.approx(1.0, abs=1e-5)
    assert (a.shape, b.shape) == ((1,), (1, 1))
    assert result.finite
    assert result.loss < 1e-12
    assert result.initial_loss == pytest.approx(24.2)  # 2.2^2 + 100 (1 - 1.44)^2
    assert result.initial_gradient_norm == pytest.approx(np.hypot(-215.6, -88.0))
    assert 0 < result.iterations < result.evaluations < 100


@pytest.mark.row("A15")
def test_least_squares():
    loss, weights, exact = least_squares()
    (kernel, bias), result = minimise(loss, weights, max_iterations=50, tolerance=1e-14)
    np.testing.assert_allclose(kernel, exact[:4], atol=1e-6)
    np.testing.assert_allclose(bias, exact[4], atol=1e-6)
    assert result.loss == pytest.approx(loss([exact[:4], exact[4]])[0], abs=1e-12)


def test_float32_weights_stay_float32_for_the_loss_and_the_caller():
    loss, weights, exact = least_squares(dtype=np.float32)
    seen = set()

    def watched(given):
        seen.update((array.dtype.name, array.shape) for array in given)
        value, gradients = loss(given)
        return np.float32(value), [gradient.astype(np.float32) for gradient in gradients]

    (kernel, bias), result = minimise(watched, weights, max_iterations=50)
    assert seen == {("float32", (4, 2)), ("float32", (2,))}
    assert kernel.dtype == bias.dtype == np.float32
    np.testing.assert_allclose(kernel, exact[:4], atol=1e-3)
    assert watched([kernel, bias])[0] == result.loss  # what is returned is what was measured, to the bit


def test_iterations_are_limited_and_each_goes_down():
    losses = []
    for limit in range(1, 8):
        _, result = minimise(rosenbrock, start(), max_iterations=limit)
        assert result.iterations == limit
        losses.append(result.loss)
    assert losses == sorted(losses, reverse=True)
    assert losses[0] < 24.2
    assert losses[-1] < losses[0]


def test_the_given_weights_are_not_changed_and_calls_remember_nothing():
    weights = start()
    first = minimise(rosenbrock, weights, max_iterations=5)
    assert (weights[0][0], weights[1][0, 0]) == (-1.2, 1.0)
    second = minimise(rosenbrock, weights, max_iterations=5)
    assert (first[1].loss, first[1].evaluations) == (second[1].loss, second[1].evaluations)
    np.testing.assert_array_equal(first[0][0], second[0][0])


def test_at_the_minimum_nothing_moves():
    (a, b), result = minimise(rosenbrock, [np.ones(1), np.ones((1, 1))], max_iterations=5)
    assert (a[0], b[0, 0]) == (1.0, 1.0)
    assert (result.iterations, result.evaluations) == (0, 1)


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_a_search_that_meets_nan_keeps_its_last_step(broken):
    calls = []

    def breaks(weights):
        calls.append([weights[0].copy(), weights[1].copy()])
        loss, gradients = rosenbrock(weights)
        if len(calls) < 8:
            return loss, gradients
        return (np.nan, gradients) if broken == "loss" else (loss, [np.full(1, np.inf), gradients[1]])

    moved, result = minimise(breaks, start(), max_iterations=100)
    assert not result.finite
    assert (result.evaluations, len(calls)) == (8, 8)
    assert 0 < result.iterations < 8
    assert result.loss < result.initial_loss == pytest.approx(24.2)
    assert rosenbrock(moved)[0] == result.loss


def test_a_first_loss_that_is_not_finite_moves_nothing():
    moved, result = minimise(lambda weights: (np.inf, weights), start(), max_iterations=5)
    assert (moved[0][0], moved[1][0, 0]) == (-1.2, 1.0)
    assert (result.finite, result.iterations, result.initial_loss) == (False, 0, np.inf)


def test_without_scipy_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"SciPy .*LBFGS.* is not installed: pip install '.*\[cpu\]'"):
        minimise(rosenbrock, start(), max_iterations=1)
