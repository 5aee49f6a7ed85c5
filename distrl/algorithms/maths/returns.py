"""Value targets and advantages from unrolls: V-trace, generalised advantage estimation, n-step returns, Retrace.

Pure functions over arrays [T, N] with values [T+1, N], written in `keras.ops`, so that every Keras backend runs them.

All are sums of discounted temporal differences

    delta_t = r_t + discount_t V_{t+1} - V_t

(Retrace's are from the value of the action taken, Q(o_t, a_t), in place of V_t) and differ in how far, and with which
weight, a difference reaches back: the *trace*. No formula sees a `done` flag. `discounts` is 0 where an episode
terminated, which leaves nothing beyond that step. `valid` is False on the row after an episode's end, where the
environment ignored the action and was reset: there delta = 0, the trace is cut and the target is V itself, or Q. So a
truncated step, whose next row is the true final observation, bootstraps from V of it, and no difference of the next
episode reaches back across the seam.

Targets and advantages are constants to the gradient: they come out under `stop_gradient`.
"""

import math
from typing import NamedTuple

import numpy as np
from keras import ops

from distrl.networks.actions.family import Tensor
from distrl.networks.framework.backend import loops
from distrl.types import Batch


class Returns(NamedTuple):
    """Targets of an actor-critic.

    Attributes:
        value_targets: float32 [T, N]. Targets of V(o_t); V(o_t) itself where not valid.
        advantages: float32 [T, N]. Estimates of Q(o_t, a_t) - V(o_t); 0 where not valid.
    """

    value_targets: Tensor
    advantages: Tensor


def step_discounts(terminated: Tensor, discount: float) -> Tensor:
    """Discount after each step: gamma, and 0 where the episode terminated. Truncation does not change it.

    Args:
        terminated: bool [T, N].
        discount: gamma, from 0 to 1.

    Returns:
        float32 [T, N]. gamma * (1 - terminated).
    """
    return discount * (1.0 - ops.cast(terminated, "float32"))


def batch_discounts(batch: Batch, discount: float) -> Tensor:
    """`step_discounts` of a batch, whose rows may lie several steps apart: gamma^k, and 0 where the episode terminated.

    Returns:
        float32 [T, N].
    """
    ending = ops.cast(batch.terminated, "float32")
    steps = 1.0 if batch.bootstrap_steps is None else ops.cast(batch.bootstrap_steps, "float32")
    return ops.power(discount, steps) * (1.0 - ending)


def vtrace(
    *,
    values: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    valid: Tensor,
    log_rhos: Tensor,
    rho_bar: float | None = 1.0,
    c_bar: float | None = 1.0,
    rho_bar_policy_gradient: float | None = 1.0,
    trace_lambda: float = 1.0,
) -> Returns:
    """V-trace: off-policy correction for unrolls that an older policy mu recorded (Espeholt et al. 2018).

    With importance weights pi(a_t|o_t) / mu(a_t|o_t), rho_t = min(rho_bar, weight), c_t = lambda min(c_bar, weight):

        vs_t  = V_t + delta_t + discount_t c_t (vs_{t+1} - V_{t+1}),   delta_t = rho_t (r_t + discount_t V_{t+1} - V_t)
        adv_t = min(rho_bar_policy_gradient, weight) (r_t + discount_t vs_{t+1} - V_t),   vs_T = V_T

    the recursive form (Remark 1) of equation 1 in section 4.1, lambda as in Remark 2, advantages as in section 4.2.

    Args:
        values: float32 [T+1, N]. V of every observation, the bootstrap last.
        rewards: float32 [T, N]. 0 where not valid.
        discounts: float32 [T, N]. gamma * (1 - terminated).
        valid: bool [T, N]. False on the row after an episode's end.
        log_rhos: float32 [T, N]. log pi(a_t|o_t) - log mu(a_t|o_t).
        rho_bar: Truncation in the temporal difference; sets the fixed point. None: no truncation.
        c_bar: Truncation of the trace; sets the speed of contraction. None: no truncation.
        rho_bar_policy_gradient: Truncation in the advantages. None: no truncation.
        trace_lambda: lambda, from 0 to 1; 1 is the paper's equation 1.

    Raises:
        ValueError: The shapes do not fit together; the message gives them all.
    """
    check_shapes(values, rewards=rewards, discounts=discounts, valid=valid, log_rhos=log_rhos)
    # A weight of 0 makes the difference, the trace and the advantage of an invalid row 0.
    log_rhos = ops.where(valid, log_rhos, -np.inf)
    present, following = values[:-1], values[1:]
    deltas = _truncated(log_rhos, rho_bar) * (rewards + discounts * following - present)
    corrections = _accumulate(deltas, discounts * trace_lambda * _truncated(log_rhos, c_bar))
    targets = present + corrections
    following_targets = ops.concatenate([targets[1:], values[-1:]], axis=0)
    advantages = _truncated(log_rhos, rho_bar_policy_gradient) * (rewards + discounts * following_targets - present)
    return Returns(ops.stop_gradient(targets), ops.stop_gradient(advantages))


