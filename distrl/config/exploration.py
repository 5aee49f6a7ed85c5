"""Exploration of actors, in addition to the policy's own distribution. Part of the policy bundle.

Schedules follow the progress that is published with the weights. It is 0 before the first update: with a replay memory,
schedules stay at their start until the memory holds `replay.min_size_steps`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from distrl.config.schedules import AnySchedule, ConstantSchedule, LinearSchedule, Schedule, constant, within
from distrl.config.section import Section

BOUNDS: Mapping[str, tuple[float, float]] = {"epsilon": (0.0, 1.0), "temperature": (1e-6, 1e6), "stddev": (0.0, 1e6)}
"""Schedule -> the lowest and the highest value that it may take; meaningful ones are far from 1e6."""


class ExplorationSection(Section):
    """Fields of every kind of exploration.

    Attributes:
        tells_probabilities: Whether the probability of every action under the exploring policy is known and travels.
    """

    tells_probabilities: ClassVar[bool] = True

    random_steps: int = Field(0, ge=0)
    """Uniformly random actions until all actors together have made so many environment steps. Actors learn the count
    with new weights: with a replay memory, this takes at least `replay.min_size_steps`."""

    @model_validator(mode="after")
    def _schedules_stay_within_bounds(self) -> Self:
        for name, (low, high) in BOUNDS.items():
            schedule = getattr(self, name, None)
            if schedule is not None and not isinstance(schedule, EpsilonLadder | EpsilonByEpisode):
                within(name, schedule, low, high)
        return self


class PolicySamplingParameters(ExplorationSection):
    """Actions are drawn from the policy's own distribution."""

    kind: Literal["policy"] = "policy"


class GreedyParameters(ExplorationSection):
    """The policy's best action, its distribution's mode: no exploration."""

    tells_probabilities: ClassVar[bool] = False

    kind: Literal["greedy"] = "greedy"


class EpsilonLadder(Section):
    """Every environment, or every actor, has a fixed epsilon of its own: base^(1 + exponent i / (N - 1)) for the
    i-th of N (Horgan et al. 2018, section 4.1); `base` where N is 1."""

    kind: Literal["ladder"] = "ladder"
    base: float = Field(0.4, gt=0.0, le=1.0)
    exponent: float = Field(7.0, ge=0.0)
    over: Literal["environments", "actors"] = "environments"


class EpsilonByEpisode(Section):
    """Epsilon is drawn at every step from [0, 1 / (1 + n)) in an environment's n-th episode, counted from 0 since its
    actor started."""

    kind: Literal["by_episode"] = "by_episode"


_ByKind = Annotated[AnySchedule | EpsilonLadder | EpsilonByEpisode, Field(discriminator="kind")]
Epsilon = Annotated[_ByKind, BeforeValidator(constant, json_schema_input_type=float | _ByKind)]


class EpsilonGreedyParameters(ExplorationSection):
    """With probability epsilon a uniformly drawn action, otherwise the one of greatest value, or one drawn from the
    policy."""

    kind: Literal["epsilon_greedy"] = "epsilon_greedy"
    epsilon: Epsilon = LinearSchedule()


class MemberParameters(ExplorationSection):
    """Every episode follows the values of one member of an ensemble, drawn at its start (Osband et al. 2016); with
    probability epsilon a uniformly drawn action instead."""

    kind: Literal["member"] = "member"
    epsilon: Epsilon = ConstantSchedule(value=0.0)


class UcbParameters(ExplorationSection):
    """The choice of the greatest mean + deviations x deviation over the members of an ensemble of values (Chen et al.
    2017); with probability epsilon a uniformly drawn action instead. In evaluations the head's `decides` counts."""

    kind: Literal["ucb"] = "ucb"
    deviations: float = Field(0.1, ge=0.0)
    epsilon: Epsilon = LinearSchedule()


class BoltzmannParameters(ExplorationSection):
    """Actions are drawn from softmax(values / temperature), or from softmax(logits / temperature) of a policy; for
    choices and switches only."""

    kind: Literal["boltzmann"] = "boltzmann"
    temperature: Schedule = ConstantSchedule(value=1.0)


class NoiseSection(ExplorationSection):
    """Noise on the policy's best action, which is then clipped to the action's bounds; for real numbers only."""

    tells_probabilities: ClassVar[bool] = False

    unit: Literal["range", "action"] = "action"
    """Unit of the noise: the distance between the action's bounds, or the action's own unit."""


class GaussianNoiseParameters(NoiseSection):
    """Independent normal noise."""

    kind: Literal["gaussian_noise"] = "gaussian_noise"
    mean: float = 0.0
    stddev: Schedule = ConstantSchedule(value=0.1)
    unit: Literal["range", "action"] = "range"


