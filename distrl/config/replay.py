"""Parameters of the replay memory, on the learner's side of the stream: item x sampler x rate limiter."""

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from distrl.config.hindsight import HindsightParameters, check_goals
from distrl.config.network import NetworkParameters
from distrl.config.schedules import LinearSchedule, Schedule, check_spelled_out, within
from distrl.config.section import Section
from distrl.errors import ConfigError

if TYPE_CHECKING:  # it brings NumPy, which the command line does without
    from distrl.types import EnvSpec


class TransitionParameters(Section):
    """Single steps, each with what it led to n steps on."""

    burn_in_steps: ClassVar[int] = 0

    kind: Literal["transition"] = "transition"
    n_step: int = Field(1, ge=1)
    """Rewards before the bootstrap; fewer if the episode or the unroll ends earlier."""
    terminations: bool = True
    """Sample transitions that end with the episode's termination. false leaves them out, and then neither the reward of
    an episode's last step nor that nothing follows is learned. Truncated episodes are sampled as a whole."""

    def state_rows(self, unroll_length_steps: int) -> range:
        """Return the rows of an unroll before which it holds the policy's recurrent state: of every kind, row 0."""
        return range(1)

    def steps(self, unroll_length_steps: int) -> int:
        """Return the number of rows of one item in a batch."""
        return 1

    def trained_steps(self, unroll_length_steps: int) -> int:
        """Return the number of steps of one item that the loss sees, at most."""
        return 1

    def check(self, unroll_length_steps: int, network: NetworkParameters) -> None:
        """Refuse a network with memory, for which a transition has no state."""
        if network.has_memory:
            raise ValueError(
                "algorithm.replay.item.kind: transition has no recurrent state, and network.middleware_parameters: "
                f"{network.middleware_parameters.kind} has memory; use sequence"
            )


class SequenceParameters(Section):
    """Consecutive steps of one environment, with the recurrent state before the first."""

    kind: Literal["sequence"] = "sequence"
    length_steps: int | None = Field(None, ge=1)
    """Steps of a sequence, burn-in included; null: those of an unroll. Sequences lie within one unroll."""
    overlap_steps: int = Field(0, ge=0)
    """Steps that a sequence shares with the next one."""
    burn_in_steps: int = Field(0, ge=0)
    """Steps at the start of a sequence that only bring the recurrent state up to date (Kapturowski et al. 2019): the
    loss does not see them, and no gradient flows through them."""
    n_step: int = Field(1, ge=1)
    """Rewards before the bootstrap; fewer if the episode or the sequence ends earlier."""

    def steps(self, unroll_length_steps: int) -> int:
        """Return the number of rows of one item in a batch, burn-in included."""
        return self.length_steps or unroll_length_steps

    def state_rows(self, unroll_length_steps: int) -> range:
        """Return the rows of an unroll at which sequences start: the unroll holds the recurrent state before each."""
        length = self.steps(unroll_length_steps)
        return range(0, unroll_length_steps - length + 1, length - self.overlap_steps)

    def trained_steps(self, unroll_length_steps: int) -> int:
        """Return the number of steps of one item that the loss sees, at most."""
        return self.steps(unroll_length_steps) - self.burn_in_steps

    def check(self, unroll_length_steps: int, network: NetworkParameters) -> None:
        """Refuse sequences that do not fill an unroll, and a burn-in of no use."""
        length, where = self.steps(unroll_length_steps), "algorithm.replay.item"
        for name, steps in (("overlap_steps", self.overlap_steps), ("burn_in_steps", self.burn_in_steps)):
            if steps >= length:
                raise ValueError(f"{where}.{name}: {steps} must be less than the {length} steps of a sequence")
        stride = length - self.overlap_steps
        if length > unroll_length_steps or (unroll_length_steps - length) % stride:
            raise ValueError(
                f"{where}: sequences of {length} steps that start every {stride} do not fill unrolls of "
                f"{unroll_length_steps} steps; set actors.unroll_length_steps to {length} plus a multiple of {stride}"
            )
        if self.overlap_steps and length == unroll_length_steps:
            raise ValueError(
                f"{where}.overlap_steps: an unroll of {length} steps holds one sequence, which shares no "
                f"{self.overlap_steps} steps with another; set actors.unroll_length_steps to {length} plus a multiple "
                f"of {stride}, or leave it out"
            )
        if self.burn_in_steps and not network.has_memory:
            raise ValueError(
                f"{where}.burn_in_steps: {self.burn_in_steps} steps bring a recurrent state up to date, and the "
                "network has none; leave it out, or use the middleware lstm or gru"
            )


def _item_kind(value: Any) -> Any:
    return value.get("kind", "transition") if isinstance(value, dict) else getattr(value, "kind", None)


ItemParameters = Annotated[
    Annotated[TransitionParameters, Tag("transition")] | Annotated[SequenceParameters, Tag("sequence")],
    Discriminator(_item_kind),
]


class UniformParameters(Section):
    """All stored items are equally likely."""

    kind: Literal["uniform"] = "uniform"


