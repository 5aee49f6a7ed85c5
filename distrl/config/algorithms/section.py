"""Parameters of every algorithm, and the parts of a run that an algorithm may read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from distrl.config.curiosity import CuriosityParameters
from distrl.config.exploration import ExplorationParameters
from distrl.config.network import NetworkParameters
from distrl.config.replay import ReplayParameters
from distrl.config.section import Section
from distrl.errors import ConfigError

if TYPE_CHECKING:  # it brings NumPy, which the command line does without
    from distrl.types import EnvSpec

Ships = Literal["unrolls", "gradients"]
LearnsFrom = Literal["own policy", "known probabilities", "anybody"]


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
        unroll_extras: Names of those of `unroll_schema.STEP_EXTRAS` that unrolls carry for it. "choice_probabilities":
            of all choices of the one discrete action, under the policy that acted. It must have drawn them without
            exploration: `learns_from` is "own policy". "priorities": first ones of all steps, for the replay memory.
        live: Numbers that operators may change while a run trains -> meaning. Losses read them by `coefficient`.
    """

    implementation: ClassVar[str]
    ships: ClassVar[Ships] = "unrolls"
    batch_size: ClassVar[int] = 4
    exploration: ClassVar[ExplorationParameters | None] = None
    learns_from: ClassVar[LearnsFrom] = "known probabilities"
    rounds: ClassVar[bool] = False
    unroll_extras: ClassVar[tuple[str, ...]] = ()
    live: ClassVar[Mapping[str, str]] = {}

    name: str
    discount: float = Field(0.99, ge=0.0, le=1.0)
    """gamma: factor of a reward for every step that it lies ahead."""
    max_staleness_updates: int | None = Field(None, ge=0)
    """0: synchronous. k: an unroll older than k updates is never trained on. null: bounded by the queue alone."""
    reward_scale: float = Field(1.0, gt=0.0)
    """Factor of rewards in the loss, applied after they are normalised; actors send raw rewards."""
    reward_normalization: RewardNormalizationParameters | None = None
    """{} for the usual one; null: none."""
    curiosity: CuriosityParameters | None = None
    """Intrinsic rewards, added to the others after these are normalised, clipped and scaled; null: none."""

    @property
    def replay_parameters(self) -> ReplayParameters | None:
        """The replay memory's parameters; None for algorithms that learn from the stream."""
        return getattr(self, "replay", None)

    def with_replay(self, parameters: ReplayParameters) -> Self:
        """Return the section with other parameters of the replay memory."""
        return self.model_copy(update={"replay": parameters})

    @property
    def masked_head(self) -> str | None:
        """Kind of its head that takes an action mask; None: it has no such head."""
        return None

    @property
    def takes_bonus(self) -> bool:
        """Whether its loss adds `Batch.bonus`, as `learned_rewards` does; built-in classes and their subclasses do."""
        return hasattr(self, "implementation")

    @property
    def rescales_values(self) -> bool:
        """Whether the network's values of choices are h(Q), h as of `algorithm.value_rescaling`."""
        return False

    @property
    def reward_moments_discount(self) -> float | None:
        """Discount of the returns whose moments actors report; 0 for moments of rewards, None for none."""
        if self.reward_normalization is None:
            return None
        return self.discount if self.reward_normalization.kind == "discounted_return" else 0.0

    def check(self, context: "AlgorithmContext") -> None:
        """Refuse a network or a batch that the algorithm cannot train.

        Raises:
            ValueError: It cannot; one line.
        """
        if self.rounds and self.max_staleness_updates is not None:
            raise ValueError(f"algorithm.max_staleness_updates: {self.name} is synchronous in any case; leave it out")
        self._check_curiosity(context)
        replay = self.replay_parameters
        if replay is None:
            return
        for field, why in (
            ("max_staleness_updates", "keeps unrolls of any age"),
            ("reward_normalization", "keeps rewards as they came"),
        ):
            if getattr(self, field) is not None:
                raise ValueError(f"algorithm.{field}: the replay memory of {self.name} {why}; leave it out")
        network = context.network
        if network.optimizer_type == "LBFGS":
            raise ValueError(
                f"network.optimizer_type: LBFGS needs the same batch again; {self.name} samples another one"
            )
        replay.item.check(context.unroll_length_steps, network)

    def _check_curiosity(self, context: "AlgorithmContext") -> None:
        if self.curiosity is None:
            return
        if self.ships == "gradients":
            raise ValueError(
                f"algorithm.curiosity: actors of {self.name} differentiate their own unrolls, and the networks of "
                "curiosity are in the learner; leave it out, or use ppo or impala"
            )
        if not self.takes_bonus:
            raise ValueError(
                f"algorithm.curiosity: the Parameters of {self.name} do not say that its loss adds the bonus; leave it "
                "out, or take learned_rewards and declare takes_bonus: ClassVar[bool] = True"
            )
        replay = self.replay_parameters
        length = context.unroll_length_steps if replay is None else replay.item.steps(context.unroll_length_steps)
        self.curiosity.check(length * context.sequences_per_batch, context.replicas)

    def check_actions(self, spec: "EnvSpec") -> None:
        """Refuse an environment whose actions the algorithm cannot choose, or whose probabilities cannot travel.

        Raises:
            ConfigError: It cannot.
        """
        kinds = [action.kind for action in spec.actions.values()]
        if "choice_probabilities" in self.unroll_extras and kinds != ["discrete"]:
            raise ConfigError(
                f"algorithm {self.name}: {spec.id} has the actions {', '.join(kinds)}, and it learns from the "
                f"probabilities of all choices of one discrete action; use algorithm impala{or_one_choice(spec)}"
            )


def or_one_choice(spec: "EnvSpec") -> str:
    """Return the end of an error: how preprocessing makes one choice of the only action; "" where it cannot."""
    if [action.kind for action in spec.actions.values()] not in (["multi_discrete"], ["multi_binary"]):
        return ""
    return ", or make one choice of all by environment.preprocessing=[{step: map_discrete}]"


@dataclass(frozen=True, kw_only=True)
class AlgorithmContext:
    """All that an algorithm may know of its run.

    Attributes:
        parameters: The section `algorithm`; in an algorithm's constructor an instance of its class' `Parameters`.
        network: The section `network`.
        seed: Root of all randomness.
        unroll_length_steps: T.
        sequences_per_batch: N, as of `RunConfig`: unrolls in a batch x environments of an actor, or items.
        replicas: Devices that share every batch.
        learns_from_data: Whether recorded episodes take the place of actors.
    """

    parameters: AlgorithmSection
    network: NetworkParameters
    seed: int
    unroll_length_steps: int
    sequences_per_batch: int
    replicas: int
    learns_from_data: bool
