"""Terms that keep a policy, or values, near recorded actions: pure functions in `keras.ops`."""

import math

from keras import ops

from distrl.algorithms.maths.losses import masked_mean
from distrl.algorithms.maths.td_targets import chosen_values
from distrl.networks.actions.family import Tensor


def advantage_weights(advantages: Tensor, beta: float, largest: float) -> Tensor:
    """``min(exp(beta A), largest)``: factors of log pi in weighted imitation (Kostrikov et al. 2021, equation 7).

    The exponent is clipped, so that no advantage overflows.

    Args:
        advantages: float32 [...].
        beta: 0: all weights are 1, which is behavioural cloning.
        largest: Above 0.

    Returns:
        float32 [...], constants to the gradient.
    """
    return ops.stop_gradient(ops.exp(ops.minimum(beta * advantages, math.log(largest))))


def normalized_weights(advantages: Tensor, valid: Tensor, beta: float) -> Tensor:
    """``exp(beta A)`` divided by its mean over the valid entries, as the authors of AWAC compute it.

    Args:
        advantages: float32 [...].
        valid: bool [...].

    Returns:
        float32 [...], 0 where not valid, of mean 1 over valid entries; constants to the gradient.
    """
    exponents = ops.where(valid, beta * advantages, -math.inf)
    highest = ops.max(exponents)
    shares = ops.exp(exponents - ops.where(ops.isfinite(highest), highest, 0.0))
    return ops.stop_gradient(shares / ops.maximum(masked_mean(shares, valid), 1e-8))


def expectile_loss(errors: Tensor, expectile: float) -> Tensor:
    """``|tau - 1(e < 0)| e^2`` of errors target - estimate (Kostrikov et al. 2021, arXiv:2110.06169, equation 5).

    With tau above a half, estimates below their targets cost more: the loss is least at the expectile tau of targets.

    Args:
        errors: float32 [...].
        expectile: tau, between 0 and 1.

    Returns:
        float32 [...].
    """
    return ops.where(errors < 0.0, 1.0 - expectile, expectile) * ops.square(errors)


def conservative_gap(values: Tensor, choices: Tensor) -> Tensor:
    """``log sum_a exp Q(s, a) - Q(s, a_recorded)``, at least 0 (Kumar et al. 2020, arXiv:2006.04779, equation 4).

    Args:
        values: float32 [..., A].
        choices: int32 [...], 0 … A - 1.

    Returns:
        float32 [...].
    """
    return ops.logsumexp(values, axis=-1) - chosen_values(values, choices)


def margin_loss(values: Tensor, choices: Tensor, margin: float) -> Tensor:
    """``max_a (Q(s, a) + margin 1(a != a_E)) - Q(s, a_E)``, at least 0 (Hester et al. 2018, section "DQfD").

    It is 0 where the demonstrated choice a_E is better than every other one by the margin.

    Args:
        values: float32 [..., A].
        choices: int32 [...]. a_E, 0 … A - 1.

    Returns:
        float32 [...].
    """
    others = 1.0 - ops.one_hot(choices, values.shape[-1], dtype="float32")
    return ops.max(values + margin * others, axis=-1) - chosen_values(values, choices)
