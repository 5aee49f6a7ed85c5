"""Terms of actor-critics that learn from a replay memory: pure functions over arrays [N], one row per item."""

from collections.abc import Sequence
from functools import reduce

from keras import ops

from distrl.networks.actions.family import Tensor


def smallest(values: Sequence[Tensor]) -> Tensor:
    """Smallest value of several critics, which counters their overestimation (Fujimoto et al. 2018, section 4.2).

    Args:
        values: float32 [N] each.

    Returns:
        float32 [N].
    """
    return reduce(ops.minimum, values)


def expected(values: Tensor) -> Tensor:
    """Mean of each row's atoms or samples, float32 [N, K] -> [N]; float32 [N] stays as it is."""
    return values if len(values.shape) == 1 else ops.mean(values, axis=-1)


def soft_value(values: Tensor, log_probabilities: Tensor, temperature: Tensor) -> Tensor:
    """``Q - alpha log pi(a|o)``: value of a drawn action, including its share of the entropy.

    Its mean over actions is the soft value of the state (Haarnoja et al. 2018, arXiv:1812.05905, equation 3, with the
    `smallest` of two critics as in section 6); minus its mean is the policy's loss (equation 7).

    Args:
        values: float32 [N], or [N, K] atoms of its distribution. Q(o, a), a ~ pi.
        log_probabilities: float32 [N]. log pi(a|o).
        temperature: float32 []. alpha.

    Returns:
        The shape of `values`.
    """
    return values - _beside(temperature * log_probabilities, values)


def expected_soft_value(values: Tensor, log_probabilities: Tensor, temperature: Tensor) -> Tensor:
    """``sum_a pi(a|o) (Q(o, a) - alpha log pi(a|o))``: soft value of a state with choices, without a draw.

    Christodoulou 2019, arXiv:1910.07207, equation 10; minus its mean is the policy's loss (equation 12). A choice of
    probability 0 adds nothing.

    Args:
        values: float32 [N, A]. Q of every choice.
        log_probabilities: float32 [N, A]. log pi.
        temperature: float32 []. alpha.

    Returns:
        float32 [N].
    """
    gains = values - temperature * log_probabilities
    return ops.sum(ops.exp(log_probabilities) * gains, axis=-1)


def truncated_mixture(atoms: Sequence[Tensor], dropped: int) -> Tensor:
    """The smallest atoms of all critics together, in order, without the largest `dropped` for each critic.

    Kuznetsov et al. 2020, arXiv:2005.04269: with N critics of M atoms, the kN smallest of all NM, k = M - dropped.

    Args:
        atoms: float32 [batch, M], of each of the N critics.
        dropped: In 0 ... M - 1.

    Returns:
        float32 [batch, kN].
    """
    mixed = ops.sort(ops.concatenate(atoms, axis=-1), axis=-1)  # N x [batch, M] -> [batch, N*M]
    return mixed[:, : mixed.shape[-1] - dropped * len(atoms)]


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
        next_values: float32 [N], or [N, K] samples of the return. V(o_{t+k}).

    Returns:
        The shape of `next_values`.
    """
    return ops.stop_gradient(_beside(rewards, next_values) + _beside(discounts, next_values) * next_values)


def temperature_loss(temperature: Tensor, log_probabilities: Tensor, target_entropy: Tensor | float) -> Tensor:
    """``-alpha (log pi(a|o) + target entropy)`` (equation 18): alpha grows while the entropy is below its target.

    Args:
        temperature: float32 []. alpha.
        log_probabilities: float32 [N]. Of actions drawn from the policy, or minus its entropy; constants to the
            gradient.
        target_entropy: In nats; of all states, or float32 [N] of each.

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


def _beside(rows: Tensor, values: Tensor) -> Tensor:
    """Give float32 [N] the rank of `values`: [N] -> [N, 1] beside [N, K]."""
    return rows if len(values.shape) == 1 else ops.expand_dims(rows, -1)
