"""An environment with a level that a curriculum changes; named as `tests.faults.leveled:Leveled`."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from tests.waiting import lasts


class Leveled(gymnasium.Env[Any, Any]):
    """Observes its level, float32 [1]. Every step pays 1, every episode succeeds.

    Args:
        level: Levels above `highest` are refused; the attribute may change between episodes and never within one.
        length_steps: Length of an episode.
        step_s: Duration of a step.
        log: File to which every episode adds "process level"; "": none.
    """

    def __init__(
        self, level: int = 0, length_steps: int = 4, step_s: float = 0.0, log: str = "", highest: int = 9
    ) -> None:
        self.observation_space = Box(0.0, 100.0, (1,), np.float32)
        self.action_space = Discrete(2)
        self.highest = highest
        self._level = self._begun_with = level
        self._length_steps, self._step_s, self._log = length_steps, step_s, log
        self._steps = 0

    @property
    def level(self) -> int:
        return self._level

    @level.setter
    def level(self, value: int) -> None:
        if value > self.highest:
            raise ValueError(f"level {value} is above {self.highest}")
        self._level = value

    @property
    def length_steps(self) -> int:
        return self._length_steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps, self._begun_with = 0, self._level
        if self._log:
            with Path(self._log).open("a") as file:
                file.write(f"{os.getpid()} {self._level}\n")
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._level != self._begun_with:
            raise RuntimeError(f"the level changed within an episode, from {self._begun_with} to {self._level}")
        lasts(self._step_s)
        self._steps += 1
        ended = self._steps >= self._length_steps
        return self._show(), 1.0, ended, False, {"is_success": True, "reached": float(self._level)}

    def _show(self) -> Any:
        return np.array([self._level], np.float32)


class Growing(Leveled):
    """Its observations have as many numbers as the level says, which the declared space does not allow to change."""

    def __init__(self, level: int = 1) -> None:
        super().__init__(level)

    def _show(self) -> Any:
        return np.zeros(self.level, np.float32)
