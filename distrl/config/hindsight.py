"""Parameters of hindsight experience replay, and the check that an environment has goals."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from distrl.config.section import Section
from distrl.errors import ConfigError

if TYPE_CHECKING:  # it brings NumPy, which the command line does without
    from distrl.types import ArraySpec, EnvSpec

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""Observations of an environment with goals, as gymnasium names them."""


class SparseRewardParameters(Section):
    """One reward where the goal is reached, another one elsewhere."""

    kind: Literal["sparse"] = "sparse"
    reached: float = 0.0
    """Reward of a step after which the goal is reached."""
    otherwise: float = -1.0
    """Reward of every other step."""


class DistanceRewardParameters(Section):
    """Minus the distance from the goal after the step."""

    kind: Literal["distance"] = "distance"


class InverseDistanceRewardParameters(Section):
    """1 / distance from the goal after the step, up to a bound."""

    kind: Literal["inverse_distance"] = "inverse_distance"
    max_reward: float = Field(1.0, gt=0.0)
    """Upper bound of the reward."""


class OwnRewardParameters(Section):
    """A function of your own, for goals whose reward is none of the others. Only the learner imports it."""

    kind: Literal["function"] = "function"
    function: str = Field(pattern=r"^[\w.]+:\w+$")
    """package.module:function. It takes achieved and desired goals, arrays [N, …], and returns N rewards. Goals of a
    Discrete or MultiDiscrete are one-hot rows."""


GoalRewardParameters = Annotated[
    SparseRewardParameters | DistanceRewardParameters | InverseDistanceRewardParameters | OwnRewardParameters,
    Field(discriminator="kind"),
]


class HindsightParameters(Section):
    """Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): sampled transitions get another goal.

    The goal, `desired_goal`, becomes an `achieved_goal`; reward and termination are computed anew. The environment's
    own steps are compared with both: a contradiction ends the training.
    """

    strategy: Literal["future", "final", "episode", "random"] = "future"
    """Where the goal was achieved. future: in this step of the episode or a later one. final: in the last one. episode:
    in any one of the episode. random: in any stored step. Episodes end at the end of their unroll."""
    ratio: float = Field(4.0, gt=0.0)
    """k: sampled transitions with another goal for each one with its own, on average."""
    tolerance: float = Field(0.0, ge=0.0)
    """Euclidean distance up to which a goal is reached. Different goals of a Discrete are sqrt(2) apart."""
    reward: GoalRewardParameters = SparseRewardParameters()
    """The environment's reward as a function of achieved and desired goal."""
    terminates: bool = False
    """Whether the environment ends an episode that reaches its goal. Other terminations stay as they are."""


def check_goals(spec: "EnvSpec") -> None:
    """Refuse an environment whose observations have no goals that can take each other's place.

    Raises:
        ConfigError: They have none.
    """
    what = f"algorithm.replay.hindsight: environment {spec.id}"
    for name in (ACHIEVED, DESIRED):
        if name not in spec.observations:
            raise ConfigError(
                f"{what} has no observation {name!r}, only {', '.join(spec.observations)}; set hindsight to null, or "
                f"use an environment with goals: a Dict of observation, {ACHIEVED} and {DESIRED}"
            )
    achieved, desired = (_form(spec.observations[name]) for name in (ACHIEVED, DESIRED))
    if achieved != desired:
        raise ConfigError(
            f"{what}: {ACHIEVED} is {achieved}, {DESIRED} is {desired}; one must be able to take the place of the other"
        )
    for name in (ACHIEVED, DESIRED):
        if spec.observations[name].frames > 1:
            raise ConfigError(
                f"{what}: {name} is a stack of {spec.observations[name].frames}; stack other observations"
            )


def _form(array: "ArraySpec") -> str:
    """Return in words what an array must share with another one in whose place it goes."""
    categories = array.categories
    if categories is None:
        return f"{array.dtype} {list(array.shape)}"
    # Both travel counted from 0: with other starts, the same number would be another category.
    return f"of choices {list(categories.choices)} from {list(categories.starts)}"
