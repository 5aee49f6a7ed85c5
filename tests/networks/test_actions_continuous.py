"""Distributions over real numbers against SciPy and numerical integration. Runs on every Keras backend."""

from itertools import pairwise

import keras
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from keras import ops
from scipy import integrate, special, stats

from distrl.networks.actions.beta import Beta, BetaSpec
from distrl.networks.actions.bounded_gaussian import BoundedGaussian, BoundedGaussianSpec
from distrl.networks.actions.family import UNIT_EDGE
from distrl.networks.actions.gaussian import Gaussian
from distrl.networks.actions.squashed_gaussian import SquashedGaussian, SquashedGaussianSpec

GAUSSIAN = Gaussian()
UNIT = SquashedGaussian(SquashedGaussianSpec((-1.0,), (1.0,)))
LOW, HIGH = np.array([-2.0, 0.5]), np.array([2.0, 3.5])
SQUASHED = SquashedGaussian(SquashedGaussianSpec(tuple(LOW), tuple(HIGH)))
BOUNDED = BoundedGaussian(BoundedGaussianSpec(tuple(LOW), tuple(HIGH)))
BETA = Beta(BetaSpec(tuple(LOW), tuple(HIGH)))
PARAMETERS = arrays(np.float32, (3, 4), elements=st.floats(-5, 5, width=32))
ACTIONS = arrays(np.float32, (3, 2), elements=st.floats(-50, 50, width=32))
FRACTIONS = arrays(np.float32, (3, 2), elements=st.floats(2**-5, 1 - 2**-5, width=32))


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def f32(*rows):
    return np.array(rows, np.float32)


