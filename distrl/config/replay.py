"""Parameters of the replay memory, on the learner's side of the stream."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distrl.config.section import Section


class UniformParameters(Section):
    """Every step that is there is as likely as any other."""

    kind: Literal["uniform"] = "uniform"


class PrioritizedParameters(Section):
    """Proportional prioritisation (Schaul et al. 2016, section 3.3): P(i) = p_i^alpha / sum, p_i = priority + epsilon.

    New steps have the highest priority seen so far, unless their actors say otherwise. Losses are weighted by
    (N P(i))^-beta, over the greatest such weight of all steps that are there.
    """

    kind: Literal["prioritized"] = "prioritized"
    alpha: float = Field(0.6, ge=0.0)
    """0: as uniform."""
    beta: float = Field(0.4, ge=0.0, le=1.0)
    """At the beginning."""
    beta_final: float = Field(1.0, ge=0.0, le=1.0)
    """From `beta_steps` on; in between beta moves along a line."""
    beta_steps: int = Field(100_000, ge=1)
    """Environment steps of all actors."""
    epsilon: float = Field(1e-6, ge=0.0)


class SequenceParameters(Section):
    """All steps of one environment's unroll together, with the policy's recurrent state before them; uniformly."""

    kind: Literal["sequences"] = "sequences"


SamplerParameters = Annotated[
    UniformParameters | PrioritizedParameters | SequenceParameters, Field(discriminator="kind")
]


class ReplayParameters(Section):
    """What is kept of the newest unrolls, how it is sampled, and how often."""

    capacity_steps: int = Field(100_000, ge=1)
    """Environment steps kept, in whole unrolls; the oldest unrolls make room."""
    min_size_steps: int = Field(1_000, ge=1)
    """Nothing is sampled before so many steps are there."""
    samples_per_insert: float | None = Field(8.0, gt=0.0)
    """How often a step is sampled on average while it is there; actors wait for the learner and it for them. Steps up
    to `min_size_steps` are on top. null: both go as fast as they can, and the learner takes in one unroll per
    update at most."""
    n_step: int = Field(1, ge=1)
    """Rewards before the bootstrap; fewer where an episode or an unroll ends before."""
    sampler: SamplerParameters = UniformParameters()
    """How steps are chosen for a batch."""
    checkpoint: bool | None = None
    """Save what is in it with every checkpoint. Otherwise a resumed run fills it anew before it learns on. null: with
    actors.count 0 alone, where a run that is resumed goes on exactly."""

    @property
    def samples_sequences(self) -> bool:
        """Whole columns of unrolls instead of single transitions."""
        return self.sampler.kind == "sequences"

    def slots(self, unroll_steps: int) -> int:
        """Unrolls kept, of `unroll_steps` rows (T x B) each."""
        return self.capacity_steps // unroll_steps

    def steps_of(self, batch_size: int, unroll_length_steps: int) -> int:
        """Steps in a batch, at most."""
        return batch_size * unroll_length_steps if self.samples_sequences else batch_size

    def steps_before_update(self, batch_size: int, unroll_length_steps: int) -> int:
        """Steps that must have come in before a first batch is due; `RateLimiter` has the rule."""
        if self.samples_per_insert is None:
            return self.min_size_steps
        return self.min_size_steps + math.ceil(self.steps_of(batch_size, unroll_length_steps) / self.samples_per_insert)

    @model_validator(mode="after")
    def _can_be_sampled(self) -> Self:
        if self.min_size_steps > self.capacity_steps:
            raise ValueError(
                f"min_size_steps: {self.min_size_steps} can never be there with capacity_steps: {self.capacity_steps}"
            )
        if self.samples_sequences and self.n_step > 1:
            raise ValueError(f"n_step: {self.n_step} is of single transitions; sampler.kind: sequences has none")
        return self
