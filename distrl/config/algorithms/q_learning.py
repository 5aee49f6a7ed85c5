"""Parameters of algorithms that learn values of choices from a replay memory: DQN, Ape-X, R2D2 and bootstrapped DQN."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms.section import AlgorithmContext, AlgorithmSection, LearnsFrom, or_one_choice
from distrl.config.exploration import EpsilonGreedyParameters, EpsilonLadder, ExplorationParameters, MemberParameters
from distrl.config.replay import (
    ItemParameters,
    PrioritizedParameters,
    ReplayParameters,
    SamplerParameters,
    SequenceParameters,
    TransitionParameters,
)
from distrl.config.schedules import ConstantSchedule
from distrl.config.section import Section
from distrl.errors import ConfigError

if TYPE_CHECKING:  # it brings NumPy, which the command line does without
    from distrl.types import EnvSpec

RESCALING = 1e-3
"""epsilon of h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018, arXiv:1805.11593, section 3.2)."""


class QLearningSection(AlgorithmSection):
    """The replay memory, and the target network of the values of choices."""

    batch_size: ClassVar[int] = 32
    learns_from: ClassVar[LearnsFrom] = "anybody"
    exploration: ClassVar[ExplorationParameters | None] = EpsilonGreedyParameters()

    double: bool = False
    """The online network selects the best choice, the target network values it (van Hasselt et al. 2016)."""
    target_update_every_updates: int = Field(10_000, ge=1)
    """Every so many updates the target network moves towards the online one, by `target_update_rate`."""
    target_update_rate: float = Field(1.0, gt=0.0, le=1.0)
    """target = rate * online + (1 - rate) * target. 1: it becomes a copy; .005 with every update: it follows slowly."""
    replay: ReplayParameters = ReplayParameters()
    """The replay memory."""

    @property
    def prioritized(self) -> bool:
        """Whether items are sampled by their TD errors."""
        return self.replay.sampler.kind == "prioritized"

    def check_actions(self, spec: "EnvSpec") -> None:
        for name, action in spec.actions.items():
            if action.kind == "box":
                what = f"algorithm {self.name}: action {name!r} of {spec.id}"
                raise ConfigError(f"{what} is {action.kind}, and only choices have values; use algorithm sac or ppo")


class OneChoiceSection(QLearningSection):
    """Parameters of algorithms that learn from single transitions, for one choice per step."""

    @model_validator(mode="after")
    def _samples_transitions(self) -> Self:
        if self.replay.item.kind != "transition":
            raise ValueError(f"replay.item.kind: {self.replay.item.kind}; {self.name} learns from single transitions")
        return self

    def check_actions(self, spec: "EnvSpec") -> None:
        super().check_actions(spec)
        kinds = [action.kind for action in spec.actions.values()]
        if kinds != ["discrete"]:
            what = f"algorithm {self.name}: {spec.id} has the actions {', '.join(kinds)}"
            raise ConfigError(
                f"{what}, and {self.name} learns values of one discrete action; use algorithm dqn{or_one_choice(spec)}"
            )


class AdvantageLearningParameters(Section):
    """Targets that widen the gap between the best choice and the others (Bellemare et al. 2016, arXiv:1512.04860).

    The target of a choice is lowered by alpha (V(s) - Q(s, a)), of the target network's values. The persistent form has
    alpha in place of the paper's discount for the second gap, as Coach does.
    """

    alpha: float = Field(0.9, ge=0.0, lt=1.0)
    persistent: bool = True
    """Lower it by alpha times the smaller of two gaps instead: in this state, and of the same choice in the next."""


class DqnSection(QLearningSection):
    """Parameters of DQN, Ape-X and R2D2, whose values are numbers."""

    implementation: ClassVar[str] = "distrl.algorithms.dqn:Dqn"

    dueling: bool = False
    """The head is dueling_q: state value plus advantages (Wang et al. 2016), instead of q."""
    value_rescaling: bool = False
    """The network learns h(Q), h(x) = sign(x) (sqrt(|x| + 1) - 1) + .001 x (Pohlen et al. 2018, arXiv:1805.11593),
    so that large returns need no clipped rewards."""
    advantage_learning: AdvantageLearningParameters | None = None
    """(Persistent) advantage learning: {} for the usual one; null: none."""
    monte_carlo_share: float = Field(0.0, ge=0.0, le=1.0)
    """eta of mixed Monte Carlo, (1 - eta) target + eta return (Ostrovski et al. 2017, arXiv:1703.01310, section 5): the
    discounted rewards up to the episode's end, or to the sequence's end and the value there."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        item = self.replay.item
        if self.advantage_learning is not None and self.value_rescaling:
            raise ValueError(
                "algorithm.advantage_learning: gaps are of values, and value_rescaling learns h(Q); set "
                "algorithm.value_rescaling to false, or leave advantage_learning out"
            )
        if self.advantage_learning is not None and self.advantage_learning.persistent and item.n_step > 1:
            raise ValueError(
                "algorithm.advantage_learning.persistent: it repeats a choice one step on, and algorithm.replay.item."
                f"n_step is {item.n_step}; set n_step to 1, or persistent to false"
            )
        if self.monte_carlo_share and item.kind != "sequence":
            raise ValueError(
                f"algorithm.monte_carlo_share: a {item.kind} does not hold the rewards that follow it; set "
                "algorithm.replay.item.kind to sequence"
            )

    @property
    def masked_head(self) -> str | None:
        return "dueling_q" if self.dueling else "q"

    @property
    def rescales_values(self) -> bool:
        return self.value_rescaling