def gradient(function, x):
    """Return the gradient of sum(function(x)): the backend's own; central differences on NumPy, which has none."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        x = tf.Variable(x)
        with tf.GradientTape() as tape:
            result = ops.sum(function(x))
        return numpy(tape.gradient(result, x))
    if keras.backend.backend() == "jax":
        import jax

        return numpy(jax.grad(lambda x: ops.sum(function(x)))(x))
    steps = np.eye(x.size, dtype=np.float32).reshape(x.size, *x.shape) / 128
    return np.array([(function(x + s).sum() - function(x - s).sum()) * 64 for s in steps]).reshape(x.shape)


def squashed_log_density(action, mean, stddev, low, high):
    """The definition in float64, by the change of variables."""
    t = 2 * (action - low) / (high - low) - 1
    return stats.norm.logpdf(np.arctanh(t), mean, stddev) - np.log((high - low) / 2 * (1 - t**2))


def expectation(function, mean, stddev):
    """E[function(u)] of a normal u."""
    limits = np.sort([mean - 10 * stddev, mean, 0, mean + 10 * stddev]).tolist()

    def weighted(u):
        return np.exp(-0.5 * ((u - mean) / stddev) ** 2) / (stddev * np.sqrt(2 * np.pi)) * function(u)

    return sum(integrate.quad(weighted, *ends)[0] for ends in pairwise(limits))


@pytest.mark.row("L23.1")
class TestGaussian:
    def test_known_entropies(self):
        parameters = f32([3, 0], [-3, np.log(2)])
        np.testing.assert_allclose(numpy(GAUSSIAN.entropy(parameters)), [1.418939, 2.112086], atol=1e-6)

    def test_variance_and_log_stddev_say_the_same(self):
        variance = 2.5
        parameters = f32([0.7, 0.5 * np.log(variance)])
        expected = stats.norm.logpdf(-1.2, 0.7, np.sqrt(variance))
        np.testing.assert_allclose(numpy(GAUSSIAN.log_probability(parameters, f32([-1.2]))), [expected], rtol=1e-6)

    def test_mode_is_the_mean(self):
        np.testing.assert_array_equal(numpy(GAUSSIAN.mode(f32([1, 2, 5, -5]))), f32([1, 2]))

    def test_log_probability_refuses_wrong_ranks(self):
        with pytest.raises(ValueError, match="actions must have 2 axes"):
            GAUSSIAN.log_probability(np.zeros((3, 2), np.float32), np.zeros(3, np.float32))

    def test_moments_of_samples(self):
        drawn = numpy(GAUSSIAN.sample(np.tile(f32([1, -3, np.log(2), np.log(0.5)]), (100_000, 1)), 11))
        assert (drawn.dtype, drawn.shape) == (np.float32, (100_000, 2))
        np.testing.assert_allclose(drawn.mean(axis=0), [1, -3], atol=0.03)
        np.testing.assert_allclose(drawn.std(axis=0), [2, 0.5], rtol=0.01)
        assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.02

    def test_samples_are_differentiable(self):
        parameters = f32([1, -3, np.log(2), np.log(0.5)])
        deviation = numpy(GAUSSIAN.sample(parameters, 11)) - parameters[:, :2]
        computed = gradient(lambda x: GAUSSIAN.sample(x, 11), parameters)
        np.testing.assert_allclose(computed, np.concatenate([np.ones((1, 2)), deviation], axis=1), rtol=1e-3)

    def test_log_probability_of_a_sample(self):
        parameters = f32([1, -3, np.log(2), np.log(0.5)])
        actions, log_probabilities = GAUSSIAN.sample_with_log_probability(parameters, 3)
        expected = stats.norm.logpdf(numpy(actions), [1, -3], [2, 0.5]).sum(axis=-1)
        np.testing.assert_allclose(numpy(log_probabilities), expected, rtol=1e-5)

    def test_log_stddev_is_clipped(self):
        computed = numpy(GAUSSIAN.entropy(f32([0, -50], [0, 50])))
        np.testing.assert_allclose(computed, [1.418939 - 10, 1.418939 + 10], rtol=1e-6)
        np.testing.assert_array_equal(gradient(GAUSSIAN.entropy, f32([0, -50], [0, 50], [0, 1]))[:, 1], [0, 0, 1])

    @given(PARAMETERS, PARAMETERS, ACTIONS)
    def test_twins_of_the_definitions(self, parameters, others, actions):
        (mean_p, log_p), (mean_q, log_q) = (np.split(x.astype(np.float64), 2, axis=-1) for x in (parameters, others))
        p, q = stats.norm(mean_p, np.exp(log_p)), np.exp(log_q)
        expected = p.logpdf(actions).sum(axis=-1)
        np.testing.assert_allclose(numpy(GAUSSIAN.log_probability(parameters, actions)), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(numpy(GAUSSIAN.entropy(parameters)), p.entropy().sum(axis=-1), atol=1e-5)
        divergence = log_q - log_p + (np.exp(2 * log_p) + (mean_p - mean_q) ** 2) / (2 * q**2) - 0.5
        np.testing.assert_allclose(numpy(GAUSSIAN.kl(parameters, others)), divergence.sum(-1), rtol=1e-5, atol=1e-5)


class TestBoundedGaussian:
    @pytest.mark.parametrize(
        ("parameters", "mean", "deviation"),
        [
            ([0, 0, 0, 0], [0, 2], [2, 1.5]),  # middle and half of the width
            ([np.arctanh(0.5), np.arctanh(-0.5), np.log(0.5), np.log(2)], [1, 1.25], [1, 3]),
            ([50, -50, -9, 9], [2, 0.5], [2 * np.exp(-5), 1.5 * np.exp(2)]),  # on the bounds, and clipped
        ],
    )
    def test_mean_deviation_and_density_are_those_of_a_table(self, parameters, mean, deviation):
        """The mean is tanh's, the density that of a plain Gaussian, also on the bounds and beyond."""
        np.testing.assert_allclose(numpy(BOUNDED.mode(f32(parameters))), [mean], rtol=1e-6, atol=1e-6)
        for actions in (mean, np.add(mean, np.multiply(deviation, 0.7)), LOW, HIGH + 1):
            expected = stats.norm.logpdf(actions, mean, deviation).sum()
            computed = numpy(BOUNDED.log_probability(f32(parameters), f32(actions)))
            np.testing.assert_allclose(computed, [expected], rtol=1e-4)
        np.testing.assert_allclose(
            numpy(BOUNDED.entropy(f32(parameters))), [stats.norm(mean, deviation).entropy().sum()], rtol=1e-5, atol=1e-6
        )

    def test_samples_are_differentiable(self):
        parameters = f32([0.5, -0.3, np.log(2), np.log(0.5)])
        mean = numpy(BOUNDED.mode(parameters))
        deviation = numpy(BOUNDED.sample(parameters, 11)) - mean
        half, t = (HIGH - LOW) / 2, np.tanh(parameters[:, :2])
        expected = np.concatenate([half * (1 - t**2), deviation], axis=1)
        np.testing.assert_allclose(gradient(lambda x: BOUNDED.sample(x, 11), parameters), expected, rtol=1e-3)

    def test_divergence_is_that_of_plain_gaussians(self):
        p, q = f32([0.5, -0.3, 0.1, -0.2]), f32([-0.5, 0.2, 0.3, 0.4])
        plain = [np.concatenate([numpy(BOUNDED.mode(x)), x[:, 2:] + np.log((HIGH - LOW) / 2)], axis=1) for x in (p, q)]
        expected = numpy(GAUSSIAN.kl(*(x.astype(np.float32) for x in plain)))
        np.testing.assert_allclose(numpy(BOUNDED.kl(p, q)), expected, rtol=1e-5)


