"""The squashed Gaussian family: low + (tanh u + 1) / 2 (high - low), u normal (Haarnoja et al. 2018, appendix C)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distrl.networks.actions.bounded import (
    BoundedFamily,
    fraction_of,
    low_and_width,
    scaled,
    tensor_fraction_of,
    tensor_scaled,
)
from distrl.networks.actions.family import ActionSampler, Seed, Tensor, check_ranks, ops
from distrl.networks.actions.gaussian import Gaussian, mean_and_log_stddev, normal_log_density, tensor_log_density
from distrl.types import Array, FloatArray

LOG_STDDEV = (-5.0, 2.0)
"""Clip of log σ before squashing. SAC's [-20, 2] (Haarnoja et al. 2018) with a higher floor: an action that has been
rounded to float32 and is unsquashed again is off by some 1e-7, which at σ = e^-20 would be 50 σ; at e^-5 it is 1e-5 σ,
and the policy is already 150 times narrower than its bounds. Beyond it the gradient is 0."""


@dataclass(frozen=True)
class SquashedGaussianSpec(BoundedFamily):
    """Independent normal variables behind tanh, scaled to finite bounds."""

    kind: Literal["squashed_gaussian"] = "squashed_gaussian"
    log_sigma: ClassVar[Literal["state_independent", "state_dependent"] | None] = "state_dependent"

    def sampler(self) -> ActionSampler:
        return SquashedGaussianSampler(self)

    def distribution(self) -> "SquashedGaussian":
        return SquashedGaussian(self)


class SquashedGaussianSampler:
    """`SquashedGaussian` in NumPy."""

    def __init__(self, spec: SquashedGaussianSpec) -> None:
        self._low, self._width = low_and_width(spec)
        self._log_double_width = np.log(2.0 * self._width)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        mean, log_stddev = mean_and_log_stddev(parameters, LOG_STDDEV)
        actions = self._squash(mean + np.exp(log_stddev) * rng.standard_normal(mean.shape, np.float32))
        return actions, self._log_density(actions, mean, log_stddev)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return self._log_density(actions, *mean_and_log_stddev(parameters, LOG_STDDEV))

    def mode(self, parameters: FloatArray) -> Array:
        return self._squash(mean_and_log_stddev(parameters, LOG_STDDEV)[0])

    def _squash(self, u: Array) -> Array:
        return scaled(0.5 * (np.tanh(u) + 1.0), self._low, self._width)

    def _log_density(self, actions: Array, mean: Array, log_stddev: Array) -> FloatArray:
        fraction = fraction_of(actions, self._low, self._width)
        log_on, log_off = np.log(fraction), np.log(1.0 - fraction)
        u = 0.5 * (log_on - log_off)
        density = normal_log_density(u, mean, log_stddev) - log_on - log_off - self._log_double_width
        log_probabilities: FloatArray = np.add.reduce(density, axis=1)
        return log_probabilities


class SquashedGaussian(Gaussian):
    """low + (tanh u + 1) / 2 (high - low), u normal (Haarnoja et al. 2018, appendix C); actions are float32 [..., n].

    KL is inherited: tanh and scale are one to one, and the divergence does not see such a change of variable. With
    y = (tanh u + 1) / 2 = sigmoid(2 u), the derivative of the action is 2 y (1 - y) (high - low).
    """

    _log_stddev_range = LOG_STDDEV

    # Nodes and weights of the entropy's quadrature. The trapezoidal rule converges exponentially on an analytic
    # function under a bell curve: 81 nodes leave 1e-4 at the widest σ allowed; Gauss-Hermite would need hundreds.
    _nodes = np.linspace(-6.0, 6.0, 81, dtype=np.float32)
    _node_weights = np.exp(-0.5 * _nodes**2) / np.exp(-0.5 * _nodes**2).sum()

    def __init__(self, spec: SquashedGaussianSpec) -> None:
        self._low, self._width = low_and_width(spec)
        self._log_double_width = np.log(2.0 * self._width)

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Log-density of actions kept `UNIT_EDGE` inside the bounds; `sample_with_log_probability` is exact."""
        check_ranks(parameters, actions, 1)
        mean, log_stddev = self._split(parameters)
        fraction = tensor_fraction_of(actions, self._low, self._width)
        log_on, log_off = ops.log(fraction), ops.log(1.0 - fraction)
        u = 0.5 * (log_on - log_off)  # atanh(2 y - 1)
        density = tensor_log_density((u - mean) * ops.exp(-log_stddev), log_stddev)
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
        return tensor_scaled(0.5 * (ops.tanh(u) + 1.0), self._low, self._width)


def _log_fractions(u: Tensor) -> Tensor:
    """log(y (1 - y)) of y = sigmoid(2 u), for any u."""
    return ops.log_sigmoid(2.0 * u) + ops.log_sigmoid(-2.0 * u)
