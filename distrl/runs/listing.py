"""A list of runs with the state, progress and outcome of each, and how it is filtered and sorted."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

from distrl.config.presets import nearest
from distrl.errors import EXIT_OK, ConfigError
from distrl.metrics.snapshot import Snapshot, Value, number
from distrl.runs.directories import Run, State
from distrl.runs.last_row import last_row
from distrl.runs.manifest import Manifest
from distrl.runs.summary import REASONS, Summary

Kind = Literal["running", "ended", "gone", "solved", "failed"]
KINDS = get_args(Kind)
"""Filters of the list; solved and failed runs have ended."""
SORTS = {
    "started": "started",
    "name": "name",
    "environment": "env",
    "algorithm": "algorithm",
    "seed": "seed",
    "steps": "env_steps",
    "return": "mean_return_100",
    "best": "best_mean_return_100",
    "steps/s": "env_steps_per_s",
    "wall": "wall_s",
}
"""Sort key -> the attribute of an entry."""
_ASCENDING = ("name", "environment", "algorithm", "seed")
_NUMBERS = (
    *("mean_return_100", "best_mean_return_100", "env_steps_per_s", "wall_s"),
    *("policy_lag_mean", "policy_lag_max"),
)


@dataclass(frozen=True)
class Entry:
    """One run of a list. None: not known, or not yet.

    Attributes:
        name: Path of its directory below the folder that was searched.
        outcome: Why it ended, in a word or two; else its state.
        wall_s: Training time. For a run that ended, from launch to end, plus the time of earlier launches.
        started: Time of the newest launch, in seconds since 1970.
        peak_rss_mb: Highest resident memory of each role, added up, MB (10^6 bytes).
    """

    name: str
    path: str
    state: State
    outcome: str
    env: str | None
    algorithm: str | None
    seed: int | None
    env_steps: int | None
    updates: int | None
    episodes: int | None
    mean_return_100: float | None
    best_mean_return_100: float | None
    env_steps_per_s: float | None
    wall_s: float | None
    started: float | None
    policy_lag_mean: float | None
    policy_lag_max: float | None
    bottleneck: str | None
    exit_code: int | None = None
    time_to_first_update_s: float | None = None
    peak_rss_mb: float | None = None

    @property
    def kinds(self) -> set[str]:
        """The members of `KINDS` that apply."""
        kinds: set[str] = {self.state}
        if self.outcome == "solved":
            kinds.add("solved")
        if self.exit_code not in (None, EXIT_OK):
            kinds.add("failed")
        return kinds


def entry(run: Run, name: str) -> Entry:
    """Return the entry of a run, from its summary if it has ended, else from the last row of its metrics."""
    return _unfinished(run, name) if run.summary is None else _finished(run, name, run.summary)


def entry_name(path: Path, places: Iterable[Path]) -> str:
    """Return a run's path below the folder it was found in, or its directory's name if it was named itself."""
    for place in places:
        if path != place and path.is_relative_to(place):
            return str(path.relative_to(place))
    return path.resolve().name


def selected(
    entries: Iterable[Entry], env: str | None = None, algorithm: str | None = None, kind: str | None = None
) -> Iterator[Entry]:
    """Yield the entries that match all filters: patterns with * and ?, and one of `KINDS`."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"unknown state {kind!r}; {nearest(kind, [*KINDS])}")
    for one in entries:
        if env is not None and not fnmatchcase(one.env or "", env):
            continue
        if algorithm is not None and not fnmatchcase(one.algorithm or "", algorithm):
            continue
        if kind is None or kind in one.kinds:
            yield one


def ordered(entries: Iterable[Entry], by: str = "started") -> list[Entry]:
    """Return the entries by a key of `SORTS`: newest, most and best first, names ascending, unknown values last."""
    if by not in SORTS:
        raise ConfigError(f"runs cannot be sorted by {by!r}; {nearest(by, [*SORTS])}")
    newest = sorted(entries, key=lambda one: (-(one.started or 0.0), one.name))
    value = attrgetter(SORTS[by])
    known = [one for one in newest if value(one) is not None]
    unknown = [one for one in newest if value(one) is None]
    return sorted(known, key=value, reverse=by not in _ASCENDING) + unknown


def _entry(run: Run, name: str, numbers: Snapshot, **known: Any) -> Entry:
    """Return an entry with a snapshot's numbers; NaN and infinity count as unknown where a whole number is meant."""
    bottleneck = numbers.get("bottleneck")
    columns: dict[str, Any] = {column: _whole(numbers.get(column)) for column in ("env_steps", "updates", "episodes")}
    columns |= {column: number(numbers.get(column)) for column in _NUMBERS}
    return Entry(
        name=name,
        path=str(run.path),
        state=run.state,
        started=run.record.started or None,
        bottleneck=bottleneck if isinstance(bottleneck, str) else None,
        **columns,
        **known,
    )


def _finished(run: Run, name: str, summary: Summary) -> Entry:
    wall_s = summary.resumed_wall_s + summary.wall_s
    return _entry(
        run,
        name,
        {**summary.snapshot(), "wall_s": wall_s},
        outcome=REASONS[summary.stop_reason].short if summary.stop_reason in REASONS else summary.stop_reason,
        exit_code=summary.exit_code,
        env=summary.env,
        algorithm=summary.algorithm,
        seed=summary.seed,
        time_to_first_update_s=summary.time_to_first_update_s,
        peak_rss_mb=sum(summary.peak_rss_mb.values()) or None,
    )


def _unfinished(run: Run, name: str) -> Entry:
    row = dict(last_row(run.path / "metrics.csv"))
    if run.state != "running":
        row.pop("env_steps_per_s", None)
    manifest = Manifest.read(run.path / "manifest.json")
    return _entry(
        run,
        name,
        row,
        outcome=run.state,
        env=None if manifest is None else manifest.environment,
        algorithm=None if manifest is None else manifest.algorithm,
        seed=None if manifest is None else manifest.seed,
    )


def _whole(value: Value) -> int | None:
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else None
