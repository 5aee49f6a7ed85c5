"""Keys of `environment.kwargs` for remote environments, and descriptions of spaces as plain values."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

from distrl.config.section import Section

MOST_NUMBERS = 25_000_000
"""Most numbers in one observation or action: 100 MB of float32, more than a message can carry."""

Natural = Annotated[int, Field(ge=1, le=2**31 - 1)]
Axis = Annotated[int, Field(ge=0)]
Bound = int | float | None
Nested = Any  # whole numbers in lists within lists; gymnasium checks what it makes of them


class Description(Section):
    """A space described by values that YAML, JSON and msgpack all have."""


class BoxDescription(Description):
    """Numbers within bounds."""

    type: Literal["Box"]
    shape: tuple[Axis, ...]
    dtype: str = "float32"
    low: Bound | tuple[Bound, ...] = None
    """One bound for all numbers, or one for each in C order; None: there is none."""
    high: Bound | tuple[Bound, ...] = None

    @model_validator(mode="after")
    def _check(self) -> "BoxDescription":
        numbers = math.prod(self.shape)
        for name, bound in (("low", self.low), ("high", self.high)):
            if isinstance(bound, tuple) and len(bound) != numbers:
                raise ValueError(f"{name} has {len(bound)} numbers, shape {self.shape} has {numbers}")
        return self


class DiscreteDescription(Description):
    """One of `n` whole numbers from `start`."""

    type: Literal["Discrete"]
    n: Natural
    start: int = 0


class MultiDiscreteDescription(Description):
    """Several choices at once; nested lists where they form an array."""

    type: Literal["MultiDiscrete"]
    nvec: Nested
    start: Nested = None


class MultiBinaryDescription(Description):
    """Switches."""

    type: Literal["MultiBinary"]
    shape: tuple[Natural, ...] = Field(min_length=1)


class TextDescription(Description):
    """Text of limited length."""

    type: Literal["Text"]
    max_length: Natural
    min_length: int = Field(1, ge=0)
    charset: str | None = None
    """The characters that occur; None: letters and digits."""


class DictDescription(Description):
    """Spaces by name."""

    type: Literal["Dict"]
    spaces: dict[str, "AnyDescription"]


class TupleDescription(Description):
    """Spaces in order."""

    type: Literal["Tuple"]
    spaces: tuple["AnyDescription", ...]


AnyDescription = Annotated[
    BoxDescription
    | DiscreteDescription
    | MultiDiscreteDescription
    | MultiBinaryDescription
    | TextDescription
    | DictDescription
    | TupleDescription,
    Field(discriminator="type"),
]


def _numbers(space: Description) -> int:
    """Count the numbers in one value of the space; values bounded by their own description count as 0."""
    match space:
        case BoxDescription() | MultiBinaryDescription():
            return math.prod(space.shape)
        case DictDescription():
            return sum(map(_numbers, space.spaces.values()))
        case TupleDescription():
            return sum(map(_numbers, space.spaces))
    return 0


def _check_size(space: AnyDescription) -> AnyDescription:
    if _numbers(space) > MOST_NUMBERS:
        raise ValueError(f"one value holds more than {MOST_NUMBERS:,} numbers")
    return space


Whole = Annotated[AnyDescription, AfterValidator(_check_size)]
"""A top-level space, of bounded size."""


class Spaces(BaseModel):
    """A server's description of its environment. Unknown keys are ignored: servers may be newer than this version."""

    observation_space: Whole
    action_space: Whole
    max_episode_steps: Natural | None = None
    reward_threshold: float | None = None


class GivenSpaces(Section):
    """Spaces and limits of an environment that other code steps."""

    observation_space: Whole
    """Space of observations, as `distrl.Agent` writes it."""
    action_space: Whole
    """Space of actions, likewise."""
    max_episode_steps: Natural | None = None
    """Steps after which an episode is cut off; null: there is no such limit."""
    reward_threshold: float | None = None
    """Return that counts as solved; null: none does."""


class RemoteParameters(Section):
    """`environment.kwargs` of a remote environment.

    If both spaces are given, the client does not request them: the server needs only four commands.
    """

    observation_space: Whole | None = None
    action_space: Whole | None = None
    max_episode_steps: Natural | None = None
    """Length of an episode. The environment reports it unless spaces are given here."""
    reward_threshold: float | None = None
    """Return that counts as solved. The environment reports it unless spaces are given here."""
    token_file: str | None = None
    """File with the token that both sides know; null: the environment variable DISTRL_ENV_TOKEN, if it is set."""
    connect_timeout_s: float | None = Field(None, gt=0.0)
    """How long a process tries to connect for the first time. null: 5 if distrl dials, as a wrong address is likely,
    and 30 if the environment dials, as it may be started later."""
    message_timeout_s: float = Field(20.0, gt=0.0)
    """Longest wait for a reply to begin, and again for the rest of it. Several environments wait at the same time."""
    give_up_s: float = Field(30.0, gt=0.0)
    """How long an actor tries to reach a lost environment again before it counts as failed, from the beginning of a
    step or reset of all its environments."""
    max_message_bytes: int = Field(99_999_999, ge=1_024, le=99_999_999)
    """Largest accepted reply."""

    def first_connection_s(self, *, dial: bool) -> float:
        """Return `connect_timeout_s` or its default.

        Args:
            dial: Whether distrl dials.
        """
        if self.connect_timeout_s is not None:
            return self.connect_timeout_s
        return 5.0 if dial else 30.0

    @model_validator(mode="after")
    def _both_spaces_or_none(self) -> "RemoteParameters":
        if (self.observation_space is None) != (self.action_space is None):
            raise ValueError("observation_space and action_space come together or not at all")
        if self.observation_space is None and (self.max_episode_steps, self.reward_threshold) != (None, None):
            raise ValueError(
                "max_episode_steps and reward_threshold go with spaces given here; the environment reports them"
            )
        return self
