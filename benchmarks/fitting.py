"""An environment whose best learning rate falls during a training: name a number that a formula gives."""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray


class Fitting(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Episodes of one step: -4 (a - sin(3 x) cos(2 y))^2 for the action a, where (x, y) is the observation.

    The best policy returns 0, and a = 0 about -0.85. A high learning rate comes near within some thousand steps and
    then wanders about; a low one does not wander, and takes long. Name it as `benchmarks.fitting:Fitting`.
    """

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw an observation, float32 [2]."""
        super().reset(seed=seed, options=options)
        self._point = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self._point.copy(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Return the reward, and end the episode."""
        x, y = map(float, self._point)
        distance = float(action[0]) - math.sin(3.0 * x) * math.cos(2.0 * y)
        return self._point.copy(), -4.0 * distance * distance, True, False, {}
