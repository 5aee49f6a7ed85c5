"""Base of the families with finite bounds, and the scale between fractions of the bounds' width and actions."""

import operator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distrl.networks.actions.family import UNIT_EDGE, ActionFamily, Tensor, ops
from distrl.types import ActionSpec, Array, BoxSpec, FloatArray


@dataclass(frozen=True)
class BoundedFamily(ActionFamily):
    """Two parameters for each number of the action, and its bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    edge: ClassVar[float] = UNIT_EDGE

    @property
    def parameters_size(self) -> int:
        return 2 * len(self.low)

    def fits(self, action: ActionSpec) -> bool:
        ordered = len(self.low) == len(self.high) and all(map(operator.lt, self.low, self.high))
        return ordered and isinstance(action, BoxSpec) and len(self.low) == action.n


def low_and_width(spec: BoundedFamily) -> tuple[FloatArray, FloatArray]:
    """Lower bounds and distances between bounds, float32 [n]; rounded here once, so that both sides scale alike."""
    low = np.array(spec.low, np.float64)
    return low.astype(np.float32), (np.array(spec.high, np.float64) - low).astype(np.float32)


def scaled(fraction: Array, low: FloatArray, width: FloatArray) -> Array:
    """Fractions of the width between the bounds -> actions, `UNIT_EDGE` inside the bounds."""
    return np.minimum(np.maximum(fraction, UNIT_EDGE), 1.0 - UNIT_EDGE) * width + low


def fraction_of(actions: Array, low: FloatArray, width: FloatArray) -> Array:
    """The inverse of `scaled`. Clips too: where bounds are far from 0, rounding may have put the action on them."""
    fraction: Array = (actions - low) / width
    return np.minimum(np.maximum(fraction, UNIT_EDGE), 1.0 - UNIT_EDGE)


def tensor_scaled(fraction: Tensor, low: FloatArray, width: FloatArray) -> Tensor:
    """`scaled` in `keras.ops`."""
    return ops.clip(fraction, UNIT_EDGE, 1.0 - UNIT_EDGE) * width + low


def tensor_fraction_of(actions: Tensor, low: FloatArray, width: FloatArray) -> Tensor:
    """`fraction_of` in `keras.ops`."""
    return ops.clip((actions - low) / width, UNIT_EDGE, 1.0 - UNIT_EDGE)
