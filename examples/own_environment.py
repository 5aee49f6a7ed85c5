"""Your own environment: catch a falling ball.

    distrl train --preset cartpole-impala --env examples.own_environment:Catch --set algorithm.reward_scale=1

Any `gymnasium.Env` works, and needs nothing of distrl. Put yours into the working directory or on PYTHONPATH: every
actor imports it.
"""

import gymnasium
import numpy as np


class Catch(gymnasium.Env):
    """A ball falls through a field of rows and columns, and a paddle moves along the lowest row.

    An observation is the ball's column, its row and the paddle's column, each from 0 to 1. Actions are left, stay and
    right. The reward is 1 for a ball that is caught and -1 for one that is lost, at the end of the episode.
    """

    reward_threshold = 0.95

    def __init__(self, rows: int = 10, columns: int = 7) -> None:
        self.rows, self.columns = rows, columns
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.paddle = 0, self.columns // 2
        self.column = int(self.np_random.integers(self.columns))
        return self._observation(), {}

    def step(self, action):
        self.row += 1
        self.paddle = min(max(self.paddle + int(action) - 1, 0), self.columns - 1)
        terminated = self.row == self.rows - 1
        reward = (1.0 if self.paddle == self.column else -1.0) if terminated else 0.0
        return self._observation(), reward, terminated, False, {}

    def picture(self) -> str:
        """Return the field as text."""
        field = [["."] * self.columns for _ in range(self.rows)]
        field[-1][self.paddle] = "="
        field[self.row][self.column] = "o"
        return "\n".join(map("".join, field))

    def _observation(self):
        place = (self.column / (self.columns - 1), self.row / (self.rows - 1), self.paddle / (self.columns - 1))
        return np.array(place, np.float32)
