"""Returns as they were paid, without any value function: what REINFORCE learns from where it has no baseline.

Pure functions over arrays [T, N], in `keras.ops`. A row's return is known only if the rest of its episode is in the
unroll, and rows must not be chosen by whether it is: near the end of an unroll those that were *seen* to end are the
ones that ended soon, and learning from them alone would teach to end soon. So rows are chosen by their place: with at
most M steps in an episode, every episode that goes on at row t <= T - M ends in the unroll, however it goes on. An
episode's beginning, where it is asked for, lies in the past of its rows, and which row it was says nothing of what they
lead to.

The steps of an episode are counted from the row after an invalid one, or after a termination that ends none (a lost
life). Which step row 0 is, is not known.
"""

from typing import NamedTuple

import numpy as np
from keras import ops

from distrl.algorithms.maths.returns import gae, step_discounts
from distrl.networks.actions.family import Tensor

UNKNOWN = -1


class Episodes(NamedTuple):
    """Where the rows of unrolls are in their episodes, and what is paid from there on.

    Attributes:
        returns: float32 [T, N]. G_t = sum_k gamma^k r_{t+k} up to the end of the episode, be it a time limit.
        begins: int32 [T, N]. Row of the episode's first step; `UNKNOWN` where that is not in the unroll.
        whole: bool [T, N]. Valid rows that certainly have the rest of their episode in the unroll.
        whole_from_first: bool [T, N]. Valid rows of episodes that are certainly in the unroll from the first step to
            the last.
    """

    returns: Tensor
    begins: Tensor
    whole: Tensor
    whole_from_first: Tensor


def episodes(rewards: Tensor, terminated: Tensor, valid: Tensor, *, discount: float, longest_steps: int) -> Episodes:
    """Finds the episodes of unrolls.

    Args:
        rewards: float32 [T, N]. 0 where not valid.
        terminated: bool [T, N].
        valid: bool [T, N]. False on the row after an episode's end.
        discount: gamma, from 0 to 1.
        longest_steps: M, steps that no episode exceeds.
    """
    length = rewards.shape[0]
    rows = np.arange(length, dtype="int32")[:, None]
    nothing = ops.zeros((length + 1, rewards.shape[1]), dtype="float32")
    discounts = step_discounts(terminated, discount)
    returns = gae(values=nothing, rewards=rewards, discounts=discounts, valid=valid, trace_lambda=1.0).advantages
    ended = ops.logical_or(ops.logical_not(valid), terminated)
    first = ops.logical_and(ops.concatenate([ops.zeros_like(valid[:1]), ended[:-1]], axis=0), valid)
    begins = ops.associative_scan(ops.maximum, ops.where(first, rows, UNKNOWN), axis=0)
    # TensorFlow forgets the shape on the way, Keras' NumPy the type.
    begins = ops.cast(ops.reshape(begins, tuple(rewards.shape)), "int32")
    last = length - longest_steps
    whole = ops.logical_and(valid, rows <= last)
    known = ops.logical_and(begins != UNKNOWN, begins <= last)
    return Episodes(returns, begins, whole, ops.logical_and(valid, known))


def total_returns(found: Episodes) -> Tensor:
    """float32 [T, N]. The return of the whole episode, for each of its steps; without meaning where it is not whole."""
    return ops.take_along_axis(found.returns, ops.maximum(found.begins, 0), axis=0)


def normalized_by_episode(found: Episodes) -> Tensor:
    """float32 [T, N]. Each return less the mean of its episode's, divided by their deviation; 0 where there is none.

    As Coach does. Every episode has the same weight then, and the policy that is best by it need not be the best one.
    """
    length, sequences = found.returns.shape
    columns = np.arange(sequences, dtype="int32")[None, :]
    episode = ops.maximum(found.begins, 0) * sequences + columns  # the first row's place names the episode
    mean = _group_means(found.returns, episode, found.whole_from_first, length * sequences)
    centered = found.returns - mean
    variance = _group_means(ops.square(centered), episode, found.whole_from_first, length * sequences)
    return ops.where(variance > 1e-12, centered / ops.sqrt(ops.maximum(variance, 1e-12)), 0.0)


def less_others_at_timestep(found: Episodes) -> tuple[Tensor, Tensor]:
    """Each return less the mean of the other episodes' at the same step of the episode.

    Of the others alone: a mean with the return itself in it would shrink each by 1/n, most where few episodes get to.
    A baseline that does not know the action leaves the gradient's expectation as it is.

    Returns:
        float32 [T, N]; and bool [T, N], the rows of whole episodes that there are others for.
    """
    length = found.returns.shape[0]
    step = ops.where(found.whole_from_first, np.arange(length, dtype="int32")[:, None] - found.begins, 0)
    counted = ops.cast(found.whole_from_first, "float32")
    ones = ops.ones_like(found.returns)
    number = _group_sums(ones, step, counted, length)
    others = (_group_sums(found.returns, step, counted, length) - found.returns) / ops.maximum(number - 1.0, 1.0)
    return found.returns - others, ops.logical_and(found.whole_from_first, number > 1.5)


def _group_sums(values: Tensor, groups: Tensor, weights: Tensor, count: int) -> Tensor:
    """[T, N]: each row's group's sum of weighted values."""
    flat = ops.reshape(groups, (-1,))  # [T, N] -> [T*N]
    sums = ops.segment_sum(ops.reshape(values * weights, (-1,)), flat, num_segments=count)
    return ops.reshape(ops.take(sums, flat), values.shape)


def _group_means(values: Tensor, groups: Tensor, chosen: Tensor, count: int) -> Tensor:
    weights = ops.cast(chosen, "float32")
    number = _group_sums(ops.ones_like(values), groups, weights, count)
    return _group_sums(values, groups, weights, count) / ops.maximum(number, 1.0)
