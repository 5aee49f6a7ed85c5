"""The deterministic family: the network's output is the action itself."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distrl.networks.actions.bounded import BoundedFamily
from distrl.networks.actions.family import ActionSampler, ModeSampler, UndrawnFamily
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

    def sampler(self) -> ActionSampler:
        return DeterministicSampler(self)


class DeterministicSampler(ModeSampler):
    """The output, cut to the bounds, beyond which rounding may have put it by one unit of float32."""

    def __init__(self, spec: DeterministicSpec) -> None:
        self._low, self._high = np.array(spec.low, np.float32), np.array(spec.high, np.float32)

    def mode(self, parameters: FloatArray) -> Array:
        return np.minimum(np.maximum(parameters, self._low), self._high)
