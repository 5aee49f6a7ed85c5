"""The scores of a sweep: combinations of settings with the returns of their seeds, for each environment."""

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from distrl.apps.experiments.directory import SweepRun
from distrl.apps.reports.intervals import Interval, improvement, interval
from distrl.config.presets import nearest
from distrl.config.secrets import masked
from distrl.config.settings import short_names
from distrl.errors import ConfigError
from distrl.metrics.phrases import UNKNOWN, digits_apart

ENVIRONMENT = "environment.id"
EVERY_SEED = "every seed"
"""Label of the only combination where only seeds vary."""


class ReturnScale(NamedTuple):
    """Returns that count as 0 and as 1."""

    low: float
    high: float


@dataclass(frozen=True)
class Combination:
    """One combination of settings, apart from the environment.

    Attributes:
        values: Dotted path -> value.
        runs: All its runs that have begun.
        scores: For each environment the scores of the runs that are done; empty without one.
        score: Interquartile mean of all of them, with its interval; None without one.
    """

    values: Mapping[str, Any]
    label: str
    runs: tuple[SweepRun, ...]
    scores: tuple[tuple[float, ...], ...]
    score: Interval | None

    @property
    def scored(self) -> int:
        """Number of runs with a score."""
        return sum(map(len, self.scores))

    @property
    def failed(self) -> int:
        return sum(run.outcome.state == "failed" for run in self.runs)

    @property
    def steps(self) -> tuple[int, int] | None:
        """The least and the greatest number of environment steps of a run with a score."""
        steps = [run.outcome.env_steps for run in self.runs if has_score(run)]
        return (min(steps), max(steps)) if steps else None

    @property
    def minutes(self) -> float | None:
        """Mean minutes of a run with a score."""
        times = [run.outcome.wall_s for run in self.runs if has_score(run)]
        return sum(times) / len(times) / 60.0 if times else None


class Ranking(NamedTuple):
    """The combinations of one environment, or of all of them together, the best first.

    Attributes:
        environment: Its id; None: all, with normalised scores.
    """

    environment: str | None
    combinations: tuple[Combination, ...]

    @property
    def scored(self) -> tuple[Combination, ...]:
        return tuple(one for one in self.combinations if one.score is not None)


def has_score(run: SweepRun) -> bool:
    """Return whether a run is done and has a return."""
    return run.outcome.state == "done" and run.outcome.mean_return is not None


class Wording:
    """Short names of the settings that vary, apart from the environment, and of their values; secrets masked.

    Args:
        among: Every other setting that there is.

    Attributes:
        names: Dotted path -> the shortest end that tells it from the others.
    """

    def __init__(self, runs: Sequence[SweepRun], among: Collection[str] = ()) -> None:
        paths = [*dict.fromkeys(path for run in runs for path in run.planned.values if path != ENVIRONMENT)]
        self.names = short_names(paths, among)
        self._digits = {
            path: digits_apart(value for run in runs if isinstance(value := run.planned.values.get(path), float))
            for path in paths
        }

    def value(self, values: Mapping[str, Any], path: str) -> str:
        """Return a setting's value, numbers with as many digits as tell them apart; a dash where it is not set."""
        if path not in values:
            return UNKNOWN
        value = masked(path, values[path])
        if isinstance(value, float):
            return f"{value:.{self._digits[path]}g}"
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def label(self, values: Mapping[str, Any]) -> str:
        """Return 'learning_rate=0.001 batch_size=8'."""
        return " ".join(f"{self.names[path]}={self.value(values, path)}" for path in values) or EVERY_SEED


