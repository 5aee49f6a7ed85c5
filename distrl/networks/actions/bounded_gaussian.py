"""The bounded Gaussian family: normal variables whose mean tanh keeps within the bounds (Kostrikov et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distrl.networks.actions.bounded import BoundedFamily, low_and_width
from distrl.networks.actions.family import ActionSampler, Tensor, ops
from distrl.networks.actions.gaussian import Gaussian, GaussianSampler, mean_and_log_stddev
from distrl.types import FloatArray

LOG_STDDEV = (-5.0, 2.0)
"""Clip of log σ, in halves of the distance between the bounds, as in the authors' code. Beyond it the gradient is 0."""


@dataclass(frozen=True)
class BoundedGaussianSpec(BoundedFamily):
    """Independent normal variables around low + (tanh m + 1) / 2 (high - low); the environment cuts them to its bounds.

    Unlike those of a squashed Gaussian, log-densities are finite on the bounds, where recorded actions often are.
    """

    kind: Literal["bounded_gaussian"] = "bounded_gaussian"
    edge: ClassVar[float] = 0.0
    log_sigma: ClassVar[Literal["state_independent", "state_dependent"] | None] = "state_independent"

    def sampler(self) -> ActionSampler:
        return BoundedGaussianSampler(self)

    def distribution(self) -> "BoundedGaussian":
        return BoundedGaussian(self)


class BoundedGaussianSampler(GaussianSampler):
    """`BoundedGaussian` in NumPy."""

    def __init__(self, spec: BoundedGaussianSpec) -> None:
        self._low, self._half, self._log_half = _low_and_half_width(spec)

    def _split(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        raw, log_stddev = mean_and_log_stddev(parameters, LOG_STDDEV)
        mean: FloatArray = (np.tanh(raw) + np.float32(1.0)) * self._half + self._low
        return mean, log_stddev + self._log_half


class BoundedGaussian(Gaussian):
    """Normal variables with mean low + (tanh m + 1) / 2 (high - low) and σ (high - low) / 2, of parameters m and log σ.

    Actions are float32 [..., n], densities are in the environment's scale.
    """

    _log_stddev_range = LOG_STDDEV

    def __init__(self, spec: BoundedGaussianSpec) -> None:
        self._low, self._half, self._log_half = _low_and_half_width(spec)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """[..., 2 n] -> mean [..., n] and log-deviation [..., n], both in the environment's scale."""
        raw, log_stddev = super()._split(parameters)
        return (ops.tanh(raw) + 1.0) * self._half + self._low, log_stddev + self._log_half


def _low_and_half_width(spec: BoundedGaussianSpec) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower bounds, halves of the distances between bounds, and the logarithms of these, float32 [n]."""
    low, width = low_and_width(spec)
    half = np.float32(0.5) * width
    return low, half, np.log(half)
