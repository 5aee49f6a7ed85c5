"""Losses of single elements. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest
from keras import ops

from distrl.networks.framework.backend import Gradients
from distrl.networks.heads import losses

RNG = np.random.default_rng(0)


def numpy(tensor):
    return np.asarray(ops.convert_to_tensor(tensor))


def gradient(function, at):
    variable = keras.Variable(np.asarray(at, np.float32))
    _, _, (found,) = Gradients(lambda _: (ops.sum(function(variable.value)), {}), [variable], [])(None)
    return found


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.row("A20", "D07.8")
def test_huber_is_squared_near_zero_and_linear_beyond():
    errors = np.array([0.5, 2.0, -3.0], np.float32)
    np.testing.assert_allclose(numpy(losses.huber(errors)), [0.125, 1.5, 2.5], rtol=1e-6)


def test_squared_error_has_the_half():
    errors = np.array([0.5, 2.0, -3.0], np.float32)
    np.testing.assert_allclose(numpy(losses.squared_error(errors)), [0.125, 2.0, 4.5], rtol=1e-6)


def test_gradients_of_regressions():
    errors = np.array([-3.0, -0.5, 0.0, 0.5, 1.0, 3.0], np.float32)
    np.testing.assert_allclose(gradient(losses.squared_error, errors), errors)
    np.testing.assert_allclose(gradient(losses.huber, errors), np.clip(errors, -1.0, 1.0))


@pytest.mark.parametrize("delta", [0.3, 1.0, 2.5])
def test_huber_twin(delta):
    errors = 3.0 * draw(50)
    size = np.abs(errors.astype(np.float64))
    expected = np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))
    np.testing.assert_allclose(numpy(losses.huber(errors, delta)), expected, rtol=1e-5)


@pytest.mark.row("D07.11")
def test_clipped_regression_takes_the_larger_loss():
    # old 1, new 2, range .2, target 3: the row's number is without the half that all our value losses carry
    loss = losses.clipped_regression(np.float32(2.0), np.float32(1.0), np.float32(3.0), 0.2, losses.squared_error)
    assert 2.0 * float(loss) == pytest.approx(max((2 - 3) ** 2, (1.2 - 3) ** 2))
    assert 2.0 * float(loss) == pytest.approx(3.24)


def test_clipped_regression_moves_no_value_that_is_far_enough():
    def loss(values):
        return losses.clipped_regression(values, 1.0, 3.0, 0.2, losses.squared_error)

    # 2 has gone beyond 1.2 already, 1.1 has not; 0.5 went the wrong way and is called back
    np.testing.assert_allclose(gradient(loss, [2.0, 1.1, 0.5]), [0.0, 1.1 - 3.0, 0.5 - 3.0], rtol=1e-6)


def test_clipped_regression_with_huber():
    loss = losses.clipped_regression(np.float32(2.0), np.float32(1.0), np.float32(3.0), 0.2, losses.huber)
    assert float(loss) == pytest.approx(1.8 - 0.5)


@pytest.mark.row("D07.3")
def test_cross_entropy_with_a_projected_target():
    # the target that D153 projects: [0, .5, .5]
    logits = np.log(np.array([[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]], np.float32))
    targets = np.array([[0.0, 0.5, 0.5], [0.0, 0.5, 0.5]], np.float32)
    expected = [-0.5 * np.log(0.3) - 0.5 * np.log(0.5), np.log(3)]
    np.testing.assert_allclose(numpy(losses.categorical_cross_entropy(logits, targets)), expected, rtol=1e-6)


def test_gradient_of_cross_entropy_is_the_difference_of_probabilities():
    logits, targets = draw(3, 5), np.array([[0.1, 0.2, 0.3, 0.4, 0.0]] * 3, np.float32)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    computed = gradient(lambda given: losses.categorical_cross_entropy(given, targets), logits)
    np.testing.assert_allclose(computed, softmax - targets, atol=1e-6)


@pytest.mark.row("D154", "D07.4")
def test_quantile_huber():
    computed = losses.quantile_huber(np.array([0.5, -2.0], np.float32), np.array([0.25, 0.25], np.float32))
    np.testing.assert_allclose(numpy(computed), [0.03125, 1.125], rtol=1e-6)


def test_quantile_fractions_are_middles():
    np.testing.assert_allclose(losses.quantile_fractions(4), [0.125, 0.375, 0.625, 0.875])
    assert losses.quantile_fractions(4).dtype == np.float32


@pytest.mark.parametrize("kappa", [0.5, 1.0])
def test_quantile_regression_twin(kappa):
    quantiles, targets = draw(3, 4), 2.0 * draw(3, 6)
    expected = np.zeros(3)
    for row in range(3):
        for i, fraction in enumerate([0.125, 0.375, 0.625, 0.875]):
            for target in targets[row]:
                u = float(target) - float(quantiles[row, i])
                size = abs(u)
                huber = 0.5 * u * u if size <= kappa else kappa * (size - 0.5 * kappa)
                expected[row] += abs(fraction - (u < 0)) * huber / kappa / 6
    np.testing.assert_allclose(numpy(losses.quantile_regression(quantiles, targets, kappa)), expected, rtol=1e-5)


@pytest.mark.long
def test_quantile_regression_finds_the_quantiles():
    samples = np.arange(101, dtype=np.float32)[np.newaxis] / 100.0
    quantiles = np.full((1, 4), 0.5, np.float32)
    for _ in range(100):
        quantiles -= 0.1 * gradient(lambda given: losses.quantile_regression(given, samples, 0.01), quantiles)
    np.testing.assert_allclose(quantiles[0], [0.125, 0.375, 0.625, 0.875], atol=0.02)


@pytest.mark.row("D07.14")
def test_policy_gradient():
    assert float(losses.policy_gradient(np.float32(np.log(0.5)), 2.0)) == pytest.approx(1.38629, abs=1e-5)


@pytest.mark.row("D166", "D07.15")
def test_clipped_surrogate():
    ratios, advantages = np.array([1.5, 0.5], np.float32), np.array([1.0, -1.0], np.float32)
    np.testing.assert_allclose(numpy(losses.clipped_surrogate(ratios, advantages, 0.2)), [1.2, -0.8], rtol=1e-6)


def test_clipped_surrogate_has_a_gradient_only_where_it_can_still_get_better_or_has_got_worse():
    def gain(ratios):
        return losses.clipped_surrogate(ratios, np.array([1.0, 1.0, 1.0, -1.0, -1.0], np.float32), 0.2)

    np.testing.assert_allclose(gradient(gain, [1.5, 0.5, 1.1, 0.5, 1.5]), [0.0, 1.0, 1.0, 0.0, -1.0])


@pytest.mark.row("D165", "D07.15")
def test_adapted_kl_coefficient():
    adapted = [float(losses.adapted_kl_coefficient(np.float32(1.0), kl, 0.01, 1.0)) for kl in (0.02, 0.005, 0.01)]
    np.testing.assert_allclose(adapted, [1.5, 2 / 3, 1.0], rtol=1e-6)
    at_the_edge = ((9e3, 0.02, 1e4), (1.2e-4, 0.005, 1e-4))
    for coefficient, kl, bound in at_the_edge:
        found = losses.adapted_kl_coefficient(np.float32(2.0 * coefficient), kl, 0.01, 2.0)
        assert float(found) == pytest.approx(2.0 * bound)


@pytest.mark.row("D160", "D07.7")
def test_naf_value():
    one = np.ones((1, 1), np.float32)
    assert float(losses.naf_value(1.0, 0.0 * one[0], 2.0 * one, one[0])) == pytest.approx(-1.0)


def test_naf_value_twin():
    value, mu, actions = draw(5), draw(5, 3), draw(5, 3)
    lower = np.tril(draw(5, 3, 3))
    difference = actions - mu
    expected = [v - 0.5 * d @ L @ L.T @ d for v, d, L in zip(value, difference, lower, strict=True)]
    np.testing.assert_allclose(numpy(losses.naf_value(value, mu, lower, actions)), expected, rtol=1e-4, atol=1e-5)


def test_at_choice():
    values, taken = draw(4, 3, 2), np.array([2, 0, 1, 2], np.int32)
    np.testing.assert_array_equal(numpy(losses.at_choice(values, taken)), values[np.arange(4), taken])
    np.testing.assert_array_equal(numpy(losses.at_choice(values[..., 0], taken)), values[np.arange(4), taken, 0])
