"""The Beta family: low + y (high - low), y of density y^(α-1) (1-y)^(β-1) / B(α, β) (Chou et al. 2017).

α = 1 + softplus(raw α), and β likewise: never below 1, so that the density has one peak.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from distrl.networks.actions.bounded import (
    BoundedFamily,
    fraction_of,
    low_and_width,
    scaled,
    tensor_fraction_of,
    tensor_scaled,
)
from distrl.networks.actions.family import (
    HALF_LOG_2PI,
    ActionSampler,
    Distribution,
    Seed,
    Tensor,
    check_ranks,
    ops,
    random,
)
from distrl.types import Array, FloatArray

RAW_HIGH = 1000.0
"""Upper clip of raw α and raw β, which keeps log-probabilities within what float32 carries: here σ is 1/90 of the
bounds' width. Beyond it the gradient is 0."""


@dataclass(frozen=True)
class BetaSpec(BoundedFamily):
    """Independent Beta variables, scaled to finite bounds."""

    kind: Literal["beta"] = "beta"

    def sampler(self) -> ActionSampler:
        return BetaSampler(self)

    def distribution(self) -> "Beta":
        return Beta(self)


class BetaSampler:
    """`Beta` in NumPy."""

    def __init__(self, spec: BetaSpec) -> None:
        self._low, self._width = low_and_width(spec)
        self._log_width = np.log(self._width)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        alpha, beta = self._split(parameters)
        actions = scaled(rng.beta(alpha, beta).astype(np.float32), self._low, self._width)
        return actions, self._log_density(actions, alpha, beta)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return self._log_density(actions, *self._split(parameters))

    def mode(self, parameters: FloatArray) -> Array:
        alpha, beta = self._split(parameters)
        return scaled((alpha / (alpha + beta)).astype(np.float32), self._low, self._width)

    def _log_density(self, actions: Array, alpha: Array, beta: Array) -> FloatArray:
        fraction = fraction_of(actions, self._low, self._width)
        density = (
            (alpha - 1.0) * np.log(fraction) + (beta - 1.0) * np.log(1.0 - fraction) - _numpy_log_beta(alpha, beta)
        )
        log_probabilities: FloatArray = np.add.reduce(density - self._log_width, axis=1).astype(np.float32)
        return log_probabilities

    def _split(self, parameters: FloatArray) -> tuple[Array, Array]:
        """float32 [B, 2 n] -> α and β, float64 [B, n]: what they take in time is little, and nothing cancels."""
        both: Array = 1.0 + np.logaddexp(0.0, np.minimum(parameters, RAW_HIGH), dtype=np.float64)
        return both[:, : both.shape[1] // 2], both[:, both.shape[1] // 2 :]


class Beta(Distribution):
    """low + y (high - low), y of density y^(α-1) (1-y)^(β-1) / B(α, β) (Chou et al. 2017); actions float32 [..., n]."""

    def __init__(self, spec: BetaSpec) -> None:
        self._low, self._width = low_and_width(spec)
        self._log_width = np.log(self._width)

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Log-density of actions kept `UNIT_EDGE` inside the bounds."""
        check_ranks(parameters, actions, 1)
        alpha, beta = self._split(parameters)
        fraction = tensor_fraction_of(actions, self._low, self._width)
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
        return tensor_scaled(alpha / (alpha + beta), self._low, self._width)

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        # Backends differ in whether gradients would pass; here none do, on any of them.
        alpha, beta = (ops.stop_gradient(part) for part in self._split(parameters))
        drawn = random.beta(ops.shape(alpha), alpha, beta, dtype="float32", seed=seed)
        return tensor_scaled(ops.stop_gradient(drawn), self._low, self._width)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """[..., 2 n] -> α [..., n] and β [..., n]."""
        alpha, beta = ops.split(1.0 + ops.softplus(ops.minimum(parameters, RAW_HIGH)), 2, axis=-1)
        return alpha, beta


def _numpy_log_beta(alpha: Array, beta: Array) -> Array:
    """log B(α, β), float64, for α, β >= 1: three steps upwards, and Stirling's series there, to 4e-8."""
    return _log_gamma(alpha) + _log_gamma(beta) - _log_gamma(alpha + beta)


def _log_gamma(x: Array) -> Array:
    far = x + 3.0
    series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * far * far)) / (far * far)) / far
    stirling: Array = (far - 0.5) * np.log(far) - far + HALF_LOG_2PI + series - np.log(x * (x + 1.0) * (x + 2.0))
    return stirling


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
