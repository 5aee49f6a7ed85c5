"""Transitions over several steps, computed once when an unroll enters the replay memory."""

from typing import NamedTuple

import numpy as np

from distrl.types import BoolArray, FloatArray, IntArray


class NStepTransitions(NamedTuple):
    """Transitions from every row of an unroll over k steps; each [T, B], undefined where the row is not valid.

    Attributes:
        rewards: float32. sum over i < k of discount^i r_{t+i}.
        terminated: bool. The episode terminated within the k steps: no value beyond them.
        truncated: bool. It hit a limit within them: the value beyond is that of its true final observation.
        bootstrap_steps: int32. k; the bootstrap observation is in row t + k, at most row T.
    """

    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    bootstrap_steps: IntArray


def n_step_transitions(
    rewards: FloatArray,
    terminated: BoolArray,
    truncated: BoolArray,
    valid: BoolArray,
    *,
    discount: float,
    steps: int,
) -> NStepTransitions:
    """Sum the first `steps` rewards after every row, discounted (Sutton and Barto 2018, equation 7.1, without V).

    There are fewer rewards if the episode or the unroll ends before. The row after an episode's end holds its true
    final observation, so a truncated row bootstraps from the next row like any other.

    Args:
        rewards: float32 [T, B].
        terminated, truncated, valid: bool [T, B].
        discount: gamma, from 0 to 1.
        steps: n, at least 1.
    """
    length = len(rewards)
    ends = terminated | truncated
    ends[:-1] |= ~valid[1:]  # an episode also ends before an invalid row
    going = valid.copy()
    sums = np.zeros(rewards.shape, np.float64)
    counts = np.zeros(rewards.shape, np.int32)
    terminates, truncates = np.zeros_like(going), np.zeros_like(going)
    for ahead in range(min(steps, length)):
        rows, then = slice(0, length - ahead), slice(ahead, length)
        going = going[rows]  # the others have reached the unroll's end
        sums[rows] += np.where(going, discount**ahead * rewards[then].astype(np.float64), 0.0)
        counts[rows] += going
        terminates[rows] |= going & terminated[then]
        truncates[rows] |= going & truncated[then]
        going = going & ~ends[then]
    return NStepTransitions(sums.astype(np.float32), terminates, truncates, counts)
