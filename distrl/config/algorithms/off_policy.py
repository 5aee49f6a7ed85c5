"""Parameters of actor-critics from a replay memory: SAC, TQC, CrossQ, DDPG, NAF and TD3; discrete SAC.

All but the last are for real numbers within bounds.
"""

import math
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms.section import AlgorithmContext, AlgorithmSection, LearnsFrom, or_one_choice
from distrl.config.exploration import (
    ExplorationParameters,
    GaussianNoiseParameters,
    OrnsteinUhlenbeckParameters,
    PolicySamplingParameters,
)
from distrl.config.layers import MOST_UNITS, Count
from distrl.config.replay import ReplayParameters
from distrl.config.schedules import ConstantSchedule
from distrl.errors import ConfigError

if TYPE_CHECKING:  # it brings NumPy, which the command line does without
    from distrl.types import EnvSpec

ENTROPY_SHARE = 0.98
"""Share of the largest entropy that is discrete SAC's target (Christodoulou 2019, arXiv:1910.07207, table 2)."""


class OffPolicySection(AlgorithmSection):
    """The replay memory."""

    batch_size: ClassVar[int] = 256
    learns_from: ClassVar[LearnsFrom] = "anybody"
    takes_sequences: ClassVar[bool] = False
    """Whether it learns from sequences, too, and so can have memory."""

    replay: ReplayParameters = ReplayParameters(capacity_steps=1_000_000, samples_per_insert=256.0)
    """Updates per environment step are samples_per_insert / learner.batch_size: one by default. An update of sequences
    counts each of their steps without the burn-in."""

    def check(self, context: AlgorithmContext) -> None:
        if context.network.has_memory and not self.takes_sequences:
            raise ValueError(
                f"network.middleware_parameters: algorithm {self.name} learns from single transitions; use fc"
            )
        super().check(context)

    def check_actions(self, spec: "EnvSpec") -> None:
        for name, action in spec.actions.items():
            what = f"algorithm {self.name}: action {name!r} of {spec.id}"
            if action.kind != "box":
                other = "discrete_sac" if action.kind == "discrete" and len(spec.actions) == 1 else "impala"
                raise ConfigError(f"{what} is {action.kind}, which it does not take; use algorithm {other}")
            if (place := action.unscaled) is not None:
                raise ConfigError(
                    f"{what} has the bounds {action.bounds_of(place)}, by which it cannot be scaled to [-1, 1]; bound "
                    "the environment's action space, or use algorithm impala"
                )
            if any(low == high for low, high in zip(action.low, action.high, strict=True)):
                raise ConfigError(
                    f"{what} has equal lower and upper bounds; remove such actions from the environment's space"
                )

    @model_validator(mode="after")
    def _samples_what_it_learns_from(self) -> Self:
        item = self.replay.item
        if item.kind == "sequence" and not self.takes_sequences:
            raise ValueError(f"replay.item.kind: {item.kind}; {self.name} learns from single transitions")
        if item.kind == "sequence" and item.n_step != 1:
            raise ValueError(
                f"replay.item.n_step: {item.n_step}; {self.name} learns from single steps of sequences; use 1"
            )
        return self


class TargetsSection(OffPolicySection):
    """Fields of algorithms with target copies."""

    target_update_rate: float = Field(0.005, gt=0.0, le=1.0)
    """Rate of the target copies: target = rate * online + (1 - rate) * target."""


class OneActionSection(TargetsSection):
    """Algorithms whose best action is an output of the network: of one action of real numbers within bounds."""

    def check_actions(self, spec: "EnvSpec") -> None:
        super().check_actions(spec)
        if len(spec.actions) > 1:
            raise ConfigError(
                f"algorithm {self.name}: {spec.id} has the actions {', '.join(spec.actions)}, and it takes a single "
                "one; use algorithm sac"
            )


class PlainTargetsSection(OneActionSection):
    """Defaults that DDPG and NAF share: those of DDPG's paper, and random steps first."""

    batch_size: ClassVar[int] = 64
    exploration: ClassVar[ExplorationParameters | None] = OrnsteinUhlenbeckParameters(
        theta=0.15, sigma=0.1, dt=1.0, unit="range", random_steps=1_000
    )

    replay: ReplayParameters = ReplayParameters(capacity_steps=1_000_000, samples_per_insert=64.0)
    target_update_rate: float = Field(0.001, gt=0.0, le=1.0)


