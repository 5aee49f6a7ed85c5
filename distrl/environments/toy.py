"""Small environments whose every number can be computed by hand, for tests and for trying distrl out.

Name them as `distrl.environments.toy:Identity` and so on.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from distrl.types import FloatArray


class Identity(gymnasium.Env[np.int64, np.int64]):
    """Reward 1 for repeating the observation, else 0; terminates after `length_steps`.

    The best return is `length_steps`, a random policy's mean is `length_steps / n`.
    """

    def __init__(self, n: int = 4, length_steps: int = 8) -> None:
        self.observation_space = Discrete(n)
        self.action_space = Discrete(n)
        self.reward_threshold = 0.95 * length_steps
        self._n = n
        self._length_steps = length_steps
        self._steps = 0
        self._shown = np.int64(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Shows the first symbol."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Pays for the symbol shown before, and shows the next."""
        reward = float(action == self._shown)
        self._steps += 1
        return self._show(), reward, self._steps >= self._length_steps, False, {}

    def _show(self) -> np.int64:
        self._shown = self.np_random.integers(self._n)
        return self._shown


class StepCounter(gymnasium.Env[FloatArray, np.int64]):
    """Observes its own step counter, float32 [1]: 0 at reset, t after t steps; step t pays t. Actions change nothing.

    An episode ends at `terminate_at_steps`, at `truncate_at_steps`, or with both flags where they are equal.
    """

    def __init__(self, terminate_at_steps: int | None = 5, truncate_at_steps: int | None = None) -> None:
        self.observation_space = Box(0.0, np.inf, (1,), np.float32)
        self.action_space = Discrete(2)
        self.max_episode_steps = truncate_at_steps
        self._terminate_at_steps = terminate_at_steps
        self._truncate_at_steps = truncate_at_steps
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Counts from 0 again."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Counts one step."""
        self._steps += 1
        terminated = self._steps == self._terminate_at_steps
        truncated = self._steps == self._truncate_at_steps
        return np.full(1, self._steps, np.float32), float(self._steps), terminated, truncated, {}


class Bandit(gymnasium.Env[FloatArray, np.int64]):
    """Episodes of one step: arm i pays 1 with probability `means[i]`, else 0. The observation is always [0]."""

    def __init__(self, means: Sequence[float] = (0.1, 0.5, 0.9)) -> None:
        self.observation_space = Box(0.0, 0.0, (1,), np.float32)
        self.action_space = Discrete(len(means))
        self.max_episode_steps = 1
        self._means = tuple(means)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Offers the arms."""
        super().reset(seed=seed, options=options)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Pulls one arm; the episode terminates."""
        reward = float(self.np_random.random() < self._means[action])
        return np.zeros(1, np.float32), reward, True, False, {}
