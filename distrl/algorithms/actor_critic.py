"""The loss of all actor-critics; they differ in how they compute returns."""

from distrl.algorithms.algorithm import Loss
from distrl.algorithms.maths import losses
from distrl.algorithms.maths.returns import Returns
from distrl.networks.actions.family import Tensor


def actor_critic_loss(
    returns: Returns,
    values: Tensor,
    log_probabilities: Tensor,
    entropies: Tensor,
    valid: Tensor,
    *,
    value_loss_weight: float,
    entropy_weight: Tensor | float,
    huber: bool,
) -> Loss:
    """``policy_loss + value_loss_weight * value_loss - entropy_weight * entropy``, each a mean over valid steps.

    The papers sum over an unroll; with means, weights and learning rate do not depend on the unroll's length or on how
    many episodes ended in it.

    Args:
        returns: Value targets and advantages, constants to the gradient.
        values: float32 [T, N]. V(o_t).
        log_probabilities: float32 [T, N]. Of a_t under the current policy.
        entropies: float32 [T, N], nats.
        valid: bool [T, N].
        huber: Use Huber's value loss instead of the squared one.

    Returns:
        The heads' losses, "policy" and "value", and the metrics policy_loss, value_loss, entropy, mean_value and
        explained_variance of the critic, and `advantage_metrics`.
    """
    policy_loss = losses.policy_gradient(log_probabilities, returns.advantages, valid)
    value_loss = losses.value_loss(values, returns.value_targets, valid, huber=huber)
    entropy_loss = losses.entropy_loss(entropies, valid)
    terms = {"policy": policy_loss + entropy_weight * entropy_loss, "value": value_loss_weight * value_loss}
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": -entropy_loss,
        "mean_value": losses.masked_mean(values, valid),
        "explained_variance": losses.explained_variance(values, returns.value_targets, valid),
        **advantage_metrics(returns.advantages, valid),
    }
    return Loss(terms, metrics)


def advantage_metrics(advantages: Tensor, valid: Tensor) -> dict[str, Tensor]:
    """Return the metrics mean_advantage and std_advantage over valid steps; float32 [T, N] and bool [T, N]."""
    return {
        "mean_advantage": losses.masked_mean(advantages, valid),
        "std_advantage": losses.deviation(advantages, valid),
    }