class CriticsSection(OffPolicySection):
    """Fields of actor-critics.

    A network with memory (`network.middleware_parameters.kind` lstm or gru) learns from sequences, as R2D2's: the
    policy's memory begins with the actor's state, the critics' at zero, and `replay.item.burn_in_steps` brings both up
    to date.
    """

    takes_sequences: ClassVar[bool] = True

    critic_learning_rate: float | None = Field(None, gt=0.0)
    """null: as network.learning_rate."""
    critic_layers: tuple[Count, ...] | None = None
    """Widths of the dense layers of each critic, in place of network.middleware_parameters.scheme; null: that one.
    With memory, of those behind it, beside the action if critics take one; null: one as wide as the memory."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        kind = context.network.middleware_parameters.kind
        if self.critic_layers is not None and kind not in ("fc", "lstm", "gru"):
            raise ValueError(
                f"algorithm.critic_layers: takes the place of an fc middleware's scheme, and this one is {kind}; "
                "leave it out"
            )


class EntropySection(CriticsSection):
    """Fields of actor-critics whose policy's entropy is held at a target."""

    exploration: ClassVar[ExplorationParameters | None] = PolicySamplingParameters(random_steps=1_000)

    temperature_learning_rate: float | None = Field(None, ge=0.0)
    """null: as network.learning_rate; 0: the temperature stays as it is."""
    initial_temperature: float = Field(1.0, gt=0.0)
    """Factor of the entropy beside the return, before it is tuned."""
    target_entropy: float | None = None
    """In nats, of actions scaled to [-1, 1], all of them together. null: -1 for each number in them."""


class SacParameters(TargetsSection, EntropySection):
    """SAC (Haarnoja et al. 2018, arXiv:1812.05905): off-policy, continuous actions, entropy held at a target.

    The optimizer of the policy is the section `network`'s; the critics have another one like it, the temperature Adam.

    Use it for continuous control in few environment steps.
    """

    implementation: ClassVar[str] = "distrl.algorithms.sac:Sac"

    name: Literal["sac"] = "sac"


class DiscreteSacParameters(TargetsSection, EntropySection):
    """Discrete SAC (Christodoulou 2019, arXiv:1910.07207): SAC for one choice, whose entropy is held at a target.

    The optimizer of the policy is the section `network`'s; the critics have another one like it, the temperature Adam.

    Use it as `sac`: a policy that is drawn from, with its entropy held at a target.
    """

    implementation: ClassVar[str] = "distrl.algorithms.discrete_sac:DiscreteSac"

    name: Literal["discrete_sac"] = "discrete_sac"
    target_entropy: float | None = Field(None, ge=0.0)
    """In nats. null: 0.98 of the largest, log of the number of choices that are allowed in the state."""

    @property
    def masked_head(self) -> str | None:
        return "policy"

    def check_actions(self, spec: "EnvSpec") -> None:
        actions = [*spec.actions.values()]
        if len(actions) != 1 or actions[0].kind != "discrete":
            kinds = ", ".join(action.kind for action in actions)
            other = "sac" if {action.kind for action in actions} == {"box"} else "impala"
            raise ConfigError(
                f"algorithm {self.name}: {spec.id} has the actions {kinds}, and its policy is of one discrete action; "
                f"use algorithm {other}{or_one_choice(spec)}"
            )
        largest = math.log(actions[0].n)
        if self.target_entropy is not None and self.target_entropy > largest:
            raise ConfigError(
                f"algorithm.target_entropy: {self.target_entropy:g} nats cannot be reached by {actions[0].n} choices, "
                f"whose largest entropy is {largest:.3f}; set a lower one"
            )


