"""Terms of actor-critics that learn from a replay memory: pure functions over arrays [N], one row per item."""

from keras import ops

from distrl.networks.actions.family import Tensor


def soft_value(first: Tensor, second: Tensor, log_probabilities: Tensor, temperature: Tensor) -> Tensor:
    """``min(Q1, Q2) - alpha log pi(a|o)``: value of a drawn action, including its share of the entropy.

    Its mean over actions is the soft value of the state (Haarnoja et al. 2018, arXiv:1812.05905, equation 3, with the
    smaller of two critics as in section 6); minus its mean is the policy's loss (equation 7).

    Args:
        first: float32 [N]. Q1(o, a), a ~ pi.
        second: float32 [N]. Q2 of the same.
        log_probabilities: float32 [N]. log pi(a|o).
        temperature: float32 []. alpha.

    Returns:
        float32 [N].
    """
    return ops.minimum(first, second) - temperature * log_probabilities


def smoothed_actions(actions: Tensor, noise: Tensor, largest: float) -> Tensor:
    """``clip(a + clip(noise, -c, c), -1, 1)``: target policy smoothing, which gives similar actions similar values.

    Fujimoto et al. 2018, arXiv:1802.09477, section 5.3.

    Args:
        actions: float32 [N, n] in [-1, 1].
        noise: float32 [N, n].
        largest: c.

    Returns:
        float32 [N, n].
    """
    return ops.clip(actions + ops.clip(noise, -largest, largest), -1.0, 1.0)


def critic_targets(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """``r + gamma^k V(o_{t+k})``, where the discount is 0 after termination (equation 5). Constants to the gradient.

    Args:
        rewards: float32 [N]. Discounted sums of the k rewards between.
        discounts: float32 [N].
        next_values: float32 [N]. V(o_{t+k}).

    Returns:
        float32 [N].
    """
    return ops.stop_gradient(rewards + discounts * next_values)


def temperature_loss(temperature: Tensor, log_probabilities: Tensor, target_entropy: float) -> Tensor:
    """``-alpha (log pi(a|o) + target entropy)`` (equation 18): alpha grows while the entropy is below its target.

    Args:
        temperature: float32 []. alpha.
        log_probabilities: float32 [N]. Of actions drawn from the policy; constants to the gradient.
        target_entropy: In nats.

    Returns:
        float32 [N].
    """
    return -temperature * ops.stop_gradient(log_probabilities + target_entropy)


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Mean of each value times its importance weight (Schaul et al. 2016, section 3.4); None: all are 1.

    Args:
        values: float32 [N].
        weights: float32 [N].

    Returns:
        float32 scalar.
    """
    return ops.mean(values if weights is None else values * weights)
