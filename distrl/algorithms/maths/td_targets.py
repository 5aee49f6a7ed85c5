"""Targets of action values: pure functions in `keras.ops`.

If several choices are made at once, each has its own values, and all share one target: the branching Q-network of
Tavakoli, Pardo and Kormushev 2018 (arXiv:1711.08946, section "Temporal-difference target").
"""

from collections.abc import Sequence

import numpy as np
from keras import ops

from distrl.config.algorithms.q_learning import RESCALING
from distrl.config.replay import SHARE_OF_GREATEST
from distrl.networks.actions.family import Tensor
from distrl.types import FloatArray


def chosen_values(values: Tensor, choices: Tensor) -> Tensor:
    """Q(s, a) of the choice that was made.

    Args:
        values: float32 [..., A].
        choices: int32 [...], 0 … A - 1.

    Returns:
        float32 [...].
    """
    # A one-hot product differentiates to dense arithmetic; a gather's gradient is a scatter, which is slower.
    return ops.sum(values * ops.one_hot(choices, values.shape[-1], dtype="float32"), axis=-1)


def greedy_values(values: Tensor, choosing: Tensor | None = None) -> Tensor:
    """Return the value of the best choice: max_a Q(s, a) (Mnih et al. 2015, algorithm 1).

    Args:
        values: float32 [..., A]. Values of the target network.
        choosing: float32 [..., A]. Values that select the best choice. With the online network's this is double
            Q-learning, Q(s, argmax_a Q_online(s, a)) (van Hasselt et al. 2016, equation 4). None: `values`.

    Returns:
        float32 [...].
    """
    return ops.max(values, axis=-1) if choosing is None else chosen_values(values, ops.argmax(choosing, axis=-1))


def greedy_distributions(distributions: Tensor, choosing: Tensor) -> Tensor:
    """Return the distribution of the best choice (Bellemare, Dabney and Munos 2017, algorithm 1).

    Args:
        distributions: float32 [..., A, K]. Of the target network.
        choosing: float32 [..., A]. Expected returns that select the best choice, as in `greedy_values`.

    Returns:
        float32 [..., K].
    """
    return chosen_distributions(distributions, ops.argmax(choosing, axis=-1))


def chosen_distributions(distributions: Tensor, choices: Tensor) -> Tensor:
    """Return the distribution of the choice that was made.

    Args:
        distributions: float32 [..., A, K].
        choices: int32 [...], 0 … A - 1.

    Returns:
        float32 [..., K].
    """
    made = ops.one_hot(choices, distributions.shape[-2], dtype="float32")
    return ops.sum(distributions * ops.expand_dims(made, -1), axis=-2)


def projected(probabilities: Tensor, support: FloatArray, rewards: Tensor, discounts: Tensor) -> Tensor:
    """Project the distribution of r + gamma^k Z onto the atoms of Z (Bellemare, Dabney and Munos 2017, equation 7).

    Each atom moves to r + gamma^k z, cut to the outer atoms, and its probability goes to both neighbours by distance.

    Args:
        probabilities: float32 [..., K]. Of the returns after the next state.
        support: float32 [K]. z, evenly spaced.
        rewards: float32 [...].
        discounts: float32 [...]. gamma^k, and 0 where the episode terminated.

    Returns:
        float32 [..., K], constant to the gradient.
    """
    low, high = float(support[0]), float(support[-1])
    moved = ops.expand_dims(rewards, -1) + ops.expand_dims(discounts, -1) * support
    distances = ops.expand_dims(ops.clip(moved, low, high), -2) - support[:, np.newaxis]  # [..., to, from]
    shares = ops.maximum(1.0 - ops.abs(distances) * ((len(support) - 1) / (high - low)), 0.0)
    return ops.stop_gradient(ops.sum(shares * ops.expand_dims(probabilities, -2), axis=-1))


def rescaled(values: Tensor) -> Tensor:
    """``h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x`` (Pohlen et al. 2018, arXiv:1805.11593, proposition A.2).

    Args:
        values: float32 [...].

    Returns:
        float32 [...].
    """
    return ops.sign(values) * (ops.sqrt(ops.abs(values) + 1.0) - 1.0) + RESCALING * values


def unscaled(values: Tensor) -> Tensor:
    """Return the inverse of `rescaled`, ``sign(x) (((sqrt(1 + 4 e (|x| + 1 + e)) - 1) / 2 e)^2 - 1)``.

    The difference of nearly equal numbers is written as a quotient, which float32 bears.
    """
    size = ops.abs(values)
    inner = 4.0 * RESCALING * (size + 1.0 + RESCALING)
    root = inner / (2.0 * RESCALING * (ops.sqrt(1.0 + inner) + 1.0))
    return ops.sign(values) * (ops.square(root) - 1.0)


def action_gaps(values: Tensor, choices: Tensor) -> Tensor:
    """Return how far the choice made lies below the best one: V(s) - Q(s, a), V(s) = max_a Q(s, a).

    Args:
        values: float32 [..., A].
        choices: int32 [...], 0 … A - 1.

    Returns:
        float32 [...], at least 0.
    """
    return ops.max(values, axis=-1) - chosen_values(values, choices)


def repeated_gaps(values: Tensor, choices: Tensor, terminated: Tensor) -> Tensor:
    """Return the smaller of two gaps of the choice made: now, and if it were repeated in the next state.

    A target less alpha times this gap is that of persistent advantage learning (Bellemare et al. 2016,
    arXiv:1512.04860, section 3.2) with alpha for both gaps, as in Coach. The paper has the discount for the second one.

    Args:
        values: float32 [T+1, N, A].
        choices: int32 [T, N].
        terminated: bool [T, N]. Nothing follows, and the gap of nothing is 0.

    Returns:
        float32 [T, N], at least 0.
    """
    following = ops.where(terminated, 0.0, action_gaps(values[1:], choices))
    return ops.minimum(action_gaps(values[:-1], choices), following)


def mean_over_choices(per_choice: Sequence[Tensor]) -> Tensor:
    """Mean over K simultaneous choices.

    The mean of values is the shared target (Tavakoli et al. 2018, equation 6). The mean of each choice's loss is the
    loss of the item (equation 7): errors of +1 and -1 have a mean square of 1, not 0.

    Args:
        per_choice: K tensors, float32 [...].

    Returns:
        float32 [...].
    """
    return per_choice[0] if len(per_choice) == 1 else ops.mean(ops.stack(list(per_choice), axis=-1), axis=-1)


def item_priorities(errors: Tensor, valid: Tensor) -> Tensor:
    """eta max |error| + (1 - eta) mean |error| over the valid steps of each item, eta = .9 (Kapturowski et al. 2019).

    Of a transition it is the size of its only error.

    Args:
        errors: float32 [T, N]. Sizes, at least 0.
        valid: bool [T, N].

    Returns:
        float32 [N]; 0 where no step is valid.
    """
    known = ops.where(valid, errors, 0.0)
    mean = ops.sum(known, axis=0) / ops.maximum(ops.sum(ops.cast(valid, "float32"), axis=0), 1.0)
    return mean + SHARE_OF_GREATEST * (ops.max(known, axis=0) - mean)
