"""The number of actors that a run wants, decided from what its roles report: state in, state out, no clock, no Redis.

Let the learner wait for unrolls for a share s of its time, and n actors wait for the learner for a share b of theirs.
Then n · (1 − b) actors are enough for 1 − s of the learner, and n · (1 − b) / (1 − s) are enough for all of it. That
number is judged once per window. It counts only outside a band, so that a run near its optimum is left alone.
"""

import math
from dataclasses import dataclass, replace

RISE_ABOVE = 0.10
"""Share of its time that the learner waits for unrolls, above which, twice in a row, it wants more actors."""
RISE_AT_ONCE = 0.20
"""Share of its time that the learner waits for unrolls, above which it wants more actors at once."""
REFUSED = 0.10
"""Share of their time that actors wait for room, above which more actors would only wait, too: unrolls are there, and
the learner is slow to take them."""
FALL_ABOVE = 0.20
"""Share of their time that actors wait for the learner, above which it wants fewer."""
FED = 0.05
"""Share of its time that the learner may wait for unrolls and still want fewer actors. With half as many it waits for
less than `RISE_ABOVE`."""
ROUNDING = 0.1
"""Part of an actor that is not worth a whole one: without it the learner waits for less than `RISE_ABOVE`."""
RISE = 3.0
FALL = 0.5
"""Largest factors by which one decision changes the number of actors; one actor more or less is always allowed."""
GAIN = 0.25
"""Least gain in environment steps per second, as a share of the growth of the actors, that more actors must bring."""
HOLD_S = 3600.0
"""Time for which a number is not tried again that was taken back at once."""
PRESENT = 0.9
"""Share of the wanted actors that must act before more of them can be wanted."""


@dataclass(frozen=True)
class Bounds:
    """Limits of the number of actors, and the pace of decisions.

    Attributes:
        window_s: Undisturbed seconds that one judgement takes, and so the least time between two decisions.
        lower_after_s: Seconds for which every judgement must be for fewer actors before there are fewer.
    """

    least: int
    most: int
    window_s: float
    lower_after_s: float

    def clamp(self, actors: int) -> int:
        return min(max(actors, self.least), self.most)


@dataclass(frozen=True)
class Seen:
    """Measurements of a run since the look before.

    Attributes:
        elapsed_s: Seconds since that look.
        starving: Share of the learner's time spent waiting for unrolls.
        blocked: Share of the actors' time spent waiting for the learner: for room, a ticket or a round.
        refused: The part of it for room in the queue.
        actors: Number of actors that act.
        steps_per_s: Environment steps per second of all actors.
        disturbed: Reason why these numbers count for nothing, such as "paused"; "": they count.
        brief: Whether what was measured before still counts after the disturbance.
    """

    elapsed_s: float
    starving: float = 0.0
    blocked: float = 0.0
    refused: float = 0.0
    actors: float = 0.0
    steps_per_s: float = 0.0
    disturbed: str = ""
    brief: bool = False


@dataclass(frozen=True)
class Window:
    """Sums of what was seen, each weighed by its seconds."""

    seconds: float = 0.0
    starving: float = 0.0
    blocked: float = 0.0
    refused: float = 0.0
    actors: float = 0.0
    steps: float = 0.0

    def plus(self, seen: Seen) -> "Window":
        return Window(
            self.seconds + seen.elapsed_s,
            self.starving + seen.elapsed_s * seen.starving,
            self.blocked + seen.elapsed_s * seen.blocked,
            self.refused + seen.elapsed_s * seen.refused,
            self.actors + seen.elapsed_s * seen.actors,
            self.steps + seen.elapsed_s * seen.steps_per_s,
        )

    @property
    def mean(self) -> Seen:
        """Means over the window."""
        s = self.seconds
        return Seen(s, self.starving / s, self.blocked / s, self.refused / s, self.actors / s, self.steps / s)


@dataclass(frozen=True)
class Rise:
    """The newest rise, until it is judged: the number of actors before, and their steps per second."""

    actors: int
    steps_per_s: float


@dataclass(frozen=True)
class Hold:
    """A number of actors, and the seconds for which it is remembered."""

    actors: int
    left_s: float = HOLD_S


@dataclass(frozen=True)
class Wanted:
    """The number of actors that the run wants, the reason in words, and what the next decisions depend on.

    Attributes:
        because: The measurements of the newest judgement, in words.
        disturbed: Reason why the newest look counted for nothing; "": it counted.
        most: The most that brought something, after more were taken back.
        fell: The number that the newest fall led to.
        least: The least that were enough, after fewer were taken back.
        hungry: Whether the newest judgement was for more actors, and awaits the next one.
        falling_s: Seconds for which every judgement was for fewer actors.
        falling_to: Highest number that these judgements were for.
    """

    actors: int
    because: str = "nothing is measured yet"
    disturbed: str = ""
    window: Window = Window()
    trial: Rise | None = None
    most: Hold | None = None
    fell: Hold | None = None
    least: Hold | None = None
    hungry: bool = False
    falling_s: float = 0.0
    falling_to: int = 0

    @property
    def words(self) -> str:
        """The reason for the number, for people."""
        return f"not measured now: {self.disturbed}" if self.disturbed else self.because


