"""Rewards of goals, by which the learner pays a transition for another goal without the environment."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrl.config.hindsight import (
    DistanceRewardParameters,
    HindsightParameters,
    InverseDistanceRewardParameters,
    OwnRewardParameters,
)
from distrl.errors import ConfigError
from distrl.types import Array, FloatArray
from distrl.user_classes import own_class

GoalReward = Callable[[Array, Array], FloatArray]
"""(achieved, desired), [N, ...] each -> float32 [N]."""


def distances(achieved: Array, desired: Array) -> NDArray[np.float64]:
    """Return the Euclidean distances of goals.

    Args:
        achieved, desired: [N, ...] of any numbers; bytes are not subtracted as bytes.

    Returns:
        float64 [N].
    """
    apart = achieved.astype(np.float64) - desired.astype(np.float64)
    found: NDArray[np.float64] = np.sqrt(np.square(apart).sum(axis=tuple(range(1, apart.ndim))))
    return found


def goal_reward(parameters: HindsightParameters) -> GoalReward:
    """Return the reward that `parameters.reward` describes.

    Raises:
        ConfigError: It is a function that cannot be imported; later, that it fails or returns no N finite numbers.
    """
    reward, tolerance = parameters.reward, parameters.tolerance
    if isinstance(reward, OwnRewardParameters):
        return _own(reward.function)
    if isinstance(reward, DistanceRewardParameters):
        return lambda achieved, desired: -distances(achieved, desired).astype(np.float32)
    if isinstance(reward, InverseDistanceRewardParameters):
        least = 1.0 / reward.max_reward  # nearer, the reward is at its bound
        return lambda achieved, desired: (1.0 / np.maximum(distances(achieved, desired), least)).astype(np.float32)
    reached, otherwise = np.float32(reward.reached), np.float32(reward.otherwise)
    return lambda achieved, desired: np.where(distances(achieved, desired) <= tolerance, reached, otherwise)


def _own(path: str) -> GoalReward:
    what = "algorithm.replay.hindsight.reward.function"
    function: Any = own_class(path, what)
    if not callable(function):
        raise ConfigError(f"{what} {path} is a {type(function).__name__}, not a function")

    def reward(achieved: Array, desired: Array) -> FloatArray:
        try:
            rewards = np.asarray(function(achieved, desired), np.float32)
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
            raise ConfigError(f"{what} {path} failed for goals {list(achieved.shape)}: {reason}") from error
        if rewards.shape != (len(achieved),) or not np.isfinite(rewards).all():
            wrong = (
                f"shape {list(rewards.shape)}" if rewards.shape != (len(achieved),) else "numbers that are not finite"
            )
            raise ConfigError(
                f"{what} {path} returned {wrong}, not a number for each of {len(achieved)} pairs of goals"
            )
        return rewards

    return reward
