"""Parameters of every algorithm."""

from typing import ClassVar, Literal

from pydantic import Field

from distrl.config.exploration import ExplorationParameters
from distrl.config.replay import ReplayParameters
from distrl.config.section import Section


class RewardNormalizationParameters(Section):
    """Rewards in a scale of their own, by statistics of all valid steps that the learner has trained on.

    Each update uses those of the updates before it; before any, rewards are only cut.
    """

    kind: Literal["discounted_return", "reward"] = "discounted_return"
    """discounted_return: divided by the deviation of R_t = discount * R_t-1 + r_t (Engstrom et al. 2020, section 3).
    reward: less their mean, divided by their own deviation, as Coach does; that changes which policy is best where
    episodes end early or late."""
    clip: float | None = Field(5.0, gt=0.0)
    """Bound of normalised rewards: cut to +- this; null: not cut."""


class AlgorithmSection(Section):
    """Fields of every algorithm.

    Attributes:
        implementation: package.module:Class of a built-in algorithm, which `algorithms.make_algorithm` imports.
        ships: What its actors send: unrolls, or gradients that they take themselves.
        batch_size: `learner.batch_size` where the configuration has none.
        exploration: How actors explore where the configuration does not say; None: as the policy's distribution does.
        rounds: Gradient actors wait for each other: one gradient of every worker makes one update.
        learns_from: Whose actions it can learn from: its own policy's alone, those of any policy whose probabilities
            travel with them, or anybody's.
    """

    implementation: ClassVar[str]
    ships: ClassVar[Literal["unrolls", "gradients"]] = "unrolls"
    batch_size: ClassVar[int] = 4
    exploration: ClassVar[ExplorationParameters | None] = None
    learns_from: ClassVar[Literal["own policy", "known probabilities", "anybody"]] = "known probabilities"
    rounds: ClassVar[bool] = False

    name: str
    discount: float = Field(0.99, ge=0.0, le=1.0)
    """gamma: factor of a reward for every step that it lies ahead."""
    max_staleness_updates: int | None = Field(None, ge=0)
    """0: synchronous. k: an unroll older than k updates is never trained on. null: bounded by the queue alone."""
    reward_scale: float = Field(1.0, gt=0.0)
    """Factor of rewards in the loss, applied after they are normalised; actors send raw rewards."""
    reward_normalization: RewardNormalizationParameters | None = None
    """{} for the usual one; null: none."""

    @property
    def replay_parameters(self) -> ReplayParameters | None:
        """The replay memory's parameters; None for algorithms that learn from the stream."""
        return getattr(self, "replay", None)

    @property
    def tells_priorities(self) -> bool:
        """Whether actors compute the first priority of each step for the replay memory."""
        return False

    @property
    def reward_moments_discount(self) -> float | None:
        """Discount of the returns whose moments actors report; 0 for moments of rewards, None for none."""
        if self.reward_normalization is None:
            return None
        return self.discount if self.reward_normalization.kind == "discounted_return" else 0.0