class TruncatedGaussianNoiseParameters(ExplorationSection):
    """The policy's best action with normal noise, drawn again where it would leave the action's bounds: it is never
    clipped, so that no action is at a bound by chance."""

    tells_probabilities: ClassVar[bool] = False

    kind: Literal["truncated_gaussian_noise"] = "truncated_gaussian_noise"
    stddev: Schedule = ConstantSchedule(value=0.1)
    """Standard deviation before the truncation, in units of the distance between the action's bounds."""


class OrnsteinUhlenbeckParameters(NoiseSection):
    """x += theta (mean - x) dt + sigma sqrt(dt) N(0, 1) in every environment, from 0 in every episode."""

    kind: Literal["ornstein_uhlenbeck"] = "ornstein_uhlenbeck"
    mean: float = 0.0
    theta: float = Field(0.15, ge=0.0)
    sigma: float = Field(0.2, ge=0.0)
    dt: float = Field(0.01, gt=0.0)

    @model_validator(mode="after")
    def _returns_to_the_mean(self) -> Self:
        if self.theta * self.dt >= 2.0:
            raise ValueError(f"theta * dt: {self.theta * self.dt:g} must be below 2, or the process explodes")
        return self


class ConstantNoiseParameters(NoiseSection):
    """A constant value."""

    kind: Literal["constant_noise"] = "constant_noise"
    value: float = 0.0


class NoisyNetworkParameters(ExplorationSection):
    """Every unroll has its own noise in the network's noisy layers, at the strength that these have learned; actions
    then follow the policy's distribution, or the greatest value."""

    kind: Literal["noisy_network"] = "noisy_network"


class ParameterNoiseParameters(ExplorationSection):
    """Every unroll has its own normal noise on all trained weights; actions then follow the policy's distribution, or
    the greatest value."""

    kind: Literal["parameter_noise"] = "parameter_noise"
    stddev: Schedule = ConstantSchedule(value=0.01)


ActionExploration = Annotated[
    PolicySamplingParameters
    | GreedyParameters
    | EpsilonGreedyParameters
    | MemberParameters
    | UcbParameters
    | BoltzmannParameters
    | GaussianNoiseParameters
    | TruncatedGaussianNoiseParameters
    | OrnsteinUhlenbeckParameters
    | ConstantNoiseParameters,
    Field(discriminator="kind"),
]
"""Exploration of a single action."""


class PerActionParameters(ExplorationSection):
    """One exploration for each action; actions that are not named follow the policy's distribution."""

    kind: Literal["per_action"] = "per_action"
    per_action: dict[str, ActionExploration] = Field(min_length=1)

    @model_validator(mode="after")
    def _begins_together(self) -> Self:
        for action, exploration in self.per_action.items():
            if exploration.random_steps:
                raise ValueError(
                    f"per_action.{action}.random_steps: {exploration.random_steps} must stand beside per_action, "
                    "as all actions begin together"
                )
        return self


def _with_kind(value: Any) -> Any:
    """Add the kind, which may be left out beside `per_action`."""
    return {"kind": "per_action", **value} if isinstance(value, dict) and "per_action" in value else value


ExplorationParameters = Annotated[
    Annotated[
        ActionExploration | NoisyNetworkParameters | ParameterNoiseParameters | PerActionParameters,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_with_kind),
]


def tells_probabilities(exploration: ExplorationParameters) -> bool:
    """Return whether the joint probability of an environment's actions is known under this exploration."""
    if isinstance(exploration, PerActionParameters):
        return all(one.tells_probabilities for one in exploration.per_action.values())
    return exploration.tells_probabilities


def check_exploration(exploration: ExplorationParameters, where: str, algorithm: str, learns_from: str) -> None:
    """Refuse an exploration whose actions the algorithm cannot learn from.

    Args:
        where: The setting's path, for the message.
        learns_from: The algorithm's, see `AlgorithmSection.learns_from`.
    """
    if learns_from == "own policy" and (exploration.kind != "policy" or exploration.random_steps):
        what = f"kind: {exploration.kind}" if exploration.kind != "policy" else "random_steps"
        raise ValueError(
            f"{where}.{what} is of algorithms that correct for it; {algorithm} learns from the actions of its own "
            "policy alone: leave it out"
        )
    if learns_from == "known probabilities" and not tells_probabilities(exploration):
        raise ValueError(
            f"{where}.kind: {exploration.kind} knows no probabilities of its actions, by which {algorithm} weighs "
            "them; use policy, epsilon_greedy, boltzmann, noisy_network or parameter_noise"
        )