class PrioritizedParameters(Section):
    """Proportional prioritisation (Schaul et al. 2016, section 3.3): P(i) = p_i^alpha / sum, p_i = priority + epsilon.

    New items have the highest priority seen so far, unless their actors send priorities. Losses are weighted by
    (N P(i))^-beta, divided by the greatest such weight of all stored items. The priority of a sequence is .9 times the
    greatest of its steps plus .1 times their mean (Kapturowski et al. 2019).
    """

    kind: Literal["prioritized"] = "prioritized"
    alpha: float = Field(0.6, ge=0.0)
    """0: as uniform."""
    beta: Schedule = LinearSchedule(start=0.4, end=1.0, steps=100_000)
    """A number or a schedule; one that moves needs start, end and steps. Default: from .4 to 1 within 100,000
    environment steps; R2D2's is .6."""
    epsilon: float = Field(1e-6, ge=0.0)
    new_items_first: bool = False
    """Begin each batch with items that no batch has held yet, the oldest first, and draw only the rest by priority.
    Actors send no priorities then. Off by default: new items take up to a whole batch whatever their error, and
    importance weights do not correct for that."""

    @model_validator(mode="after")
    def _beta_is_a_share(self) -> Self:
        check_spelled_out("beta", self.beta)
        within("beta", self.beta, 0.0, 1.0)
        return self


class BalancedParameters(Section):
    """As many items of each choice of the action as of any other, or one more; of those with one choice all are equally
    likely. For transitions, in environments with a single action, a choice."""

    kind: Literal["balanced"] = "balanced"


SamplerParameters = Annotated[
    UniformParameters | PrioritizedParameters | BalancedParameters, Field(discriminator="kind")
]

SHARE_OF_GREATEST = 0.9
"""eta of Kapturowski et al. 2019, section 2.3: a sequence's priority is eta max + (1 - eta) mean of its steps'."""


class ReplayParameters(Section):
    """The replay memory: what it samples, how, and how often."""

    capacity_steps: int = Field(100_000, ge=1)
    """Environment steps kept, in whole unrolls; the oldest unrolls make room."""
    min_size_steps: int = Field(1_000, ge=1)
    """Number of stored steps from which sampling begins."""
    samples_per_insert: float | None = Field(8.0, gt=0.0)
    """Number of times that a step is sampled on average; actors and learner wait for each other to keep it. Steps up to
    `min_size_steps` do not count. null: both go as fast as they can, and the learner inserts at most one unroll per
    update."""
    item: ItemParameters = TransitionParameters()
    """Kind of items in a batch; `transition` if `kind` is left out."""
    sampler: SamplerParameters = UniformParameters()
    """How items are chosen for a batch."""
    hindsight: HindsightParameters | None = None
    """Hindsight experience replay, for environments with goals: {} for the usual one; null: none."""
    checkpoint: bool | None = None
    """Save the memory with every checkpoint. Otherwise a resumed run fills it again before it continues to learn. null:
    only with actors.count 0, where a resumed run continues exactly."""

    @property
    def takes_first_priorities(self) -> bool:
        """Whether it makes a difference which priorities new items come with."""
        return isinstance(self.sampler, PrioritizedParameters) and not self.sampler.new_items_first

    def slots(self, unroll_steps: int) -> int:
        """Return the number of unrolls kept, of `unroll_steps` rows (T x B) each."""
        return self.capacity_steps // unroll_steps

    def steps_of(self, batch_size: int, unroll_length_steps: int) -> int:
        """Return the number of steps in a batch that the loss sees, at most."""
        return batch_size * self.item.trained_steps(unroll_length_steps)

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

    def check_spec(self, spec: "EnvSpec") -> None:
        """Refuse an environment without the goals or the single choice that hindsight or sampler are made for.

        Raises:
            ConfigError: It lacks them.
        """
        if self.hindsight is not None:
            check_goals(spec)
        if self.sampler.kind == "balanced" and [action.kind for action in spec.actions.values()] != ["discrete"]:
            found = ", ".join(f"{name} ({action.kind})" for name, action in spec.actions.items())
            raise ConfigError(
                f"algorithm.replay.sampler.kind: balanced is for a single action, a choice; {spec.id} has {found}; use "
                "uniform or prioritized"
            )

    @field_validator("sampler", mode="before")
    @classmethod
    def _is_no_item(cls, sampler: Any) -> Any:
        if isinstance(sampler, dict) and sampler.get("kind") == "sequences":
            raise ValueError("kind: sequences is a kind of item; write algorithm.replay.item.kind=sequence")
        return sampler

    @model_validator(mode="after")
    def _can_be_relabelled(self) -> Self:
        if self.hindsight is None:
            return self
        if self.item.kind != "transition":
            raise ValueError(
                f"hindsight: it gives single transitions another goal, and item.kind is {self.item.kind}; use "
                "transition, or set hindsight to null"
            )
        if self.item.n_step > 1:
            raise ValueError(
                f"hindsight: the rewards of item.n_step: {self.item.n_step} steps are summed for one goal; set "
                "item.n_step to 1, or hindsight to null"
            )
        if not self.item.terminations:
            raise ValueError(
                "hindsight: transitions with another goal may terminate, and item.terminations: false leaves out those "
                "that do; set item.terminations to true, or hindsight to null"
            )
        return self

    @model_validator(mode="after")
    def _can_be_sampled(self) -> Self:
        if self.sampler.kind == "balanced" and self.item.kind != "transition":
            raise ValueError(
                f"sampler.kind: balanced needs items with one choice each, and item.kind is {self.item.kind}; use "
                "transition, or another sampler"
            )
        if self.min_size_steps > self.capacity_steps:
            raise ValueError(
                f"min_size_steps: {self.min_size_steps} can never be there with capacity_steps: {self.capacity_steps}"
            )
        return self
