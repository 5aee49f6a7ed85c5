"""Moments of the discounted return, which normalise rewards; unrolls carry them."""

from dataclasses import replace

import numpy as np

from distrl.actors.acting import PolicyOutput
from distrl.actors.extras.extra import Extra
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import EnvironmentStep
from distrl.types import Array, BoolArray, FloatArray, Unroll


class RewardMoments(Extra):
    """Adds moments of rolling returns ``R_t = discount * R_{t-1} + r_t`` of every environment over its valid steps.

    R begins at 0 in every episode, and after a lost life that terminates. It is the rolling sum of Engstrom et al. 2020
    (arXiv:2005.12729, section 3, reward scaling): a sum over earlier rewards, so that it is known at once, not over
    later ones. With discount 0 it is the reward.

    Args:
        discount: In [0, 1].
        environments: B.
    """

    def __init__(self, discount: float, environments: int) -> None:
        self._discount = discount
        self._running = np.zeros(environments, np.float64)
        self._rows: list[tuple[FloatArray, BoolArray, BoolArray]] = []  # arguments of `moments`, since `begin`

    def reset(self, config: RunConfig, progress: Progress) -> None:
        self._running = np.zeros_like(self._running)
        self._rows = []

    def begin(self, config: RunConfig, progress: Progress) -> None:
        """Begin an unroll; open episodes keep R of the rows that are forgotten."""
        if self._rows:
            self.moments(*map(np.stack, zip(*self._rows, strict=True)))
        self._rows = []

    def add(self, output: PolicyOutput, step: EnvironmentStep) -> None:
        self._rows.append((step.rewards, step.terminated | step.truncated, step.valid))

    def close(self, unroll: Unroll) -> Unroll:
        self._rows = []
        ended = unroll.terminated | unroll.truncated
        return replace(unroll, reward_moments=self.moments(unroll.rewards, ended, unroll.valid))

    def moments(self, rewards: FloatArray, ended: BoolArray, valid: BoolArray) -> dict[str, Array]:
        """Process one unroll; open episodes continue in the next one.

        Args:
            rewards: float32 [T, B].
            ended: bool [T, B]. The step ended the episode, or terminated a life.
            valid: bool [T, B]. Other rows are ignored; they lie between two episodes.

        Returns:
            Moments of R over the valid steps: "count", "mean" and "squares" (squared deviations, summed), float64.
        """
        seen = np.empty(rewards.shape, np.float64)
        for row, reward in enumerate(rewards):
            self._running = self._discount * self._running + reward
            seen[row] = self._running
            self._running = np.where(ended[row] | ~valid[row], 0.0, self._running)
        of_valid = seen[valid]
        mean = of_valid.mean() if of_valid.size else 0.0
        return {
            "count": np.array(of_valid.size, np.float64),
            "mean": np.array(mean, np.float64),
            "squares": np.array(np.square(of_valid - mean).sum(), np.float64),
        }
