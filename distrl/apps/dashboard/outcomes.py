"""Outcomes of groups of runs: their centre with its interval, and in a sentence which group is best."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from distrl.apps.reports.intervals import Interval, Numbers, bootstrap, interval, median_interval
from distrl.metrics.phrases import return_words

Centre = Literal["mean", "iqm", "median"]
CENTRES: dict[Centre, str] = {"mean": "mean", "iqm": "IQM", "median": "median"}
"""Centre of a group -> its name in sentences."""


class Group(NamedTuple):
    """Runs with the same settings.

    Attributes:
        members: Places of its runs among all.
        counted: Number of those with an outcome.
        outcome: Their centre with its 95 % bootstrap interval; None without one.
    """

    label: str
    members: tuple[int, ...]
    counted: int = 0
    outcome: Interval | None = None


def centre_of(values: Sequence[float], centre: Centre) -> Interval:
    """Return the centre of at least one outcome, with its 95 % bootstrap interval."""
    if centre == "median":
        return median_interval(values)
    if centre == "iqm":
        return interval(values)
    low, high = bootstrap(values, centre=_mean)
    return Interval(float(np.mean(values)), float(low), float(high))


def grouped(labels: Sequence[str | None], outcomes: Sequence[float | None], centre: Centre) -> list[Group]:
    """Return the groups, those with the greatest outcome first, then those without one.

    Args:
        labels: Each run's group; None for a run of no group.
        outcomes: Each run's outcome; None where it is not known or does not count.
    """
    members: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        if label is not None:
            members.setdefault(label, []).append(place)
    groups = []
    for label, places in members.items():
        values = [value for place in places if (value := outcomes[place]) is not None]
        outcome = centre_of(values, centre) if values else None
        groups.append(Group(label, tuple(places), len(values), outcome))
    return sorted(groups, key=lambda one: -one.outcome.centre if one.outcome else np.inf)


def best_words(groups: Sequence[Group], centre: Centre, say: Callable[[float], str] = return_words) -> str:
    """Return in a sentence which group is best, and whether the next one can be told from it; "" without an outcome.

    Args:
        groups: The best first, as of `grouped`.
        say: The words of an outcome.
    """
    scored = [(one, one.outcome) for one in groups if one.outcome is not None]
    if not scored:
        return ""
    (best, outcome), *others = scored
    told = f"{best.label}: {_words(best, outcome, centre, say)}"
    if not others:
        return f"{told}."
    second, after = others[0]
    told = f"{told}; next {second.label}: {_words(second, after, centre, say)}."
    if min(best.counted, second.counted) == 1:
        return f"{told} A single run has no interval: train more seeds to tell them apart."
    return f"{told} Their intervals overlap: train more seeds to tell them apart." if outcome.overlaps(after) else told


def _words(group: Group, outcome: Interval, centre: Centre, say: Callable[[float], str]) -> str:
    if group.counted == 1:
        return f"{say(outcome.centre)} in 1 run"
    ends = f"[{say(outcome.low)}, {say(outcome.high)}]"
    return f"{CENTRES[centre]} {say(outcome.centre)} {ends} over {group.counted} runs"


def _mean(values: Numbers) -> Numbers:
    found: Numbers = values.mean(axis=0)
    return found
