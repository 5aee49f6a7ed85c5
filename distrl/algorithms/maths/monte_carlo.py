"""Monte Carlo returns, without a value function: REINFORCE without a baseline learns from them.

Pure functions over arrays [T, N], in `keras.ops`. A row's return is known only if the rest of its episode is in the
unroll. But rows must not be selected by that: near the end of an unroll, the episodes that were *seen* to end are those
that ended soon, and learning from them alone would teach the policy to end soon. So rows are selected by their place:
if episodes have at most M steps, every episode that is running at row t <= T - M ends in the unroll. Selecting by the
place of an episode's beginning is harmless, because the past of a row does not depend on its return.

The steps of an episode are counted from the row after an invalid one, or after a lost life, which terminates without
ending the episode. The step number of row 0 is unknown.
"""

from typing import NamedTuple

import numpy as np
from keras import ops

from distrl.algorithms.maths.returns import gae, step_discounts
from distrl.networks.actions.family import Tensor

UNKNOWN = -1


class Episodes(NamedTuple):
    """Place of each row of unrolls in its episode, and its return.

    Attributes:
        returns: float32 [T, N]. G_t = sum_k gamma^k r_{t+k} up to the end of the episode, also if a time limit ends it.
        begins: int32 [T, N]. Row of the episode's first step; `UNKNOWN` if that is not in the unroll.
        whole: bool [T, N]. Valid rows that certainly have the rest of their episode in the unroll.
        whole_from_first: bool [T, N]. Valid rows of episodes that are certainly in the unroll from the first step to
            the last.
    """

    returns: Tensor
    begins: Tensor
    whole: Tensor
    whole_from_first: Tensor


def episodes(rewards: Tensor, terminated: Tensor, valid: Tensor, *, discount: float, longest_steps: int) -> Episodes:
    """Find the episodes of unrolls.

    Args:
        rewards: float32 [T, N]. 0 where not valid.
        terminated: bool [T, N].
        valid: bool [T, N]. False on the row after an episode's end.
        discount: gamma, from 0 to 1.
        longest_steps: M, the most steps of an episode.
    """
    length = rewards.shape[0]
    rows = np.arange(length, dtype="int32")[:, None]
    nothing = ops.zeros((length + 1, rewards.shape[1]), dtype="float32")
    discounts = step_discounts(terminated, discount)
    returns = gae(values=nothing, rewards=rewards, discounts=discounts, valid=valid, trace_lambda=1.0).advantages
    ended = ops.logical_or(ops.logical_not(valid), terminated)
    first = ops.logical_and(ops.concatenate([ops.zeros_like(valid[:1]), ended[:-1]], axis=0), valid)
    begins = ops.associative_scan(ops.maximum, ops.where(first, rows, UNKNOWN), axis=0)
    # The scan loses the shape on TensorFlow, and the type on Keras' NumPy.
    begins = ops.cast(ops.reshape(begins, tuple(rewards.shape)), "int32")
    last = length - longest_steps
    whole = ops.logical_and(valid, rows <= last)
    known = ops.logical_and(begins != UNKNOWN, begins <= last)
    return Episodes(returns, begins, whole, ops.logical_and(valid, known))


def total_returns(found: Episodes) -> Tensor:
    """Return of the whole episode for each of its steps, float32 [T, N]; undefined where the episode is not whole."""
    return ops.take_along_axis(found.returns, ops.maximum(found.begins, 0), axis=0)


def normalized_by_episode(found: Episodes) -> Tensor:
    """Each return minus the mean of its episode's, divided by their deviation, float32 [T, N]; 0 without deviation.

    This is Coach's definition. Every episode gets the same weight, so the best policy by it need not be the best one.
    """
    length, sequences = found.returns.shape
    columns = np.arange(sequences, dtype="int32")[None, :]
    episode = ops.maximum(found.begins, 0) * sequences + columns  # the first row's place names the episode
    mean = _group_means(found.returns, episode, found.whole_from_first, length * sequences)
    centered = found.returns - mean
    variance = _group_means(ops.square(centered), episode, found.whole_from_first, length * sequences)
    return ops.where(variance > 1e-12, centered / ops.sqrt(ops.maximum(variance, 1e-12)), 0.0)


def less_others_at_timestep(found: Episodes) -> tuple[Tensor, Tensor]:
    """Each return minus the mean over the other episodes at the same step of the episode.

    A mean that includes the return itself would shrink each by 1/n, most at steps that few episodes reach. A baseline
    that does not depend on the action leaves the gradient's expectation unchanged.

    Returns:
        float32 [T, N]; and bool [T, N], the rows of whole episodes for which there are other episodes.
    """
    length = found.returns.shape[0]
    step = ops.where(found.whole_from_first, np.arange(length, dtype="int32")[:, None] - found.begins, 0)
    counted = ops.cast(found.whole_from_first, "float32")
    ones = ops.ones_like(found.returns)
    number = _group_sums(ones, step, counted, length)
    others = (_group_sums(found.returns, step, counted, length) - found.returns) / ops.maximum(number - 1.0, 1.0)
    return found.returns - others, ops.logical_and(found.whole_from_first, number > 1.5)


def _group_sums(values: Tensor, groups: Tensor, weights: Tensor, count: int) -> Tensor:
    """Sum of weighted values over each row's group, [T, N]."""
    flat = ops.reshape(groups, (-1,))  # [T, N] -> [T*N]
    sums = ops.segment_sum(ops.reshape(values * weights, (-1,)), flat, num_segments=count)
    return ops.reshape(ops.take(sums, flat), values.shape)


def _group_means(values: Tensor, groups: Tensor, chosen: Tensor, count: int) -> Tensor:
    weights = ops.cast(chosen, "float32")
    number = _group_sums(ops.ones_like(values), groups, weights, count)
    return _group_sums(values, groups, weights, count) / ops.maximum(number, 1.0)