def look(wanted: Wanted, seen: Seen, bounds: Bounds) -> Wanted:
    """Return what the run wants after one more look at it.

    Args:
        bounds: May change from look to look; they hold at once, whatever was measured.
    """
    most, fell, least = (_passed(hold, seen.elapsed_s) for hold in (wanted.most, wanted.fell, wanted.least))
    wanted = replace(wanted, most=most, fell=fell, least=least, disturbed=seen.disturbed)
    if (allowed := bounds.clamp(wanted.actors)) != wanted.actors:
        return Wanted(allowed, f"{bounds.least} to {bounds.most} actors are allowed")
    if seen.disturbed:
        return wanted if seen.brief else replace(wanted, window=Window(), hungry=False, falling_s=0.0)
    window = wanted.window.plus(seen)
    if window.seconds < bounds.window_s:
        return replace(wanted, window=window)
    return _judged(replace(wanted, window=Window()), window.mean, bounds)


def _passed(hold: Hold | None, elapsed_s: float) -> Hold | None:
    if hold is None or hold.left_s <= elapsed_s:
        return None
    return replace(hold, left_s=hold.left_s - elapsed_s)


def _judged(wanted: Wanted, mean: Seen, bounds: Bounds) -> Wanted:
    """Return the decision that a full window leads to."""
    waits = f"the learner waits {mean.starving:.0%} of its time for unrolls, actors {mean.blocked:.0%} for the learner"
    wanted = replace(wanted, because=waits)
    if mean.starving > RISE_ABOVE and mean.refused <= REFUSED:
        wanted = replace(wanted, falling_s=0.0)
        if wanted.hungry or mean.starving > RISE_AT_ONCE:
            return _rise(replace(wanted, hungry=False), mean, bounds)
        return replace(wanted, hungry=True)
    wanted = replace(wanted, hungry=False, trial=None)
    if mean.blocked > FALL_ABOVE and mean.starving <= FED:
        return _fall(wanted, mean, bounds)
    wanted = replace(wanted, falling_s=0.0)
    present = round(mean.actors)
    if PRESENT * wanted.actors <= present <= wanted.actors / PRESENT:
        return wanted
    return replace(wanted, actors=bounds.clamp(present), because=f"{waits}: the {present} that act are enough")


def _rise(wanted: Wanted, mean: Seen, bounds: Bounds) -> Wanted:
    present = round(mean.actors)
    if present < PRESENT * wanted.actors:
        return replace(wanted, because=f"{wanted.because}; {present} act, {wanted.actors} are recommended")
    if mean.steps_per_s <= 0.0:
        return replace(wanted, because=f"{wanted.because}; environments make no step")
    trial, wanted = wanted.trial, replace(wanted, trial=None)
    if wanted.fell is not None:
        wanted = replace(wanted, fell=None, least=Hold(wanted.fell.actors + 1))
    if trial is not None and (useful := _useful(trial, wanted.actors, mean.steps_per_s)) < wanted.actors:
        words = f"{wanted.actors} actors make hardly more steps per second than {useful}"
        useful = bounds.clamp(useful)
        return replace(wanted, actors=useful, most=Hold(useful), because=words)
    most = bounds.most if wanted.most is None else min(bounds.most, wanted.most.actors)
    if wanted.actors >= most:
        reason = "are not allowed" if wanted.most is None else "made hardly more steps per second"
        return replace(wanted, because=f"{wanted.because}; more than {most} {reason}")
    goal = max(_enough(mean.actors * (1.0 - mean.refused), mean.starving), present + 1)
    goal = min(goal, math.ceil(RISE * present), most)
    if goal <= wanted.actors:
        return wanted
    return replace(wanted, actors=goal, trial=Rise(wanted.actors, mean.steps_per_s))


def _useful(trial: Rise, actors: int, steps_per_s: float) -> int:
    """Return how many actors make as many steps as these do if each added one is worth as much as each one before.

    If the added ones brought enough, that is as many as there are.
    """
    gain, growth = steps_per_s / max(trial.steps_per_s, 1e-9) - 1.0, actors / trial.actors - 1.0
    if gain >= GAIN * growth:
        return actors
    return max(trial.actors, math.ceil(trial.actors * (1.0 + gain) - GAIN))


def _fall(wanted: Wanted, mean: Seen, bounds: Bounds) -> Wanted:
    least = bounds.least if wanted.least is None else max(bounds.least, wanted.least.actors)
    enough = max(_enough(mean.actors * (1.0 - mean.blocked), mean.starving), math.ceil(FALL * wanted.actors), least)
    if enough >= wanted.actors:
        return replace(wanted, falling_s=0.0)
    enough = max(enough, wanted.falling_to) if wanted.falling_s else enough
    falling = replace(wanted, falling_s=wanted.falling_s + mean.elapsed_s, falling_to=enough)
    if falling.falling_s < bounds.lower_after_s:
        return replace(falling, because=f"{wanted.because}; {enough} soon, if that lasts")
    return replace(wanted, actors=enough, fell=Hold(enough), falling_s=0.0)


def _enough(busy: float, starving: float) -> int:
    """Return how many actors feed the learner, if so many busy ones leave it waiting for that share of its time."""
    return max(math.ceil(min(busy / max(1.0 - starving, 1e-6), 1e9) - ROUNDING), 1)
