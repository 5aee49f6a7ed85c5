"""Stacks of frames of B rows, as the policy sees them."""

from distrl import frames
from distrl.types import Array, BoolArray


class FrameStack:
    """The newest `size` observations of B rows, stacked along the last axis, the newest at its end.

    The first observation of an episode fills the whole stack, as with padding "reset" of gymnasium's
    `FrameStackObservation`. Returned arrays are fresh: they are never written to again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._stacks: Array | None = None

    def reset(self) -> None:
        """Forget everything; the next observations fill their stacks."""
        self._stacks = None

    def push(self, observations: Array, begins: BoolArray) -> Array:
        """Add an observation of every row, [B, ..., C] -> [B, ..., size * C]; episodes begin where `begins`, [B]."""
        if self._stacks is None:
            self._stacks = frames.filled(observations, self._size)
        else:
            self._stacks = frames.advanced(self._stacks, observations, begins, self._size)
        return self._stacks
