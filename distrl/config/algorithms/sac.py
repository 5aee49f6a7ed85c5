"""Parameters of SAC."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms.section import AlgorithmSection
from distrl.config.exploration import ExplorationParameters, PolicySamplingParameters
from distrl.config.replay import ReplayParameters


class SacParameters(AlgorithmSection):
    """SAC (Haarnoja et al. 2018, arXiv:1812.05905): off-policy, continuous actions, entropy held at a target.

    The optimizer of the policy is the section `network`'s; the critics have another one like it, the temperature Adam.
    """

    batch_size: ClassVar[int] = 256
    learns_from: ClassVar[Literal["own policy", "known probabilities", "anybody"]] = "anybody"
    exploration: ClassVar[ExplorationParameters | None] = PolicySamplingParameters(random_steps=1_000)

    name: Literal["sac"] = "sac"
    replay: ReplayParameters = ReplayParameters(capacity_steps=1_000_000, samples_per_insert=256.0)
    """Updates per environment step are samples_per_insert / learner.batch_size: one by default."""
    critic_learning_rate: float | None = Field(None, gt=0.0)
    """null: as network.learning_rate."""
    temperature_learning_rate: float | None = Field(None, gt=0.0)
    """null: as network.learning_rate."""
    initial_temperature: float = Field(1.0, gt=0.0)
    """Factor of the entropy beside the return, before it is tuned."""
    target_entropy: float | None = None
    """In nats, of actions scaled to [-1, 1], all of them together. null: -1 for each number in them."""
    target_update_rate: float = Field(0.005, gt=0.0, le=1.0)
    """Rate of the target critics, at every update: target = rate * critic + (1 - rate) * target."""

    @model_validator(mode="after")
    def _samples_transitions(self) -> Self:
        if self.replay.samples_sequences:
            raise ValueError("replay.sampler.kind: sequences; sac learns from single transitions: uniform, prioritized")
        return self
