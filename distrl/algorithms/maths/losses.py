"""Loss terms of actor-critic algorithms: pure functions over arrays [T, N], each a mean over the valid entries."""

from keras import ops

from distrl.networks.actions.family import Tensor
from distrl.networks.heads import losses as element_losses


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean over the valid entries; 0, never NaN, when there are none.

    Args:
        values: float32 [T, N].
        valid: bool [T, N].

    Returns:
        float32 scalar.
    """
    count = ops.sum(ops.cast(valid, values.dtype))
    return ops.sum(ops.where(valid, values, 0.0)) / ops.maximum(count, 1.0)


def normalized(values: Tensor, valid: Tensor) -> Tensor:
    """(x - mean) / deviation over the valid entries, 0 elsewhere; 0 everywhere if they do not vary.

    A single valid entry has no deviation and stays as it is: less its mean it would be 0, and nothing would be learned.

    Args:
        values: float32 [T, N].
        valid: bool [T, N].

    Returns:
        float32 [T, N].
    """
    normal = (values - masked_mean(values, valid)) / (deviation(values, valid) + 1e-8)
    several = ops.sum(ops.cast(valid, "int32")) > 1
    return ops.where(valid, ops.where(several, normal, values), 0.0)


def policy_gradient(log_probabilities: Tensor, advantages: Tensor, valid: Tensor) -> Tensor:
    """-mean(A log pi(a|o)): its gradient is the policy gradient (Williams 1992; Espeholt et al. 2018, section 4.2).

    Args:
        log_probabilities: float32 [T, N]. log pi(a_t | o_t) of the policy that learns.
        advantages: float32 [T, N]. Constants to the gradient.
        valid: bool [T, N].

    Returns:
        float32 scalar.
    """
    return -masked_mean(log_probabilities * ops.stop_gradient(advantages), valid)


def value_loss(values: Tensor, targets: Tensor, valid: Tensor, *, huber: bool = False) -> Tensor:
    """mean(0.5 (target - V)^2); with the half, so that its gradient is V - target (Espeholt et al. 2018, section 4.2).

    Args:
        values: float32 [T, N]. V(o_t), without the bootstrap row.
        targets: float32 [T, N]. Constants to the gradient.
        valid: bool [T, N].
        huber: Linear beyond an error of 1 (`network.replace_mse_with_huber_loss`).

    Returns:
        float32 scalar.
    """
    loss = element_losses.huber if huber else element_losses.squared_error
    return masked_mean(loss(ops.stop_gradient(targets) - values), valid)


def entropy_loss(entropies: Tensor, valid: Tensor) -> Tensor:
    """-mean(H(pi(.|o))): an exploration bonus as a loss; minimising it keeps the policy from collapsing early.

    Args:
        entropies: float32 [T, N]. In nats.
        valid: bool [T, N].

    Returns:
        float32 scalar.
    """
    return -masked_mean(entropies, valid)


def explained_variance(values: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """1 - Var(target - V) / Var(target) over valid entries: 1 is a perfect critic, 0 no better than a constant.

    Args:
        values: float32 [T, N].
        targets: float32 [T, N].
        valid: bool [T, N].

    Returns:
        float32 scalar; 0 where the targets do not vary.
    """
    residual, total = _variance(targets - values, valid), _variance(targets, valid)
    return ops.where(total > 0.0, 1.0 - residual / ops.maximum(total, 1e-12), 0.0)


def deviation(values: Tensor, valid: Tensor) -> Tensor:
    """Standard deviation over valid entries: float32 [T, N], bool [T, N] -> float32 scalar."""
    return ops.sqrt(_variance(values, valid))


def _variance(values: Tensor, valid: Tensor) -> Tensor:
    return masked_mean(ops.square(values - masked_mean(values, valid)), valid)


def share(chosen: Tensor, valid: Tensor) -> Tensor:
    """Share of the valid entries that are chosen, from 0 to 1.

    Args:
        chosen: bool [T, N].
        valid: bool [T, N].

    Returns:
        float32 scalar; 0 where none is valid.
    """
    return masked_mean(ops.cast(chosen, "float32"), valid)