def corrected_gae(
    *,
    values: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    valid: Tensor,
    log_rhos: Tensor,
    rho_bar: float | None = 1.0,
    c_bar: float | None = 1.0,
    trace_lambda: float = 1.0,
) -> Returns:
    """Generalised advantages with V-trace for later steps, for losses that weight the step itself, such as PPO's.

        target_t = vs_t of `vtrace`,   adv_t = r_t + discount_t V_{t+1} - V_t + discount_t lambda (vs_{t+1} - V_{t+1})

    V-trace corrects the steps after a_t for the policy that learns. The likelihood ratio in the loss corrects a_t
    itself (Petrenko et al. 2020, arXiv:2006.11751, section 3.4). With equal policies these are `gae`'s targets and
    advantages, with lambda = 1 V-trace's advantages without their weight. The arguments are those of `vtrace`.

    Raises:
        ValueError: The shapes do not fit together; the message gives them all.
    """
    targets, _ = vtrace(
        values=values,
        rewards=rewards,
        discounts=discounts,
        valid=valid,
        log_rhos=log_rhos,
        rho_bar=rho_bar,
        c_bar=c_bar,
        trace_lambda=trace_lambda,
    )
    following = values[1:]
    later = ops.concatenate([targets[1:], values[-1:]], axis=0) - following
    advantages = rewards + discounts * (following + trace_lambda * later) - values[:-1]
    return Returns(targets, ops.stop_gradient(ops.where(valid, advantages, 0.0)))


def gae(*, values: Tensor, rewards: Tensor, discounts: Tensor, valid: Tensor, trace_lambda: float) -> Returns:
    """Generalised advantage estimation (Schulman et al. 2016, equations 11 and 16) with TD(lambda) value targets.

        adv_t = delta_t + discount_t lambda adv_{t+1},   target_t = V_t + adv_t,   adv_T = 0

    Args:
        values: float32 [T+1, N]. V of every observation, the bootstrap last.
        rewards: float32 [T, N]. 0 where not valid.
        discounts: float32 [T, N]. gamma * (1 - terminated).
        valid: bool [T, N]. False on the row after an episode's end.
        trace_lambda: lambda. 0: one-step differences. 1: Monte Carlo up to the bootstrap.

    Raises:
        ValueError: The shapes do not fit together; the message gives them all.
    """
    check_shapes(values, rewards=rewards, discounts=discounts, valid=valid)
    present, following = values[:-1], values[1:]
    deltas = ops.where(valid, rewards + discounts * following - present, 0.0)
    advantages = _accumulate(deltas, ops.where(valid, discounts * trace_lambda, 0.0))
    return Returns(ops.stop_gradient(present + advantages), ops.stop_gradient(advantages))


def n_step(*, values: Tensor, rewards: Tensor, discounts: Tensor, valid: Tensor, steps: int) -> Returns:
    """n-step returns (Mnih et al. 2016, section 4; Sutton and Barto 2018, equation 7.1): n rewards, then V.

        G(0)_t = V_t,   G(n)_t = r_t + discount_t G(n-1)_{t+1},   G(n)_T = V_T,   G(n)_t = V_t where not valid

    If fewer than n steps are left in the unroll, the return uses those and bootstraps from V_T.

    Args:
        values: float32 [T+1, N]. V of every observation, the bootstrap last.
        rewards: float32 [T, N]. 0 where not valid.
        discounts: float32 [T, N]. gamma * (1 - terminated).
        valid: bool [T, N]. False on the row after an episode's end.
        steps: n, at least 1. T or more: as far as the unroll goes.

    Raises:
        ValueError: `steps` is below 1, or the shapes do not fit together; the message gives them.
    """
    check_shapes(values, rewards=rewards, discounts=discounts, valid=valid)
    if steps < 1:
        raise ValueError(f"n_step needs steps >= 1, got {steps}")
    present, last = values[:-1], values[-1:]
    if steps >= values.shape[0] - 1:  # the whole unroll: the recurrence costs T row operations, not T passes
        return gae(values=values, rewards=rewards, discounts=discounts, valid=valid, trace_lambda=1.0)
    targets = present
    for _ in range(steps):
        following = ops.concatenate([targets[1:], last], axis=0)
        targets = ops.where(valid, rewards + discounts * following, present)
    return Returns(ops.stop_gradient(targets), ops.stop_gradient(targets - present))


