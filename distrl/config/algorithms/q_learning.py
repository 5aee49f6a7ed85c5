"""Parameters of algorithms that learn values of choices from a replay memory: DQN and Ape-X."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from distrl.config.algorithms.section import AlgorithmSection, LearnsFrom
from distrl.config.exploration import EpsilonGreedyParameters, EpsilonLadder, ExplorationParameters
from distrl.config.replay import (
    ItemParameters,
    PrioritizedParameters,
    ReplayParameters,
    SamplerParameters,
    TransitionParameters,
)
from distrl.errors import ConfigError

if TYPE_CHECKING:  # it brings NumPy, which the command line does without
    from distrl.types import EnvSpec


class QLearningSection(AlgorithmSection):
    """Parameters of DQN and Ape-X."""

    implementation: ClassVar[str] = "distrl.algorithms.dqn:Dqn"
    batch_size: ClassVar[int] = 32
    learns_from: ClassVar[LearnsFrom] = "anybody"
    exploration: ClassVar[ExplorationParameters | None] = EpsilonGreedyParameters()

    double: bool = False
    """The online network selects the best choice, the target network values it (van Hasselt et al. 2016)."""
    dueling: bool = False
    """The head is dueling_q: state value plus advantages (Wang et al. 2016), instead of q."""
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


class DqnParameters(QLearningSection):
    """DQN (Mnih et al. 2015)."""

    name: Literal["dqn"] = "dqn"


class ApexReplayParameters(ReplayParameters):
    """The replay memory with Ape-X's defaults: three steps, prioritised, and no role waits for another one."""

    samples_per_insert: float | None = Field(None, gt=0.0)
    item: ItemParameters = TransitionParameters(n_step=3)
    sampler: SamplerParameters = PrioritizedParameters()


class ApexParameters(QLearningSection):
    """Ape-X (Horgan et al. 2018): DQN with all of these, whose actors explore differently and prioritise first."""

    batch_size: ClassVar[int] = 512
    exploration: ClassVar[ExplorationParameters | None] = EpsilonGreedyParameters(epsilon=EpsilonLadder())

    name: Literal["apex"] = "apex"
    double: bool = True
    dueling: bool = True
    target_update_every_updates: int = Field(2_500, ge=1)
    replay: ApexReplayParameters = ApexReplayParameters()
    """The replay memory."""

    @property
    def tells_priorities(self) -> bool:
        """Whether actors compute first priorities (section 3): if the replay memory samples by priorities."""
        return self.prioritized
