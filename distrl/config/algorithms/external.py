"""The section of a user's algorithm, whose class only the learner imports."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field, model_validator

from distrl.config.algorithms.section import AlgorithmContext, AlgorithmSection, LearnsFrom, Ships
from distrl.config.exploration import ExplorationParameters
from distrl.config.replay import ReplayParameters
from distrl.config.section import Section

BOUNDS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "greater than"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "less than"),
}


EARLIER_EXTRAS: Mapping[str, str] = {
    "tells_choice_probabilities": "choice_probabilities",
    "tells_priorities": "priorities",
}
"""Declaration of an earlier version -> what `unroll_extras` names instead."""


class LiveNumber(Section):
    """A number of the class' own settings that may change while a run trains, with the bounds of its field."""

    meaning: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def problem(self, value: object) -> str | None:
        """Return why it cannot have this value; None if it can."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "must be a number"
        for name, (holds, words) in BOUNDS.items():
            bound = getattr(self, name)
            if bound is not None and not holds(value, bound):
                return f"must be {words} {bound:g}"
        return None


class Declared(Section):
    """Declarations that all roles must know: the class attributes of the algorithm's `Parameters`."""

    ships: Ships = "unrolls"
    rounds: bool = False
    batch_size: int = Field(4, ge=1)
    exploration: ExplorationParameters | None = None
    replay: ReplayParameters | None = None
    learns_from: LearnsFrom = "known probabilities"
    unroll_extras: tuple[str, ...] = ()
    rescales_values: bool = False
    masked_head: str | None = None
    takes_bonus: bool = True
    live: Mapping[str, LiveNumber] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _probabilities_are_those_of_the_policy(self) -> Self:
        if "choice_probabilities" in self.unroll_extras and self.learns_from != "own policy":
            raise ValueError(
                "unroll_extras: choice_probabilities are the policy's own, and "
                f"learns_from: {self.learns_from} allows actors to explore; declare learns_from: own policy"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_runs(cls, values: Any) -> Any:
        """Read the declarations in the configuration of a run that an earlier version has made."""
        if not isinstance(values, Mapping) or not values.keys() & EARLIER_EXTRAS.keys():
            return values
        asked = [name for key, name in EARLIER_EXTRAS.items() if values.get(key)]
        return {key: value for key, value in values.items() if key not in EARLIER_EXTRAS} | {"unroll_extras": asked}


def _declaration(name: str) -> Any:
    """Return a property: what the class declares under this name, or the default until it has been imported."""
    return property(lambda section: getattr(section.declared or Declared(), name))


class ExternalAlgorithmParameters(AlgorithmSection):
    """Fields of every algorithm, and further keys that the class' own `Parameters` allow.

    Actors and the command line hold this section without importing the class. Before the launch, a separate process
    imports it (`launch/external_algorithm.py`), checks the further keys, fills in their defaults and the declarations.
    """

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=r"^[\w.]+:\w+$")
    """package.module:Class."""
    declared: Declared | None = None
    """Declarations of the class. Filled in before the launch; other values are refused."""

    # Other sections have class attributes; this one has the class' declarations.
    ships: ClassVar[Any] = _declaration("ships")
    rounds: ClassVar[Any] = _declaration("rounds")
    batch_size: ClassVar[Any] = _declaration("batch_size")
    exploration: ClassVar[Any] = _declaration("exploration")
    learns_from: ClassVar[Any] = _declaration("learns_from")
    unroll_extras: ClassVar[Any] = _declaration("unroll_extras")
    rescales_values: ClassVar[Any] = _declaration("rescales_values")
    masked_head: ClassVar[Any] = _declaration("masked_head")
    replay_parameters: ClassVar[Any] = _declaration("replay")
    takes_bonus: ClassVar[Any] = _declaration("takes_bonus")

    @property
    def live(self) -> Mapping[str, str]:  # type: ignore[override]
        """Numbers that operators may change while a run trains -> meaning; none until the class has been imported."""
        return {name: number.meaning for name, number in (self.declared or Declared()).live.items()}

    def with_replay(self, parameters: ReplayParameters) -> Self:
        declared = (self.declared or Declared()).model_copy(update={"replay": parameters})
        return self.model_copy(update={"declared": declared})

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        for name, number in (self.declared or Declared()).live.items():
            value = getattr(self, name, None)
            if problem := number.problem(value):
                raise ValueError(f"algorithm.{name}: {value!r} {problem}")
