"""Losses of heads: pure functions in `keras.ops`, elementwise or over the last axes, without means over the batch.

Arguments and results are float32 [...], all of one shape, unless a docstring says otherwise. Algorithms share these
functions. They stop no gradient; the caller decides which arguments are constants.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from keras import ops

from distrl.networks.actions.family import Tensor
from distrl.types import FloatArray

Regression: TypeAlias = Callable[[Tensor], Tensor]
"""Elementwise function from errors to losses: `squared_error` or `huber`."""


def squared_error(errors: Tensor) -> Tensor:
    """Half the squared error, ``e^2 / 2``: with the half it agrees with `huber` near 0, and its gradient is e."""
    return 0.5 * ops.square(errors)


def huber(errors: Tensor, delta: float = 1.0) -> Tensor:
    """Huber's loss: ``e^2 / 2`` up to |e| = delta, then ``delta (|e| - delta / 2)`` (Huber 1964; Mnih et al. 2015)."""
    size = ops.abs(errors)
    within = ops.minimum(size, delta)
    return within * (size - 0.5 * within)  # both branches at once: no gradient of a branch not taken


def clipped_regression(
    values: Tensor, old_values: Tensor, targets: Tensor, clip_range: float, regression: Regression
) -> Tensor:
    """The larger loss of the value and of the value clipped around the old one (Schulman et al. 2017, appendix's code).

    ``max(l(V - target), l(V_old + clip(V - V_old, -c, c) - target))``: a value gains nothing by moving further than c
    in one round of updates.

    Args:
        old_values: V_old, from before the round of updates.
        clip_range: c.
        regression: l.
    """
    clipped = old_values + ops.clip(values - old_values, -clip_range, clip_range)
    return ops.maximum(regression(targets - values), regression(targets - clipped))


def categorical_cross_entropy(logits: Tensor, probabilities: Tensor) -> Tensor:
    """``-sum_k p_k log softmax(logits)_k``, for C51 with the projected target and for one-hot labels.

    Args:
        logits: float32 [..., K].
        probabilities: float32 [..., K]. Sum to 1.

    Returns:
        float32 [...], in nats (Bellemare, Dabney & Munos 2017, algorithm 1).
    """
    return -ops.sum(probabilities * ops.log_softmax(logits, axis=-1), axis=-1)


def quantile_fractions(quantiles: int) -> FloatArray:
    """Middles of `quantiles` equal parts of [0, 1], ``(2 i + 1) / (2 N)`` (Dabney et al. 2018, lemma 2).

    Returns:
        float32 [N].
    """
    return ((2.0 * np.arange(quantiles) + 1.0) / (2.0 * quantiles)).astype(np.float32)


def quantile_huber(errors: Tensor, fractions: Tensor, kappa: float = 1.0) -> Tensor:
    """Asymmetric Huber loss ``|tau - 1{u < 0}| L_kappa(u) / kappa`` (Dabney et al. 2018, equation 10).

    Args:
        errors: u: target minus quantile.
        fractions: tau, in (0, 1); broadcasts against `errors`.
        kappa: The error at which squared becomes linear.
    """
    above = ops.cast(errors < 0.0, "float32")
    return ops.abs(fractions - above) * huber(errors, kappa) / kappa


def quantile_regression(quantiles: Tensor, targets: Tensor, kappa: float = 1.0) -> Tensor:
    """Sum over quantiles of the mean over target samples of `quantile_huber` (Dabney et al. 2018, algorithm 1).

    Args:
        quantiles: float32 [..., N]. At `quantile_fractions(N)`.
        targets: float32 [..., M]. Samples, or quantiles, of the target distribution.
        kappa: As in `quantile_huber`.

    Returns:
        float32 [...].
    """
    errors = ops.expand_dims(targets, -2) - ops.expand_dims(quantiles, -1)  # [..., N, M]
    fractions = quantile_fractions(int(quantiles.shape[-1]))[:, np.newaxis]  # [N, 1]
    return ops.sum(ops.mean(quantile_huber(errors, fractions, kappa), axis=-1), axis=-1)


def policy_gradient(log_probabilities: Tensor, advantages: Tensor) -> Tensor:
    """``-A log pi(a)`` (Williams 1992)."""
    return -log_probabilities * advantages


def clipped_surrogate(ratios: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """PPO's objective, to be maximised: ``min(r A, clip(r, 1 - c, 1 + c) A)`` (Schulman et al. 2017, equation 7).

    Args:
        ratios: r: likelihood of the action under the new policy over that under the old one.
        clip_range: c.
    """
    clipped = ops.clip(ratios, 1.0 - clip_range, 1.0 + clip_range)
    return ops.minimum(ratios * advantages, clipped * advantages)


KL_COEFFICIENT_RANGE = 1e4
"""Largest factor between an adapted coefficient and the first one, in both directions."""


def adapted_kl_coefficient(coefficient: Tensor, kl: Tensor, target: float, initial: float) -> Tensor:
    """PPO's coefficient for the next round: multiplied by 1.5 above 1.3 of the target, divided by 1.5 below 0.7 of it.

    The adaptive coefficient of Schulman et al. 2017 (section 4) with Coach's numbers. It stays within
    `KL_COEFFICIENT_RANGE` of the first one; otherwise it would run to 0 or infinity where the divergence cannot reach
    its target.

    Args:
        coefficient: float32 []. That of the round that ends.
        kl: float32 []. Mean KL(old || new) at its end.
        target: Target of that mean.
        initial: The coefficient of the first round.
    """
    lowered = ops.where(kl < 0.7 * target, coefficient / 1.5, coefficient)
    adapted = ops.where(kl > 1.3 * target, coefficient * 1.5, lowered)
    return ops.clip(adapted, initial / KL_COEFFICIENT_RANGE, initial * KL_COEFFICIENT_RANGE)


def naf_value(value: Tensor, mu: Tensor, lower: Tensor, actions: Tensor) -> Tensor:
    """``Q(s, a) = V - (a - mu)^T L L^T (a - mu) / 2`` (Gu et al. 2016, equations 5 to 7).

    Args:
        value: V, float32 [...].
        mu: float32 [..., n]. The best action.
        lower: float32 [..., n, n]. L: lower triangular, its diagonal positive.
        actions: float32 [..., n].

    Returns:
        float32 [...].
    """
    # (a - mu)^T L, so that the quadratic form is a sum of squares and never positive by rounding
    projected = ops.sum(ops.expand_dims(actions - mu, -1) * lower, axis=-2)  # [..., n, n] -> [..., n]
    return value - 0.5 * ops.sum(ops.square(projected), axis=-1)


def at_choice(values: Tensor, choices: Tensor) -> Tensor:
    """Select the values of the choices that were made.

    Args:
        values: float32 [batch, A, ...].
        choices: Integers [batch] in 0 … A - 1.

    Returns:
        float32 [batch, ...].
    """
    # A one-hot product differentiates to dense arithmetic; a gather's gradient is a scatter, which is slower.
    chosen = ops.one_hot(choices, values.shape[1], dtype="float32")
    for _ in values.shape[2:]:
        chosen = ops.expand_dims(chosen, -1)
    return ops.sum(chosen * values, axis=1)
