"""Schedules: values that depend on how far a training has come.

A schedule waits for `delay_steps` at `start`, moves to `end` within `steps`, and stays there. It never leaves the range
between the two. `counts` is the unit of all its steps: environment steps of all actors together, episodes or updates.
With t steps so far and x = (t - delay_steps) / steps in [0, 1]:

| kind        | value                                          |
|-------------|------------------------------------------------|
| constant    | value                                          |
| linear      | start + (end - start) x                        |
| polynomial  | end + (start - end) (1 - x)^power              |
| exponential | end + (start - end) 2^(-half_lives x), for x < 1 |
| piecewise   | that of the piece that contains t              |
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from distrl.config.section import Section


class Progress(NamedTuple):
    """How far a training has come, with all actors together; schedules follow it.

    Attributes:
        env_steps: Valid environment steps that the learner has received.
        episodes: Episodes that ended in them.
        updates: Updates of the online network.
    """

    env_steps: int = 0
    episodes: int = 0
    updates: int = 0


class _Counting(Section, ABC):
    """A schedule as a setting: it says what its steps are."""

    counts: Literal["env_steps", "episodes", "updates"] = "env_steps"
    """Its steps are environment steps of all actors together, episodes that ended, or updates."""

    def at(self, progress: Progress) -> float:
        """The value when a training has come so far."""
        return self.after(getattr(progress, self.counts))

    @abstractmethod
    def after(self, steps: int) -> float:
        """The value after so many steps of those that it counts."""


class ConstantSchedule(Section):
    """A constant value."""

    kind: Literal["constant"] = "constant"
    value: float

    def at(self, progress: Progress) -> float:
        """The value, which is always the same."""
        return self.value

    def after(self, steps: int) -> float:
        """As `at`."""
        return self.value

    @property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value there will be."""
        return self.value, self.value


def constant(value: Any) -> Any:
    """Return a number as a constant schedule, and anything else as it is; for validation."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return ConstantSchedule(value=value) if is_number else value


class _Moving(Section, ABC):
    """From `start` to `end` over `steps`; then `end`."""

    start: float = 1.0
    end: float = 0.05
    steps: int = Field(10_000, ge=1)
    delay_steps: int = Field(0, ge=0)
    """Steps at `start` before it begins to move."""

    @property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value there will be."""
        return min(self.start, self.end), max(self.start, self.end)

    def after(self, steps: int) -> float:
        """The value after so many steps."""
        moved = (steps - self.delay_steps) / self.steps
        if moved <= 0.0:
            return self.start
        if moved >= 1.0:
            return self.end
        low, high = self.extremes
        # Rounding may carry the sum a little beyond.
        return min(max(self.end + (self.start - self.end) * self._left(moved), low), high)

    @abstractmethod
    def _left(self, moved: float) -> float:
        """Return the share of the way that is left after the share `moved`, in (0, 1), of the time."""


class LinearPiece(_Moving):
    """Linear."""

    kind: Literal["linear"] = "linear"

    def _left(self, moved: float) -> float:
        return 1.0 - moved


class PolynomialPiece(_Moving):
    """A power of the time that is left; above 1 it moves fast at first and slowly at the end."""

    kind: Literal["polynomial"] = "polynomial"
    power: float = Field(2.0, gt=0.0)

    def _left(self, moved: float) -> float:
        return float((1.0 - moved) ** self.power)


class ExponentialPiece(_Moving):
    """The distance to `end` halves repeatedly; after `steps` the value jumps to `end`."""

    kind: Literal["exponential"] = "exponential"
    half_life_steps: float | None = Field(None, gt=0.0)
    """Steps in which it halves; null: `steps` / `half_lives`."""
    half_lives: float | None = Field(None, gt=0.0)
    """How often it halves within `steps`; null: as `half_life_steps` says, or 10."""

    @model_validator(mode="after")
    def _one_pace(self) -> Self:
        if self.half_life_steps is not None and self.half_lives is not None:
            raise ValueError(
                f"half_life_steps: {self.half_life_steps:g} and half_lives: {self.half_lives:g} say the same; set one"
            )
        return self

    def _left(self, moved: float) -> float:
        if self.half_life_steps is not None:
            return float(2.0 ** (-moved * self.steps / self.half_life_steps))
        return float(2.0 ** (-moved * (10.0 if self.half_lives is None else self.half_lives)))