def retrace(
    *,
    values: Tensor,
    action_values: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    valid: Tensor,
    log_rhos: Tensor,
    c_bar: float = 1.0,
    trace_lambda: float = 1.0,
) -> Tensor:
    """Retrace: targets of action values for unrolls that an older policy mu recorded (Munos et al. 2016).

    With c_t = lambda min(c_bar, pi(a_t|o_t) / mu(a_t|o_t)), from the last row backwards

        Qret_t = r_t + discount_t (V_{t+1} + c_{t+1} (Qret_{t+1} - Q_{t+1})),   c_T = 0

    as Wang et al. 2017 write it (arXiv:1611.01224, equation 5, and algorithm 2 with c_bar = 1). The weight of a_t
    itself is not in its own target. Qret_t = Q_t where not valid.

    Args:
        values: float32 [T+1, N]. V of every observation, the expectation of Q under pi; the bootstrap last.
        action_values: float32 [T, N]. Q(o_t, a_t).
        rewards: float32 [T, N]. 0 where not valid.
        discounts: float32 [T, N]. gamma * (1 - terminated).
        valid: bool [T, N]. False on the row after an episode's end.
        log_rhos: float32 [T, N]. log pi(a_t|o_t) - log mu(a_t|o_t).
        c_bar: Truncation of the trace.
        trace_lambda: lambda, from 0 to 1. 0: one-step targets r + discount V.

    Returns:
        float32 [T, N], constants to the gradient.

    Raises:
        ValueError: The shapes do not fit together; the message gives them all.
    """
    check_shapes(
        values, action_values=action_values, rewards=rewards, discounts=discounts, valid=valid, log_rhos=log_rhos
    )
    deltas = ops.where(valid, rewards + discounts * values[1:] - action_values, 0.0)
    traces = trace_lambda * _truncated(ops.where(valid, log_rhos, -np.inf), c_bar)
    following = ops.concatenate([traces[1:], ops.zeros_like(traces[:1])], axis=0)
    corrections = _accumulate(deltas, ops.where(valid, discounts * following, 0.0))
    return ops.stop_gradient(action_values + corrections)


def check_shapes(values: Tensor, **arrays: Tensor) -> None:
    """Raise ValueError unless `values` is [T+1, N] with T >= 1 and every named array is [T, N]."""
    shape = tuple(values.shape)
    fits = len(shape) == 2 and shape[0] >= 2
    if not fits or any(tuple(array.shape) != (shape[0] - 1, shape[1]) for array in arrays.values()):
        found = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise ValueError(f"expected values [T+1, N] and everything else [T, N], got values {list(shape)}, {found}")


def _truncated(log_rhos: Tensor, bar: float | None) -> Tensor:
    """Importance weights min(bar, exp(log_rho)), truncated before `exp`, which would overflow."""
    return ops.exp(log_rhos if bar is None else ops.minimum(log_rhos, math.log(bar)))


def _accumulate(deltas: Tensor, decays: Tensor) -> Tensor:
    """x_t = delta_t + decay_t x_{t+1} with x_T = 0, [T, N], as constants to the gradient.

    A loop on JAX on a CPU: compiling CartPole's update (T = 64) takes 2.4 s of processor time instead of 4.4, and the
    update as long. Elsewhere unrolled in Python over unstacked rows. In a compiled TensorFlow function on one thread
    (N = 256, T = 32 and 128) this is faster than rows by index, `ops.scan`, `ops.associative_scan` and recursive
    doubling.
    """
    deltas, decays = ops.stop_gradient(deltas), ops.stop_gradient(decays)

    def add(total: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        total = row[0] + row[1] * total
        return total, total

    total = ops.zeros_like(deltas[0])
    if loops():
        return ops.scan(add, total, (deltas, decays), reverse=True)[1]
    totals = []
    for row in zip(reversed(ops.unstack(deltas)), reversed(ops.unstack(decays)), strict=True):
        total, _ = add(total, row)
        totals.append(total)
    return ops.stack(totals[::-1])
