"""Steps for rewards: float32 [B] in, float32 [B] out. Episode returns are counted before them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from distrl.config.preprocessing import EwmaBaselineStep
from distrl.types import BoolArray, FloatArray

RewardFunction = Callable[[FloatArray, BoolArray], FloatArray]
"""Rewards [B] and where they are valid -> rewards [B]."""


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