class LinearSchedule(LinearPiece, _Counting):
    """Linear."""


class PolynomialSchedule(PolynomialPiece, _Counting):
    """A power of the time that is left; above 1 it moves fast at first and slowly at the end."""


class ExponentialSchedule(ExponentialPiece, _Counting):
    """The distance to `end` halves repeatedly; after `steps` the value jumps to `end`."""


_OfPiece = Annotated[ConstantSchedule | LinearPiece | PolynomialPiece | ExponentialPiece, Field(discriminator="kind")]


class Piece(Section):
    """A schedule for a number of steps, which are counted from its own beginning, in the unit of the whole."""

    schedule: Annotated[_OfPiece, BeforeValidator(constant, json_schema_input_type=float | _OfPiece)]
    for_steps: int | None = Field(None, ge=1)
    """Length of the piece; null, for the last piece only: no end."""

    @model_validator(mode="after")
    def _has_no_unit_of_its_own(self) -> Self:
        if isinstance(self.schedule, _Counting):  # in Python, where a schedule is also a piece
            raise ValueError("schedule: a piece has no counts; give a LinearPiece, PolynomialPiece or ExponentialPiece")
        return self


class PiecewiseSchedule(_Counting):
    """One schedule after the other."""

    kind: Literal["piecewise"] = "piecewise"
    pieces: tuple[Piece, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _the_last_piece_goes_on(self) -> Self:
        for number, piece in enumerate(self.pieces):
            last = number == len(self.pieces) - 1
            if last != (piece.for_steps is None):
                which = (
                    "the last piece goes on for ever; leave" if last else "only the last piece goes on for ever; set"
                )
                raise ValueError(f"pieces: number {number} has for_steps: {_shown(piece.for_steps)}, but {which} it")
        return self

    def after(self, steps: int) -> float:
        """The value after so many steps of those that it counts."""
        begin = 0
        for piece in self.pieces:
            if piece.for_steps is None or steps < begin + piece.for_steps:
                return piece.schedule.after(steps - begin)
            begin += piece.for_steps
        raise AssertionError("the last piece goes on for ever")

    @property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value of all pieces, even if a piece ends before it reaches them."""
        extremes = [piece.schedule.extremes for piece in self.pieces]
        return min(low for low, _ in extremes), max(high for _, high in extremes)


AnySchedule = ConstantSchedule | LinearSchedule | PolynomialSchedule | ExponentialSchedule | PiecewiseSchedule
_ByKind = Annotated[AnySchedule, Field(discriminator="kind")]
Schedule = Annotated[_ByKind, BeforeValidator(constant, json_schema_input_type=float | _ByKind)]


def parts(schedule: Schedule) -> list[ConstantSchedule | LinearPiece | PolynomialPiece | ExponentialPiece]:
    """Return the schedule, or what its pieces are."""
    return [piece.schedule for piece in schedule.pieces] if isinstance(schedule, PiecewiseSchedule) else [schedule]


def check_spelled_out(name: str, schedule: Schedule) -> None:
    """Raise ValueError if a schedule, or a piece of it, leaves its values to defaults, which are those of epsilon."""
    for part in parts(schedule):
        if isinstance(part, _Moving) and not {"start", "end", "steps"} <= part.model_fields_set:
            raise ValueError(f"{name}: kind {part.kind} needs start, end and steps")


def within(name: str, schedule: Schedule, low: float, high: float) -> None:
    """Raise ValueError unless every value of the schedule lies in [low, high]."""
    lowest, highest = schedule.extremes
    if not (low <= lowest and highest <= high):
        odd = lowest if lowest < low else highest
        raise ValueError(f"{name}: {odd:g} comes up in its schedule; it must stay in [{low:g}, {high:g}]")


def _shown(steps: int | None) -> str:
    return "null" if steps is None else str(steps)
