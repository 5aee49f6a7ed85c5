"""Stacks of frames of B rows, as the policy sees them."""

from distrl import frames
from distrl.types import Array, BoolArray


class FrameStack:
    """The newest observations of B rows, stacked along the last axis, the newest at its end.

    The first observation of an episode fills the whole stack, as with padding "reset" of gymnasium's
    `FrameStackObservation`. Returned arrays are fresh: they are never written to again.

    Args:
        size: n.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def reset(self, observations: Array) -> Array:
        """Begin an episode in every row: [B, ..., C] -> [B, ..., n * C]."""
        self._stacks = frames.filled(observations, self._size)
        return self._stacks

    def push(self, observations: Array, begins: BoolArray) -> Array:
        """Add one observation of every row.

        Args:
            observations: [B, ..., C].
            begins: bool [B]. Where it is the first of a new episode.

        Returns:
            [B, ..., n * C].
        """
        self._stacks = frames.advanced(self._stacks, observations, begins, self._size)
        return self._stacks