class DqnParameters(DqnSection):
    """DQN (Mnih et al. 2015, doi:10.1038/nature14236).

    Use it for tasks of choices in few environment steps.
    """

    name: Literal["dqn"] = "dqn"


class ApexReplayParameters(ReplayParameters):
    """The replay memory with Ape-X's defaults: three steps, prioritised, and no role waits for another one."""

    samples_per_insert: float | None = Field(None, gt=0.0)
    item: ItemParameters = TransitionParameters(n_step=3)
    sampler: SamplerParameters = PrioritizedParameters()


class ApexParameters(DqnSection):
    """Ape-X (Horgan et al. 2018, arXiv:1803.00933): DQN whose actors explore differently and prioritise first.

    Use it as `dqn`, with many actors.
    """

    batch_size: ClassVar[int] = 512
    exploration: ClassVar[ExplorationParameters | None] = EpsilonGreedyParameters(epsilon=EpsilonLadder())

    name: Literal["apex"] = "apex"
    double: bool = True
    dueling: bool = True
    target_update_every_updates: int = Field(2_500, ge=1)
    replay: ApexReplayParameters = ApexReplayParameters()
    """The replay memory."""

    @property
    def unroll_extras(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ask for first priorities (section 3) if the replay memory samples by them."""
        return ("priorities",) if self.replay.takes_first_priorities else ()


class R2d2SequenceParameters(SequenceParameters):
    """Sequences with R2D2's five steps."""

    n_step: int = Field(5, ge=1)
    """Rewards before the bootstrap; fewer if the episode or the sequence ends earlier."""


class R2d2ReplayParameters(ReplayParameters):
    """The replay memory with R2D2's defaults: prioritised sequences, here whole unrolls without burn-in."""

    samples_per_insert: float | None = Field(None, gt=0.0)
    item: R2d2SequenceParameters = R2d2SequenceParameters()
    sampler: SamplerParameters = PrioritizedParameters(alpha=0.9, beta=ConstantSchedule(value=0.6))


class R2d2Parameters(DqnSection):
    """R2D2 (Kapturowski et al. 2019): Ape-X of a recurrent network, which learns from sequences with stored states.

    Use it as `apex`, where the task needs memory.
    """

    batch_size: ClassVar[int] = 64
    exploration: ClassVar[ExplorationParameters | None] = EpsilonGreedyParameters(epsilon=EpsilonLadder())

    name: Literal["r2d2"] = "r2d2"
    discount: float = Field(0.997, ge=0.0, le=1.0)
    double: bool = True
    dueling: bool = True
    value_rescaling: bool = True
    target_update_every_updates: int = Field(2_500, ge=1)
    replay: R2d2ReplayParameters = R2d2ReplayParameters()
    """The replay memory."""

    @property
    def unroll_extras(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ask for first priorities if the replay memory samples by them."""
        return ("priorities",) if self.replay.takes_first_priorities else ()

    def check(self, context: AlgorithmContext) -> None:
        if not context.network.has_memory:
            kind = context.network.middleware_parameters.kind
            raise ValueError(
                f"network.middleware_parameters: {kind} has no memory, and r2d2 learns what a recurrent network needs; "
                "use lstm or gru, or algorithm apex"
            )
        super().check(context)


class BootstrappedDqnParameters(OneChoiceSection):
    """Bootstrapped DQN (Osband et al. 2016, arXiv:1602.04621): values by an ensemble; a member leads each episode.

    Use it as `dqn`, where rewards are far away: an ensemble explores consistently.
    """

    implementation: ClassVar[str] = "distrl.algorithms.bootstrapped_dqn:BootstrappedDqn"
    exploration: ClassVar[ExplorationParameters | None] = MemberParameters()

    name: Literal["bootstrapped_dqn"] = "bootstrapped_dqn"
    double: bool = True
    bootstrap_probability: float = Field(1.0, gt=0.0, le=1.0)
    """Probability with which a member learns from a transition, drawn once per transition and member (section 3); 1:
    all members learn from all transitions."""

    @property
    def masked_head(self) -> str | None:
        return "ensemble_q"
