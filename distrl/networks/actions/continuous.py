"""Distributions over real numbers, in `keras.ops`: log-densities are of actions in the environment's scale."""

import math

import numpy as np
from keras import ops, random

from distrl.networks.actions.distribution import Distribution, Seed, Tensor, check_ranks
from distrl.networks.actions.specs import (
    BETA_RAW_HIGH,
    GAUSSIAN_LOG_STDDEV,
    SQUASHED_LOG_STDDEV,
    UNIT_EDGE,
    BetaSpec,
    SquashedGaussianSpec,
    low_and_width,
)
from distrl.types import FloatArray

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Gaussian(Distribution):
    """Normal variables with mean and log σ; actions are float32 [..., n]."""

    _log_stddev_range = GAUSSIAN_LOG_STDDEV

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        check_ranks(parameters, actions, 1)
        mean, log_stddev = self._split(parameters)
        return ops.sum(_normal_log_density((actions - mean) * ops.exp(-log_stddev), log_stddev), axis=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        _, log_stddev = self._split(parameters)
        return ops.sum(0.5 + HALF_LOG_2PI + log_stddev, axis=-1)

    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        mean_p, log_p = self._split(parameters_p)
        mean_q, log_q = self._split(parameters_q)
        distance = (mean_p - mean_q) * ops.exp(-log_q)
        ratio = 2.0 * (log_p - log_q)  # log of σp² / σq²
        return ops.sum(0.5 * (ops.expm1(ratio) - ratio + ops.square(distance)), axis=-1)

    def mode(self, parameters: Tensor) -> Tensor:
        return self._split(parameters)[0]

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        """mean + σ noise: gradients reach the mean and log σ (Kingma and Welling 2014, section 2.4)."""
        return self._draw(parameters, seed)[0]

    def _draw(self, parameters: Tensor, seed: Seed) -> tuple[Tensor, Tensor]:
        """mean + σ noise [..., n] and its log-density [...]."""
        mean, log_stddev = self._split(parameters)
        noise = random.normal(ops.shape(mean), dtype="float32", seed=seed)
        return mean + ops.exp(log_stddev) * noise, ops.sum(_normal_log_density(noise, log_stddev), axis=-1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """[..., 2 n] -> mean [..., n] and log σ [..., n], clipped."""
        mean, log_stddev = ops.split(parameters, 2, axis=-1)
        return mean, ops.clip(log_stddev, *self._log_stddev_range)


class SquashedGaussian(Gaussian):
    """low + (tanh u + 1) / 2 (high - low), u normal (Haarnoja et al. 2018, appendix C); actions are float32 [..., n].

    KL is inherited: tanh and scale are one to one, and the divergence does not see such a change of variable. With
    y = (tanh u + 1) / 2 = sigmoid(2 u), the derivative of the action is 2 y (1 - y) (high - low).
    """

    _log_stddev_range = SQUASHED_LOG_STDDEV

    # Nodes and weights of the entropy's quadrature. The trapezoidal rule converges exponentially on an analytic
    # function under a bell curve: 81 nodes leave 1e-4 at the widest σ allowed; Gauss-Hermite would need hundreds.
    _nodes = np.linspace(-6.0, 6.0, 81, dtype=np.float32)
    _node_weights = np.exp(-0.5 * _nodes**2) / np.exp(-0.5 * _nodes**2).sum()

    def __init__(self, spec: SquashedGaussianSpec) -> None:
        self._low, self._width = low_and_width(spec)
        self._log_double_width = np.log(2.0 * self._width)

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Of actions kept `UNIT_EDGE` inside the bounds; `sample_with_log_probability` is exact."""
        check_ranks(parameters, actions, 1)
        mean, log_stddev = self._split(parameters)
        fraction = _fraction(actions, self._low, self._width)
        log_on, log_off = ops.log(fraction), ops.log(1.0 - fraction)
        u = 0.5 * (log_on - log_off)  # atanh(2 y - 1)
        density = _normal_log_density((u - mean) * ops.exp(-log_stddev), log_stddev)
        return ops.sum(density - log_on - log_off - self._log_double_width, axis=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy of u plus the mean log-derivative, by deterministic quadrature: it has no closed form.

        Absolute error below 1e-3 for every σ allowed. Takes 81 numbers of memory for each number of the actions.
        """
        mean, log_stddev = self._split(parameters)
        u = mean[..., None] + ops.exp(log_stddev)[..., None] * self._nodes  # [..., n, nodes]
        log_derivative = ops.sum(_log_fractions(u) * self._node_weights, axis=-1) + self._log_double_width
        return super().entropy(parameters) + ops.sum(log_derivative, axis=-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """The squashed mean, which is the median; the density itself may peak at the bounds."""
        return self._squash(self._split(parameters)[0])

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        """The squashed mean + σ noise: gradients reach the mean and log σ."""
        return self._squash(self._draw(parameters, seed)[0])

    def sample_with_log_probability(self, parameters: Tensor, seed: Seed) -> tuple[Tensor, Tensor]:
        """As `sample`, and the exact log-probability: from u itself, which saturation and rounding leave alone."""
        u, density = self._draw(parameters, seed)
        return self._squash(u), density - ops.sum(_log_fractions(u) + self._log_double_width, axis=-1)

    def _squash(self, u: Tensor) -> Tensor:
        return _scaled(0.5 * (ops.tanh(u) + 1.0), self._low, self._width)


class Beta(Distribution):
    """low + y (high - low), y of density y^(α-1) (1-y)^(β-1) / B(α, β) (Chou et al. 2017); actions float32 [..., n]."""

    def __init__(self, spec: BetaSpec) -> None:
        self._low, self._width = low_and_width(spec)
        self._log_width = np.log(self._width)

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Of actions kept `UNIT_EDGE` inside the bounds."""
        check_ranks(parameters, actions, 1)
        alpha, beta = self._split(parameters)
        fraction = _fraction(actions, self._low, self._width)
        density = (alpha - 1.0) * ops.log(fraction) + (beta - 1.0) * ops.log(1.0 - fraction) - _log_beta(alpha, beta)
        return ops.sum(density - self._log_width, axis=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        alpha, beta = self._split(parameters)
        log_on, log_off = _mean_logs(alpha, beta)
        entropies = _log_beta(alpha, beta) - (alpha - 1.0) * log_on - (beta - 1.0) * log_off
        return ops.sum(entropies + self._log_width, axis=-1)

    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        alpha_p, beta_p = self._split(parameters_p)
        alpha_q, beta_q = self._split(parameters_q)
        log_on, log_off = _mean_logs(alpha_p, beta_p)
        normalizers = _log_beta(alpha_q, beta_q) - _log_beta(alpha_p, beta_p)
        return ops.sum(normalizers + (alpha_p - alpha_q) * log_on + (beta_p - beta_q) * log_off, axis=-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """The mean: at α = β = 1 the density has no peak."""
        alpha, beta = self._split(parameters)
        return _scaled(alpha / (alpha + beta), self._low, self._width)

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        # Backends differ in whether gradients would pass; here none do, on any of them.
        alpha, beta = (ops.stop_gradient(part) for part in self._split(parameters))
        drawn = random.beta(ops.shape(alpha), alpha, beta, dtype="float32", seed=seed)
        return _scaled(ops.stop_gradient(drawn), self._low, self._width)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """[..., 2 n] -> α [..., n] and β [..., n]."""
        alpha, beta = ops.split(1.0 + ops.softplus(ops.minimum(parameters, BETA_RAW_HIGH)), 2, axis=-1)
        return alpha, beta


def _normal_log_density(noise: Tensor, log_stddev: Tensor) -> Tensor:
    """Of mean + σ noise, elementwise."""
    return -0.5 * ops.square(noise) - log_stddev - HALF_LOG_2PI


def _log_fractions(u: Tensor) -> Tensor:
    """log(y (1 - y)) of y = sigmoid(2 u), for any u."""
    return ops.log_sigmoid(2.0 * u) + ops.log_sigmoid(-2.0 * u)


def _scaled(fraction: Tensor, low: FloatArray, width: FloatArray) -> Tensor:
    """Fractions of the width between the bounds -> actions, `UNIT_EDGE` inside the bounds."""
    return ops.clip(fraction, UNIT_EDGE, 1.0 - UNIT_EDGE) * width + low


def _fraction(actions: Tensor, low: FloatArray, width: FloatArray) -> Tensor:
    """The inverse of `_scaled`. Clips too: where bounds are far from 0, rounding may have put the action on them."""
    return ops.clip((actions - low) / width, UNIT_EDGE, 1.0 - UNIT_EDGE)


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    """log B(α, β) for α, β >= 1, elementwise.

    Γ(x) = Γ(x + 3) / (x (x + 1) (x + 2)) brings every argument to where Stirling's series holds to 4e-8 (Abramowitz and
    Stegun, 6.1.15 and 6.1.41). Its large terms are subtracted on paper, where float32 would lose them.
    """
    both = alpha + beta
    a, b, c = alpha + 3.0, beta + 3.0, both + 6.0
    steps = ops.log(_rising(both, 6)) - ops.log(_rising(alpha, 3)) - ops.log(_rising(beta, 3))
    large = a * ops.log(a / c) + b * ops.log(b / c)
    return HALF_LOG_2PI + large + 0.5 * ops.log(c / (a * b)) + _stirling(a) + _stirling(b) - _stirling(c) + steps


def _rising(x: Tensor, count: int) -> Tensor:
    """x (x + 1) … (x + count - 1)."""
    product = x
    for step in range(1, count):
        product = product * (x + step)
    return product


def _stirling(x: Tensor) -> Tensor:
    """log Γ(x) less its main terms (x - 1/2) log x - x + log(2 π) / 2, for x >= 4."""
    square = 1.0 / ops.square(x)
    return (1.0 / 12.0 - square * (1.0 / 360.0 - square / 1260.0)) / x


def _mean_logs(alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """E[log y] and E[log(1 - y)] of a Beta variable y: digamma(α) - digamma(α + β), and with β; for α, β >= 1."""
    both = alpha + beta
    rest = _digamma_rest(both)
    return tuple(ops.log((x + 3.0) / (both + 3.0)) + _digamma_rest(x) - rest for x in (alpha, beta))


def _digamma_rest(x: Tensor) -> Tensor:
    """digamma(x) - log(x + 3) for x >= 1, by three steps upwards and the series of 6.3.18 in Abramowitz and Stegun."""
    far = x + 3.0
    square = 1.0 / ops.square(far)
    series = 0.5 / far + square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0))
    return -series - 1.0 / x - 1.0 / (x + 1.0) - 1.0 / (x + 2.0)
