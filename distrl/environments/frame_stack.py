"""Frame stacks of B environments, as the policy sees them."""

from distrl import frames
from distrl.types import Array, BoolArray


class FrameStack:
    """The newest observations of B environments, stacked along the last axis, the newest at its end.

    The first observation of an episode fills the whole stack, as with padding "reset" of gymnasium's
    `FrameStackObservation`. Returned arrays are fresh: they are never written to again.

    Args:
        size: n, how many observations.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def reset(self, observations: Array) -> Array:
        """Begins an episode in every environment: [B, ..., C] -> [B, ..., n * C]."""
        self._stacks = frames.filled(observations, self._size)
        return self._stacks

    def push(self, observations: Array, begins: BoolArray) -> Array:
        """Adds one observation of every environment.

        Args:
            observations: [B, ..., C].
            begins: bool [B]. Where it is the first of a new episode.

        Returns:
            [B, ..., n * C].
        """
        self._stacks = frames.advanced(self._stacks, observations, begins, self._size)
        return self._stacks