@pytest.mark.row("L23.5", "D07.13")
class TestSquashedGaussian:
    @pytest.mark.row("D169")
    def test_known_log_probability(self):
        computed = float(UNIT.log_probability(f32(0, 0), f32(0.3)))
        assert computed == pytest.approx(-0.87253, abs=5e-6)

    @given(arrays(np.float32, (3, 4), elements=st.floats(-2, 2, width=32)), FRACTIONS)
    def test_log_probability_is_the_definition(self, parameters, fractions):
        mean, log_stddev = np.split(parameters.astype(np.float64), 2, axis=-1)
        actions = (LOW + fractions * (HIGH - LOW)).astype(np.float32)
        expected = squashed_log_density(actions.astype(np.float64), mean, np.exp(log_stddev), LOW, HIGH).sum(axis=-1)
        computed = numpy(SQUASHED.log_probability(parameters, actions))
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-4)

    @pytest.mark.parametrize("log_stddev", [-9, -5, -2, -0.5, 0, 1, 2, 3])
    @pytest.mark.parametrize("mean", [-20, -3, 0, 0.4, 7])
    def test_entropy_is_the_integral(self, mean, log_stddev):
        stddev = np.exp(np.clip(log_stddev, -5, 2))
        log_slope = expectation(lambda u: np.log(4) + special.log_expit([2 * u, -2 * u]).sum(), mean, stddev)
        expected = stats.norm.entropy(mean, stddev) + log_slope
        assert float(UNIT.entropy(f32(mean, log_stddev))) == pytest.approx(expected, abs=1e-4)

    def test_entropy_of_bounds(self):
        # Twice the width, one bit more; and the sum over both numbers.
        parameters = f32([0.3, -1.0, 0.2, -0.7])
        parts = [float(UNIT.entropy(part)) for part in (parameters[0, [0, 2]], parameters[0, [1, 3]])]
        np.testing.assert_allclose(numpy(SQUASHED.entropy(parameters)), [sum(parts) + np.log(2 * 1.5)], rtol=1e-5)

    def test_entropy_is_minus_the_mean_log_probability(self):
        parameters = np.tile(f32([0.5, -0.3, -0.5, 0.2]), (200_000, 1))
        _, log_probabilities = SQUASHED.sample_with_log_probability(parameters, 2)
        assert -numpy(log_probabilities).mean() == pytest.approx(float(SQUASHED.entropy(parameters[0])), abs=0.01)

    def test_kl_is_the_integral(self):
        p, q = (0.4, 0.6), (-0.2, 0.9)

        def log_ratio(u):
            action = np.tanh(u)
            return squashed_log_density(action, *p, -1, 1) - squashed_log_density(action, *q, -1, 1)

        expected = integrate.quad(lambda u: stats.norm.pdf(u, *p) * log_ratio(u), -6, 6)[0]
        computed = UNIT.kl(f32(p[0], np.log(p[1])), f32(q[0], np.log(q[1])))
        assert float(computed) == pytest.approx(expected, abs=1e-5)

    def test_mode_is_the_squashed_mean(self):
        expected = LOW + (np.tanh([0.3, -1.0]) + 1) / 2 * (HIGH - LOW)
        np.testing.assert_allclose(numpy(SQUASHED.mode(f32(0.3, -1, 5, 5))), expected, rtol=1e-6)

    def test_samples_are_squashed_normal_variables(self):
        drawn = numpy(SQUASHED.sample(np.tile(f32([0.5, -0.3, -0.5, 0.2]), (100_000, 1)), 13)).astype(np.float64)
        assert ((drawn > LOW) & (drawn < HIGH)).all()
        u = np.arctanh(2 * (drawn - LOW) / (HIGH - LOW) - 1)
        np.testing.assert_allclose(u.mean(axis=0), [0.5, -0.3], atol=0.02)
        np.testing.assert_allclose(u.std(axis=0), np.exp([-0.5, 0.2]), rtol=0.01)

    def test_log_probability_of_a_sample(self):
        parameters = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 4)).astype(np.float32)
        actions, log_probabilities = SQUASHED.sample_with_log_probability(parameters, 4)
        np.testing.assert_array_equal(numpy(actions), numpy(SQUASHED.sample(parameters, 4)))
        again = numpy(SQUASHED.log_probability(parameters, actions))
        np.testing.assert_allclose(numpy(log_probabilities), again, rtol=1e-3, atol=1e-3)

    def test_log_probability_of_a_saturated_sample_is_exact(self):
        # u = 30: 1 - tanh(u)^2 is 4e-26, of which float32 keeps nothing of 1 - a^2.
        _, log_probability = UNIT.sample_with_log_probability(f32(30, -5), 0)
        stddev = np.exp(-5)
        u = 30 + stddev * numpy(GAUSSIAN.sample(f32(0, 0), 0))[0]
        expected = stats.norm.logpdf(u, 30, stddev) - 2 * (np.log(2) - u)
        assert float(log_probability) == pytest.approx(expected, rel=1e-5)

    def test_samples_are_differentiable(self):
        parameters = f32([0.3, -1.0])
        action = numpy(UNIT.sample(parameters, 5))[0, 0]
        u = np.arctanh(action)
        slope = 1 - action**2
        computed = gradient(lambda x: UNIT.sample(x, 5), parameters)
        np.testing.assert_allclose(computed, [[slope, slope * (u - 0.3)]], rtol=1e-3)

        computed = gradient(lambda x: UNIT.sample_with_log_probability(x, 5)[1], parameters)
        np.testing.assert_allclose(computed, [[2 * action, 2 * action * (u - 0.3) - 1]], rtol=2e-3)

    def test_gradient_of_the_entropy(self):
        # dH/dμ = E[-2 tanh u]; dH/dlog σ = 1 - 2 E[(u - μ) tanh u].
        mean, stddev = 0.3, np.exp(-0.4)
        expected = [
            -2 * expectation(np.tanh, mean, stddev),
            1 - 2 * expectation(lambda u: (u - mean) * np.tanh(u), mean, stddev),
        ]
        np.testing.assert_allclose(gradient(UNIT.entropy, f32([0.3, -0.4])), [expected], rtol=2e-3)

    def test_bounds_themselves_have_a_log_probability(self):
        computed = numpy(UNIT.log_probability(np.zeros((2, 2), np.float32), f32([-1], [1])))
        u = 0.5 * np.log(UNIT_EDGE / (1 - UNIT_EDGE))
        expected = stats.norm.logpdf(u) - np.log(2 * UNIT_EDGE * (1 - UNIT_EDGE)) - np.log(2)
        np.testing.assert_allclose(computed, [expected, expected], rtol=1e-5)

    def test_log_stddev_is_clipped(self):
        at_limits = numpy(UNIT.kl(f32([0, -5], [0, 2]), f32([0, 0], [0, 0])))
        np.testing.assert_array_equal(numpy(UNIT.kl(f32([0, -50], [0, 50]), f32([0, 0], [0, 0]))), at_limits)


