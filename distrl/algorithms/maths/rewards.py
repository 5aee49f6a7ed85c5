"""Clipping and scaling of rewards in the losses of policy gradients; unrolls carry raw rewards."""

from keras import ops

from distrl.config.algorithms.policy_gradients import PolicySection, RewardClipping
from distrl.networks.actions.family import Tensor


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


def learned_rewards(rewards: Tensor, parameters: PolicySection) -> Tensor:
    """Return the rewards of a batch for the loss: clipped, then scaled. Any normalisation comes before.

    Args:
        rewards: float32 [T, N]. Rewards of invalid rows are 0 and stay 0.
    """
    return parameters.reward_scale * clipped(rewards, parameters.reward_clipping)
