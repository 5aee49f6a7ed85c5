"""Repetition of actions: one decision lasts several steps of the environment."""

from typing import Any, SupportsFloat

import gymnasium


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action, adds the rewards, and shows the last observation and info; an episode's end ends that.

    Args:
        times: Steps of the environment for each action.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], times: int) -> None:
        super().__init__(environment)
        self._times = times

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info