def comparisons(
    runs: Sequence[SweepRun], shared: str, bounds: Mapping[str, ReturnScale], among: Collection[str] = ()
) -> list[Ranking]:
    """Return the comparison of each environment; before them that of all, if there are bounds.

    Args:
        shared: The environment of runs in which it does not vary.
        bounds: Environment -> bounds of its returns; empty: scores of several environments are not compared.
        among: As in `Wording`.

    Raises:
        ConfigError: There are bounds for one environment alone, for an unknown one, or not for all.
    """
    found: dict[str, dict[str, list[SweepRun]]] = {}
    for run in runs:
        of_environment = found.setdefault(str(run.planned.values.get(ENVIRONMENT, shared)), {})
        of_environment.setdefault(json.dumps(_apart(run)), []).append(run)
    _check(bounds, [*found])
    wording = Wording(runs, among)
    each = [
        Ranking(
            environment,
            _ordered([_combination([members], wording, [ReturnScale(0.0, 1.0)]) for members in of.values()]),
        )
        for environment, of in found.items()
    ]
    if not bounds:
        return each
    everywhere = [
        key
        for key in dict.fromkeys(key for of in found.values() for key in of)
        if all(key in of for of in found.values())
    ]
    limits = [bounds[environment] for environment in found]
    pooled = [_combination([of[key] for of in found.values()], wording, limits) for key in everywhere]
    return [Ranking(None, _ordered(pooled)), *each]


def over_the_best(comparison: Ranking) -> dict[str, Interval]:
    """Return, for each other combination with a score, the probability that a run of it beats one of the best."""
    if not comparison.scored:
        return {}
    best, *others = comparison.scored
    return {one.label: improvement(one.scores, best.scores) for one in others}


def each_over_each(comparison: Ranking) -> dict[tuple[str, str], Interval]:
    """Return the probability of improvement of every ordered pair of combinations with a score."""
    found = {}
    for place, one in enumerate(comparison.scored):
        for other in comparison.scored[place + 1 :]:
            centre, low, high = found[one.label, other.label] = improvement(one.scores, other.scores)
            found[other.label, one.label] = Interval(1.0 - centre, 1.0 - high, 1.0 - low)
    return found


def _apart(run: SweepRun) -> dict[str, Any]:
    """Return the values of a run apart from its environment."""
    return {path: value for path, value in run.planned.values.items() if path != ENVIRONMENT}


def _combination(members: Sequence[Sequence[SweepRun]], wording: Wording, limits: Sequence[ReturnScale]) -> Combination:
    """Return the combination of the runs of each environment; without a score if there is none in one of them."""
    scores = tuple(
        tuple(
            (run.outcome.mean_return - low) / (high - low)
            for run in runs
            if has_score(run) and run.outcome.mean_return is not None
        )
        for runs, (low, high) in zip(members, limits, strict=True)
    )
    complete = all(scores)
    values = _apart(members[0][0])
    return Combination(
        values=values,
        label=wording.label(values),
        runs=tuple(run for runs in members for run in runs),
        scores=scores if complete else (),
        score=interval(sum(scores, ()), [*map(len, scores)]) if complete else None,
    )


def _ordered(combinations: Sequence[Combination]) -> tuple[Combination, ...]:
    """Return the best first; labels that are equal, as of masked secrets, get a number, as they name combinations."""
    best = sorted(combinations, key=lambda one: -math.inf if one.score is None else one.score.centre, reverse=True)
    times: Counter[str] = Counter()
    found = []
    for one in best:
        times[one.label] += 1
        number = times[one.label]
        found.append(one if number == 1 else replace(one, label=f"{one.label} ({number})"))
    return tuple(found)


def _check(bounds: Mapping[str, ReturnScale], environments: list[str]) -> None:
    if not bounds:
        return
    if len(environments) == 1:
        raise ConfigError(f"--normalise is for several environments, and all runs have {environments[0]}; leave it out")
    for environment in bounds:
        if environment not in environments:
            raise ConfigError(f"--normalise {environment}: no run has it; {nearest(environment, environments)}")
    if lacking := [environment for environment in environments if environment not in bounds]:
        raise ConfigError(f"--normalise needs bounds of every environment; add --normalise {lacking[0]}=LOW:HIGH")