class TqcParameters(TargetsSection, EntropySection):
    """TQC (Kuznetsov et al. 2020, arXiv:2005.04269): SAC with critics of the distribution of returns, truncated.

    The optimizer of the policy is the section `network`'s; the critics have another one like it, the temperature Adam.

    Use it as `sac`, with a distribution of returns; slower updates.
    """

    implementation: ClassVar[str] = "distrl.algorithms.tqc:Tqc"

    name: Literal["tqc"] = "tqc"
    critics: int = Field(5, ge=1)
    """Number of critics."""
    quantiles: int = Field(25, ge=1, le=MOST_UNITS)
    """Quantiles of each critic."""
    dropped_quantiles: int = Field(2, ge=0)
    """For each critic, so many of the largest quantiles are left out of the targets; the more, the lower these are."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        if context.network.replace_mse_with_huber_loss:
            raise ValueError(
                "network.replace_mse_with_huber_loss: the quantile loss of tqc is Huber's in any case; leave it out"
            )

    @model_validator(mode="after")
    def _keeps_quantiles(self) -> Self:
        if self.dropped_quantiles >= self.quantiles:
            raise ValueError(
                f"dropped_quantiles: {self.dropped_quantiles} of {self.quantiles} quantiles leaves none; use fewer"
            )
        return self


class CrossqParameters(EntropySection):
    """CrossQ (Bhatt et al. 2024, arXiv:1902.05605): SAC without target copies, with batch renormalisation.

    Every layer of the policy and of the critics, and what enters the first one, is normalised. The optimizer of the
    policy is the section `network`'s; the critics have another one like it, the temperature Adam.

    Use it as `sac`, in fewer environment steps and with more work for each.
    """

    implementation: ClassVar[str] = "distrl.algorithms.crossq:Crossq"
    takes_sequences: ClassVar[bool] = False

    name: Literal["crossq"] = "crossq"
    critic_layers: tuple[Count, ...] | None = (2048, 2048)
    policy_every_updates: int = Field(3, ge=1)
    """Updates of the critics for each update of the policy and the temperature."""
    batch_norm_momentum: float = Field(0.99, ge=0.0, lt=1.0)
    """Share of the running moments that stays with every update."""
    batch_norm_warm_up_updates: int = Field(100_000, ge=0)
    """So many updates normalise by the batch's own moments; then these are corrected towards the running ones."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        network = context.network
        middleware = network.middleware_parameters
        if middleware.kind != "fc":
            raise ValueError(
                f"network.middleware_parameters.kind: crossq normalises the layers of fc, not of {middleware.kind}; "
                "use fc or algorithm sac"
            )
        if middleware.batchnorm:
            raise ValueError("network.middleware_parameters.batchnorm: crossq normalises every layer; leave it out")
        if network.create_target_network:
            raise ValueError("network.create_target_network: crossq has no target copies; leave it out")


class DdpgParameters(PlainTargetsSection, CriticsSection):
    """DDPG (Lillicrap et al. 2016, arXiv:1509.02971): off-policy, continuous actions, a deterministic policy.

    The optimizer of the policy is the section `network`'s; the critic has another one like it. The policy takes one
    action of real numbers within bounds.

    Use it as the plain form of `td3`: a baseline.
    """

    implementation: ClassVar[str] = "distrl.algorithms.ddpg:Ddpg"

    name: Literal["ddpg"] = "ddpg"


class NafParameters(PlainTargetsSection):
    """NAF (Gu et al. 2016, arXiv:1603.00748): Q-learning of one action of real numbers within bounds.

    One network has the best action, its value, and how values fall off around it: the head naf.

    Use it for Q-learning instead of an actor-critic: one network, cheap updates.
    """

    implementation: ClassVar[str] = "distrl.algorithms.naf:Naf"

    name: Literal["naf"] = "naf"


class Td3Section(OneActionSection, CriticsSection):
    """Fields of TD3 and of what is made of it."""

    exploration: ClassVar[ExplorationParameters | None] = GaussianNoiseParameters(
        stddev=ConstantSchedule(value=0.05), random_steps=1_000
    )

    policy_every_updates: int = Field(2, ge=1)
    """Updates of the critics for each update of the policy and the target copies."""
    target_noise: float = Field(0.2, ge=0.0)
    """Standard deviation of the noise on the target policy's actions, which are scaled to [-1, 1]."""
    target_noise_clip: float = Field(0.5, ge=0.0)
    """The noise is clipped to +- this."""


class Td3Parameters(Td3Section):
    """TD3 (Fujimoto et al. 2018, arXiv:1802.09477): off-policy, continuous actions, a deterministic policy.

    The optimizer of the policy is the section `network`'s; the critics have another one like it. The policy takes one
    action of real numbers within bounds.

    Use it as `sac`, with a deterministic policy.
    """

    implementation: ClassVar[str] = "distrl.algorithms.td3:Td3"

    name: Literal["td3"] = "td3"