@pytest.mark.row("L23.4")
class TestBeta:
    unit = Beta(BetaSpec((-2.0,), (2.0,)))

    def shape(self, parameters):
        """α and β in float64."""
        return np.split(1 + np.logaddexp(0, np.minimum(parameters, 1000).astype(np.float64)), 2, axis=-1)

    def test_equal_shapes_have_mean_0(self):
        np.testing.assert_array_equal(numpy(self.unit.mode(f32([3, 3], [-50, -50]))), [[0], [0]])

    def test_log_probability_includes_the_scale(self):
        # α = β = 1 is uniform: 1 / 4 everywhere in [-2, 2].
        computed = numpy(self.unit.log_probability(f32([-50, -50], [-50, -50]), f32([0], [1.9])))
        np.testing.assert_allclose(computed, [-np.log(4)] * 2, rtol=1e-6)

    def test_samples_are_inside_and_have_the_moments(self):
        parameters = np.tile(f32([1, 4, -1, 2]), (100_000, 1))
        drawn = numpy(BETA.sample(parameters, 17))
        assert (drawn.dtype, drawn.shape) == (np.float32, (100_000, 2))
        assert ((drawn >= LOW) & (drawn <= HIGH)).all()
        reference = stats.beta(*self.shape(parameters[0]), LOW, HIGH - LOW)
        np.testing.assert_allclose(drawn.mean(axis=0), reference.mean(), atol=0.02)
        np.testing.assert_allclose(drawn.std(axis=0), reference.std(), rtol=0.01)

    @given(arrays(np.float32, (3, 4), elements=st.floats(-30, 1200, width=32)), FRACTIONS)
    def test_log_probability_is_the_definition(self, parameters, fractions):
        alpha, beta = self.shape(parameters)
        actions = (LOW + fractions * (HIGH - LOW)).astype(np.float32)
        expected = stats.beta.logpdf(actions.astype(np.float64), alpha, beta, LOW, HIGH - LOW).sum(axis=-1)
        # Terms of the size of α + β cancel to what is left.
        slack = 1e-5 + 2e-6 * (alpha + beta).max()
        computed = numpy(BETA.log_probability(parameters, actions))
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=slack)

    @given(arrays(np.float32, (3, 4), elements=st.floats(-30, 30, width=32)), PARAMETERS)
    @example(f32([-50, -50, -50, -50], [30, 30, -30, 30], [1e3, 1e3, 1e3, 1e3]), np.zeros((3, 4), np.float32))
    def test_entropy_and_kl_are_the_closed_forms(self, parameters, others):
        (a, b), (c, d) = self.shape(parameters), self.shape(others)
        slack = 1e-5 + 1e-6 * (a + b).max()
        expected = stats.beta(a, b, LOW, HIGH - LOW).entropy().sum(axis=-1)
        np.testing.assert_allclose(numpy(BETA.entropy(parameters)), expected, rtol=1e-5, atol=slack)
        divergence = special.betaln(c, d) - special.betaln(a, b) + (c - a + d - b) * special.digamma(a + b)
        divergence += (a - c) * special.digamma(a) + (b - d) * special.digamma(b)
        computed = numpy(BETA.kl(parameters, others))
        np.testing.assert_allclose(computed, divergence.sum(axis=-1), rtol=1e-5, atol=slack)

    def test_kl_is_the_integral(self):
        parameters, others = f32(1.0, -0.5), f32(-1.0, 2.0)
        p, q = (stats.beta(*np.concatenate(self.shape(x)), -2, 4) for x in (parameters, others))
        expected = integrate.quad(lambda a: p.pdf(a) * (p.logpdf(a) - q.logpdf(a)), -2, 2)[0]
        assert float(self.unit.kl(parameters, others)) == pytest.approx(expected, abs=1e-5)

    def test_no_gradient_passes_through_samples(self):
        if keras.backend.backend() != "numpy":  # central differences see the samples move
            computed = gradient(lambda x: self.unit.sample(x, 1) + 3 * x[:, :1], f32([1, 2]))
            np.testing.assert_array_equal(computed, [[3, 0]])

    def test_bounds_themselves_have_a_log_probability(self):
        computed = numpy(self.unit.log_probability(f32([0, 0], [0, 0]), f32([-2], [2])))
        shape = 1 + np.log(2)
        expected = stats.beta.logpdf(UNIT_EDGE, shape, shape) - np.log(4)
        np.testing.assert_allclose(computed, [expected, expected], rtol=1e-5)
