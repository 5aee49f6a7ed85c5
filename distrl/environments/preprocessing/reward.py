"""Steps for rewards: float32 [B] in, float32 [B] out. Episode returns are counted before them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from distrl.config.observation_steps import ClipStep, ScaleStep
from distrl.config.preprocessing import EwmaBaselineStep
from distrl.environments.preprocessing.fit import factor, finite
from distrl.types import BoolArray, FloatArray

RewardFunction = Callable[[FloatArray, BoolArray], FloatArray]
"""Rewards [B] and where they are valid -> rewards [B]."""


def clip(step: ClipStep) -> RewardFunction:
    """Cut to the limits; 0 is a limit like any other."""
    low, high = (None if limit is None else finite(limit, "float32") for limit in (step.low, step.high))
    return lambda rewards, valid: np.clip(rewards, low, high).astype(np.float32)


def scale(step: ScaleStep) -> RewardFunction:
    """Multiply or divide."""
    if step.multiply is not None:
        multiplier = factor(step.multiply, "float32")
        return lambda rewards, valid: np.multiply(rewards, multiplier, dtype=np.float32)
    assert step.divide is not None  # the step's own check
    divisor = factor(step.divide, "float32")
    return lambda rewards, valid: np.divide(rewards, divisor, dtype=np.float32)


class EwmaBaseline:
    """``average += alpha (reward - average)``, then ``reward - average``; the first reward is the first average.

    One average for each of B environments, in float64. Rows that are not valid leave it as it is.
    """

    def __init__(self, step: EwmaBaselineStep) -> None:
        self._alpha = step.alpha
        self._average: NDArray[np.float64] | None = None

    def reset(self) -> None:
        self._average = None

    def __call__(self, rewards: FloatArray, valid: BoolArray) -> FloatArray:
        if self._average is None:
            self._average = np.full(len(rewards), np.nan)
        moved = self._average + self._alpha * (rewards - self._average)
        moved = np.where(np.isnan(self._average), rewards, moved)
        self._average = np.where(valid, moved, self._average)
        return np.where(valid, rewards - self._average, 0.0).astype(np.float32)
