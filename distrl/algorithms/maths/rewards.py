"""The rewards that losses learn from: clipped, scaled, and with the bonus of curiosity; unrolls carry raw rewards."""

from keras import ops

from distrl.config.algorithms import AlgorithmSection
from distrl.config.algorithms.policy_gradients import RewardClipping, UnrollPolicySection
from distrl.networks.actions.family import Tensor
from distrl.types import Batch


def clipped(rewards: Tensor, clipping: RewardClipping | None) -> Tensor:
    """Clip rewards, so that one learning rate suits tasks with rewards of different sizes.

        clamp_one        min(1, max(-1, r))
        soft_asymmetric  5 s where r >= 0 and 1.5 s where r < 0, with s = tanh(r / 5)

    The second is that of IMPALA's published code for DMLab ("optimistic asymmetric clipping", Espeholt et al. 2018,
    appendix D): negative rewards count less than positive ones.

    Args:
        rewards: float32 of any shape.
        clipping: None: unchanged.
    """
    if clipping is None:
        return rewards
    if clipping == "clamp_one":
        return ops.clip(rewards, -1.0, 1.0)
    squashed = ops.tanh(rewards / 5.0)
    return 5.0 * ops.where(rewards < 0.0, 0.3 * squashed, squashed)


def learned_rewards(batch: Batch, parameters: AlgorithmSection) -> Tensor:
    """Return the rewards of a batch for the loss: clipped, scaled, plus the bonus. Any normalisation comes before.

    Policy gradients clip if their section says so. The bonus has a scale of its own.

    Returns:
        float32 [T, N]; 0 where not valid.
    """
    clipping = parameters.reward_clipping if isinstance(parameters, UnrollPolicySection) else None
    rewards = parameters.reward_scale * clipped(batch.rewards, clipping)
    return rewards if batch.bonus is None else rewards + batch.bonus
