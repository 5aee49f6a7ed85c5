"""Moments of the discounted return, by which rewards are normalised; unrolls carry them."""

import numpy as np

from distrl.types import Array, BoolArray, FloatArray


class DiscountedReturns:
    """``R_t = discount * R_{t-1} + r_t`` of every environment over its valid steps, from 0 in every episode; a lost
    life that terminates counts as an end here, as no value reaches beyond it.

    The rolling sum of Engstrom et al. 2020 (arXiv:2005.12729, section 3, reward scaling): not the return that follows a
    step but of what led to it, so that it is known at once. With discount 0 it is the reward.

    Args:
        discount: In [0, 1].
        environments: B.
    """

    def __init__(self, discount: float, environments: int) -> None:
        self._discount = discount
        self._environments = environments
        self.reset()

    def reset(self) -> None:
        """Every environment is at an episode's start."""
        self._running = np.zeros(self._environments, np.float64)

    def moments(self, rewards: FloatArray, ended: BoolArray, valid: BoolArray) -> dict[str, Array]:
        """Goes through one unroll; open episodes are carried on into the next.

        Args:
            rewards: float32 [T, B].
            ended: bool [T, B]. The step ended the episode, or a life that counts as one.
            valid: bool [T, B]. Other rows count for nothing.

        Returns:
            Of R over the valid steps: "count", "mean" and "squares" (sum of squared deviations from the mean), float64.
        """
        seen = np.empty(rewards.shape, np.float64)
        for row, reward in enumerate(rewards):
            self._running = np.where(valid[row], self._discount * self._running + reward, self._running)
            seen[row] = self._running
            self._running = np.where(ended[row], 0.0, self._running)
        of_valid = seen[valid]
        mean = of_valid.mean() if of_valid.size else 0.0
        return {
            "count": np.array(of_valid.size, np.float64),
            "mean": np.array(mean, np.float64),
            "squares": np.array(np.square(of_valid - mean).sum(), np.float64),
        }
