"""KeyAndDoor: a room whose only reward needs a key from the far corner first, which random steps do not find."""

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from distrl.environments.worlds import counted

MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))


class KeyAndDoor(counted.CountedEnv):
    """Fetch the key, then open the door: that step pays 1 and terminates; every other one pays 0.

    A room of `size` x `size` fields. The agent starts in the corner (0, 0), and the key lies in the opposite one,
    (size - 1, size - 1). The door is in the corner (0, size - 1); without the key that is a field like any other.
    Actions are 0 up, 1 right, 2 down, 3 left; a step into a wall stays. The world is deterministic.

    Observed are x / (size - 1), y / (size - 1) and 1 with the key, else 0: float32 [3].

    Solution: ``3 (size - 1)`` steps, which return 1. Of random episodes at the default size and limit 3 in a million
    gets there.

    Args:
        max_episode_steps: Limit of an episode, which truncates it.
    """

    def __init__(self, size: int = 10, max_episode_steps: int = 50) -> None:
        if size < 2:
            raise ValueError(f"size: {size} has no corners that differ; it must be at least 2")
        if max_episode_steps < 3 * (size - 1):
            raise ValueError(
                f"max_episode_steps: {max_episode_steps} steps do not suffice; the shortest way has {3 * (size - 1)}"
            )
        self.observation_space = Box(0.0, 1.0, (3,), np.float32)
        self.action_space = Discrete(4)
        self.reward_threshold = 0.95
        self.max_episode_steps = max_episode_steps
        self._last = size - 1
        self._x = self._y = 0
        self._has_key = False

    def _start(self) -> NDArray[np.float32]:
        self._x = self._y = 0
        self._has_key = False
        return self._show()

    def _show(self) -> NDArray[np.float32]:
        return np.array([self._x / self._last, self._y / self._last, self._has_key], np.float32)

    def _pay(self, action: np.int64) -> float:
        right, up = MOVES[int(action)]
        self._x = min(max(self._x + right, 0), self._last)
        self._y = min(max(self._y + up, 0), self._last)
        self._has_key = self._has_key or (self._x, self._y) == (self._last, self._last)
        return float(self._is_through)

    def _ends(self) -> tuple[bool, bool]:
        return self._is_through, self._steps >= self.max_episode_steps

    @property
    def _is_through(self) -> bool:
        return self._has_key and (self._x, self._y) == (0, self._last)
