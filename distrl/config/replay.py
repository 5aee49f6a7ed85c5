"""Parameters of the replay memory, on the learner's side of the stream."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distrl.config.section import Section


class UniformParameters(Section):
    """All stored steps are equally likely."""

    kind: Literal["uniform"] = "uniform"


class PrioritizedParameters(Section):
    """Proportional prioritisation (Schaul et al. 2016, section 3.3): P(i) = p_i^alpha / sum, p_i = priority + epsilon.

    New steps have the highest priority seen so far, unless their actors send priorities. Losses are weighted by
    (N P(i))^-beta, divided by the greatest such weight of all stored steps.
    """

    kind: Literal["prioritized"] = "prioritized"
    alpha: float = Field(0.6, ge=0.0)
    """0: as uniform."""
    beta: float = Field(0.4, ge=0.0, le=1.0)
    """Beta at the beginning."""
    beta_final: float = Field(1.0, ge=0.0, le=1.0)
    """Beta from `beta_steps` on; in between it moves linearly."""
    beta_steps: int = Field(100_000, ge=1)
    """Environment steps of all actors."""
    epsilon: float = Field(1e-6, ge=0.0)


class SequenceParameters(Section):
    """All steps of one environment's unroll together, with the recurrent state before them; sampled uniformly."""

    kind: Literal["sequences"] = "sequences"


SamplerParameters = Annotated[
    UniformParameters | PrioritizedParameters | SequenceParameters, Field(discriminator="kind")
]


class ReplayParameters(Section):
    """The replay memory: its size, and how and how often it is sampled."""

    capacity_steps: int = Field(100_000, ge=1)
    """Environment steps kept, in whole unrolls; the oldest unrolls make room."""
    min_size_steps: int = Field(1_000, ge=1)
    """Sampling begins when the memory holds so many steps."""
    samples_per_insert: float | None = Field(8.0, gt=0.0)
    """Number of times that a step is sampled on average; actors and learner wait for each other to keep it. Steps up to
    `min_size_steps` do not count. null: both go as fast as they can, and the learner inserts at most one unroll per
    update."""
    n_step: int = Field(1, ge=1)
    """Rewards before the bootstrap; fewer if the episode or the unroll ends earlier."""
    sampler: SamplerParameters = UniformParameters()
    """How steps are chosen for a batch."""
    checkpoint: bool | None = None
    """Save the memory with every checkpoint. Otherwise a resumed run fills it again before it continues to learn. null:
    only with actors.count 0, where a resumed run continues exactly."""

    @property
    def samples_sequences(self) -> bool:
        """Whether it samples columns of unrolls instead of single transitions."""
        return self.sampler.kind == "sequences"

    def slots(self, unroll_steps: int) -> int:
        """Return the number of unrolls kept, of `unroll_steps` rows (T x B) each."""
        return self.capacity_steps // unroll_steps

    def steps_of(self, batch_size: int, unroll_length_steps: int) -> int:
        """Return the number of steps in a batch, at most."""
        return batch_size * unroll_length_steps if self.samples_sequences else batch_size

    def steps_before_update(self, batch_size: int, unroll_length_steps: int) -> int:
        """Return the number of steps that must arrive before the first batch; `RateLimiter` has the rule."""
        if self.samples_per_insert is None:
            return self.min_size_steps
        return self.min_size_steps + math.ceil(self.steps_of(batch_size, unroll_length_steps) / self.samples_per_insert)

    def check_capacity(self, actors: int, unroll_steps: int) -> None:
        """Refuse a memory that cannot hold an unroll of every actor, or never enough to be sampled.

        Args:
            unroll_steps: Rows of one unroll, T x B.
        """
        least = actors * unroll_steps
        if self.capacity_steps < least:
            raise ValueError(
                f"algorithm.replay.capacity_steps: {self.capacity_steps} is less than one unroll of every actor: "
                f"{least} steps (actors.count x environments x unroll_length_steps)"
            )
        if (kept := self.slots(unroll_steps) * unroll_steps) < self.min_size_steps:
            raise ValueError(
                f"algorithm.replay.min_size_steps: {self.min_size_steps} can never be there: whole unrolls of "
                f"{unroll_steps} steps make {kept} of capacity_steps: {self.capacity_steps}"
            )

    @model_validator(mode="after")
    def _can_be_sampled(self) -> Self:
        if self.min_size_steps > self.capacity_steps:
            raise ValueError(
                f"min_size_steps: {self.min_size_steps} can never be there with capacity_steps: {self.capacity_steps}"
            )
        if self.samples_sequences and self.n_step > 1:
            raise ValueError(f"n_step: {self.n_step} is of single transitions; sampler.kind: sequences has none")
        return self
