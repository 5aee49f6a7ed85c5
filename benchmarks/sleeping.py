"""An environment that only sleeps, so that the rest of a step's time is distrl's."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

EPISODE_STEPS = 100


class Sleeping(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Every step sleeps; episodes have 100 steps. Name it as `benchmarks.sleeping:Sleeping`.

    Args:
        step_s: Seconds of a step.
        features: Number of elements of an observation, all of them 0.
    """

    def __init__(self, step_s: float = 0.01, features: int = 8) -> None:
        self.observation_space = Box(-1.0, 1.0, (features,), np.float32)
        self.action_space = Discrete(2)
        self._step_s = step_s
        self._seen = np.zeros(features, np.float32)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode without sleeping."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._seen, {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Return after `step_s` seconds."""
        time.sleep(self._step_s)
        self._steps += 1
        return self._seen, float(action), self._steps >= EPISODE_STEPS, False, {}
