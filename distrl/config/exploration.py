"""How actors explore, beside what the policy's own distribution does. Part of the policy bundle.

Whatever changes with environment steps goes by those that the newest weights tell. Before the first update none are
known: with a replay memory, schedules stay where they start until `replay.min_size_steps` are there.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from distrl.config.schedules import (
    ConstantSchedule,
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
    Schedule,
    within,
)
from distrl.config.section import Section

LARGEST = 1e6
"""Of temperatures and deviations: whatever means something is below."""
SMALLEST_TEMPERATURE = 1e-6


class ExplorationSection(Section):
    """What every kind of exploration has.

    Attributes:
        tells_probabilities: Whether the probability of every action under the exploring policy is known and travels.
    """

    tells_probabilities: ClassVar[bool] = True

    random_steps: int = Field(0, ge=0)
    """Uniformly random actions until all actors together have made so many environment steps, and know of it: with a
    replay memory not before the first update, so that it is `replay.min_size_steps` at least."""


class PolicySamplingParameters(ExplorationSection):
    """Actions are drawn from the policy's own distribution."""

    kind: Literal["policy"] = "policy"


class GreedyParameters(ExplorationSection):
    """The policy's best action, its distribution's mode: no exploration."""

    tells_probabilities: ClassVar[bool] = False

    kind: Literal["greedy"] = "greedy"


class EpsilonLadder(Section):
    """Every environment, or every actor, has an epsilon of its own for good: base^(1 + exponent i / (N - 1)) for the
    i-th of N (Horgan et al. 2018, section 4.1); `base` where N is 1."""

    kind: Literal["ladder"] = "ladder"
    base: float = Field(0.4, gt=0.0, le=1.0)
    exponent: float = Field(7.0, ge=0.0)
    over: Literal["environments", "actors"] = "environments"


class EpsilonByEpisode(Section):
    """Drawn at every step from [0, 1 / (1 + n)) in an environment's n-th episode, counted from 0 by its actor since it
    began."""

    kind: Literal["by_episode"] = "by_episode"


Epsilon = Annotated[
    ConstantSchedule
    | LinearSchedule
    | PolynomialSchedule
    | ExponentialSchedule
    | PiecewiseSchedule
    | EpsilonLadder
    | EpsilonByEpisode,
    Field(discriminator="kind"),
]


class EpsilonGreedyParameters(ExplorationSection):
    """With probability epsilon an action drawn uniformly, otherwise the best value's, or one drawn from the policy."""

    kind: Literal["epsilon_greedy"] = "epsilon_greedy"
    epsilon: Epsilon = LinearSchedule()

    @model_validator(mode="after")
    def _is_a_probability(self) -> Self:
        if not isinstance(self.epsilon, EpsilonLadder | EpsilonByEpisode):
            within("epsilon", self.epsilon, 0.0, 1.0)
        return self


class BoltzmannParameters(ExplorationSection):
    """Drawn from softmax(values / temperature), or of a policy's logits; choices and switches alone."""

    kind: Literal["boltzmann"] = "boltzmann"
    temperature: Schedule = ConstantSchedule(value=1.0)

    @model_validator(mode="after")
    def _is_positive(self) -> Self:
        within("temperature", self.temperature, SMALLEST_TEMPERATURE, LARGEST)
        return self


class NoiseSection(ExplorationSection):
    """Noise on the policy's best action, which is then cut to the action's bounds; real numbers alone."""

    tells_probabilities: ClassVar[bool] = False

    unit: Literal["range", "action"] = "action"
    """What noise is counted in: the distance between the action's bounds, or the action's own unit."""


class GaussianNoiseParameters(NoiseSection):
    """Independent normal noise."""

    kind: Literal["gaussian_noise"] = "gaussian_noise"
    mean: float = 0.0
    stddev: Schedule = ConstantSchedule(value=0.1)
    unit: Literal["range", "action"] = "range"

    @model_validator(mode="after")
    def _is_a_deviation(self) -> Self:
        within("stddev", self.stddev, 0.0, LARGEST)
        return self


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
    """The same value all the time."""

    kind: Literal["constant_noise"] = "constant_noise"
    value: float = 0.0


class NoisyNetworkParameters(ExplorationSection):
    """Every unroll acts with noise of its own in the network's noisy layers, as strong as these have learned it to be;
    then as the policy's distribution says, or the best value."""

    kind: Literal["noisy_network"] = "noisy_network"


class ParameterNoiseParameters(ExplorationSection):
    """Every unroll acts with normal noise of its own on all trained weights; then as the policy's distribution says, or
    the best value."""

    kind: Literal["parameter_noise"] = "parameter_noise"
    stddev: Schedule = ConstantSchedule(value=0.01)

    @model_validator(mode="after")
    def _is_a_deviation(self) -> Self:
        within("stddev", self.stddev, 0.0, LARGEST)
        return self


ActionExploration = Annotated[
    PolicySamplingParameters
    | GreedyParameters
    | EpsilonGreedyParameters
    | BoltzmannParameters
    | GaussianNoiseParameters
    | OrnsteinUhlenbeckParameters
    | ConstantNoiseParameters,
    Field(discriminator="kind"),
]
"""What one action by itself can be explored by."""


class PerActionParameters(ExplorationSection):
    """Every action in a way of its own; those that are not named, by the policy's distribution. Values have none."""

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


def _kind(value: Any) -> Any:
    if not isinstance(value, dict):
        return getattr(value, "kind", None)
    return value.get("kind", "per_action" if "per_action" in value else None)


ExplorationParameters = Annotated[
    Annotated[PolicySamplingParameters, Tag("policy")]
    | Annotated[GreedyParameters, Tag("greedy")]
    | Annotated[EpsilonGreedyParameters, Tag("epsilon_greedy")]
    | Annotated[BoltzmannParameters, Tag("boltzmann")]
    | Annotated[GaussianNoiseParameters, Tag("gaussian_noise")]
    | Annotated[OrnsteinUhlenbeckParameters, Tag("ornstein_uhlenbeck")]
    | Annotated[ConstantNoiseParameters, Tag("constant_noise")]
    | Annotated[NoisyNetworkParameters, Tag("noisy_network")]
    | Annotated[ParameterNoiseParameters, Tag("parameter_noise")]
    | Annotated[PerActionParameters, Tag("per_action")],
    Discriminator(_kind),
]
"""`kind` may be left out beside `per_action`."""


def tells_probabilities(exploration: ExplorationParameters) -> bool:
    """Whether the probability of every action, all of an environment's together, is known under this exploration."""
    if isinstance(exploration, PerActionParameters):
        return all(one.tells_probabilities for one in exploration.per_action.values())
    return exploration.tells_probabilities
