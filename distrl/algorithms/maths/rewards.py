"""Rewards as policy gradients learn from them. They travel raw; what is done to them is done here."""

from keras import ops

from distrl.config.algorithms import PolicyGradientSection
from distrl.config.algorithms.policy_gradients import RewardClipping
from distrl.networks.actions.family import Tensor


def clipped(rewards: Tensor, clipping: RewardClipping | None) -> Tensor:
    """Rewards of bounded size, so that one learning rate does for tasks that pay in different units.

        clamp_one        min(1, max(-1, r))
        soft_asymmetric  5 s where r >= 0 and 1.5 s where r < 0, with s = tanh(r / 5)

    The second is what IMPALA's published code has for DMLab ("optimistic asymmetric clipping", Espeholt et al. 2018,
    appendix D): losses frighten less than gains attract.

    Args:
        rewards: float32 of any shape.
        clipping: None: as they are.
    """
    if clipping is None:
        return rewards
    if clipping == "clamp_one":
        return ops.clip(rewards, -1.0, 1.0)
    squashed = ops.tanh(rewards / 5.0)
    return 5.0 * ops.where(rewards < 0.0, 0.3 * squashed, squashed)


def learned_rewards(rewards: Tensor, parameters: PolicyGradientSection) -> Tensor:
    """Return the rewards of a batch for the loss: clipped, then scaled. Any normalisation comes before.

    Args:
        rewards: float32 [T, N]. 0 where not valid, and so they stay.
    """
    return parameters.reward_scale * clipped(rewards, parameters.reward_clipping)
