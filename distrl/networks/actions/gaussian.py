"""The Gaussian family: independent normal variables in the environment's scale, unbounded."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distrl.networks.actions.family import (
    HALF_LOG_2PI,
    ActionFamily,
    ActionSampler,
    Distribution,
    Seed,
    Tensor,
    check_ranks,
    ops,
    random,
)
from distrl.types import ActionSpec, Array, BoxSpec, FloatArray

LOG_STDDEV = (-10.0, 10.0)
"""Clip of log σ, in the environment's own scale: four decades to either side of 1. Beyond it the gradient is 0."""


@dataclass(frozen=True)
class GaussianSpec(ActionFamily):
    """`n` independent normal variables; the environment cuts them to its bounds."""

    n: int
    kind: Literal["gaussian"] = "gaussian"
    log_sigma: ClassVar[Literal["state_independent", "state_dependent"] | None] = "state_independent"

    @property
    def parameters_size(self) -> int:
        return 2 * self.n

    def fits(self, action: ActionSpec) -> bool:
        return isinstance(action, BoxSpec) and self.n == action.n

    def sampler(self) -> ActionSampler:
        return GaussianSampler()

    def distribution(self) -> "Gaussian":
        return Gaussian()


class GaussianSampler:
    """`Gaussian` in NumPy."""

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        mean, log_stddev = self._split(parameters)
        actions = mean + np.exp(log_stddev) * rng.standard_normal(mean.shape, np.float32)
        return actions, np.add.reduce(normal_log_density(actions, mean, log_stddev), axis=1)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        density = normal_log_density(actions, *self._split(parameters))
        log_probabilities: FloatArray = np.add.reduce(density, axis=1)
        return log_probabilities

    def mode(self, parameters: FloatArray) -> Array:
        return self._split(parameters)[0].copy()  # not a view of the policy's output

    def _split(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[B, 2 n] -> mean [B, n] and log σ [B, n], clipped."""
        return mean_and_log_stddev(parameters, LOG_STDDEV)


class Gaussian(Distribution):
    """Normal variables with mean and log σ; actions are float32 [..., n]."""

    _log_stddev_range = LOG_STDDEV

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        check_ranks(parameters, actions, 1)
        mean, log_stddev = self._split(parameters)
        return ops.sum(tensor_log_density((actions - mean) * ops.exp(-log_stddev), log_stddev), axis=-1)

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
        return mean + ops.exp(log_stddev) * noise, ops.sum(tensor_log_density(noise, log_stddev), axis=-1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """[..., 2 n] -> mean [..., n] and log σ [..., n], clipped."""
        mean, log_stddev = ops.split(parameters, 2, axis=-1)
        return mean, ops.clip(log_stddev, *self._log_stddev_range)


def mean_and_log_stddev(parameters: FloatArray, limits: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """[B, 2 n] -> mean [B, n] and log σ [B, n], clipped."""
    n = parameters.shape[1] // 2
    return parameters[:, :n], np.minimum(np.maximum(parameters[:, n:], limits[0]), limits[1])


def normal_log_density(values: Array, mean: Array, log_stddev: Array) -> Array:
    """Log-density of values of mean + σ noise, elementwise."""
    noise = (values - mean) * np.exp(-log_stddev)
    density: Array = -0.5 * noise * noise - log_stddev - HALF_LOG_2PI
    return density


def tensor_log_density(noise: Tensor, log_stddev: Tensor) -> Tensor:
    """Log-density of mean + σ noise, elementwise, in `keras.ops`."""
    return -0.5 * ops.square(noise) - log_stddev - HALF_LOG_2PI
