"""Parameters that actor-critics share which learn continuous actions from a replay memory."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms.section import AlgorithmSection
from distrl.config.replay import ReplayParameters


class OffPolicySection(AlgorithmSection):
    """The replay memory, the critics and their target copies."""

    batch_size: ClassVar[int] = 256
    learns_from: ClassVar[Literal["own policy", "known probabilities", "anybody"]] = "anybody"

    replay: ReplayParameters = ReplayParameters(capacity_steps=1_000_000, samples_per_insert=256.0)
    """Updates per environment step are samples_per_insert / learner.batch_size: one by default."""
    critic_learning_rate: float | None = Field(None, gt=0.0)
    """null: as network.learning_rate."""
    target_update_rate: float = Field(0.005, gt=0.0, le=1.0)
    """Rate of the target copies: target = rate * online + (1 - rate) * target."""

    @model_validator(mode="after")
    def _samples_transitions(self) -> Self:
        if self.replay.item.kind != "transition":
            raise ValueError(f"replay.item.kind: {self.replay.item.kind}; {self.name} learns from single transitions")
        return self
