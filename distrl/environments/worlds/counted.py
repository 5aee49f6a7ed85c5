"""The frame of an environment that counts its steps."""

from abc import ABC, abstractmethod
from typing import Any

import gymnasium


class CountedEnv(gymnasium.Env[Any, Any], ABC):
    """Episodes of `_length_steps` steps, after which they terminate; a subclass shows observations and pays rewards."""

    _steps = 0
    _length_steps: int

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._start(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self._pay(action)
        self._steps += 1
        terminated, truncated = self._ends()
        return self._show(), reward, terminated, truncated, {}

    def _start(self) -> Any:
        """Begin an episode and return its first observation."""
        return self._show()

    @abstractmethod
    def _show(self) -> Any:
        """Return the observation after the steps so far."""

    @abstractmethod
    def _pay(self, action: Any) -> float:
        """Return the reward of an action, before the step is counted."""

    def _ends(self) -> tuple[bool, bool]:
        """Return (terminated, truncated) after a step."""
        return self._steps >= self._length_steps, False
