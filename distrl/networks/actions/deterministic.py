"""The deterministic family: the network's output is the action itself."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distrl.networks.actions.bounded import BoundedFamily
from distrl.networks.actions.family import Sampler, UndrawnFamily
from distrl.types import Array, FloatArray


@dataclass(frozen=True)
class DeterministicSpec(UndrawnFamily, BoundedFamily):
    """One action per state, within finite bounds, which noise may reach."""

    output: str
    kind: Literal["deterministic"] = "deterministic"
    edge: ClassVar[float] = 0.0
    holds: ClassVar[str] = "one action per state"
    explored_by: ClassVar[str] = "gaussian_noise, ornstein_uhlenbeck or greedy"

    @property
    def parameters_size(self) -> int:
        return len(self.low)

    def sampler(self) -> Sampler:
        return DeterministicSampler(self)


class DeterministicSampler:
    """The output, cut to the bounds, beyond which rounding may have put it by one unit of float32."""

    def __init__(self, spec: DeterministicSpec) -> None:
        self._low, self._high = np.array(spec.low, np.float32), np.array(spec.high, np.float32)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self.mode(parameters), np.zeros(len(parameters), np.float32)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        taken = (actions == self.mode(parameters)).all(axis=1)
        return np.where(taken, np.float32(0.0), np.float32(-np.inf))

    def mode(self, parameters: FloatArray) -> Array:
        return np.minimum(np.maximum(parameters, self._low), self._high)
