"""A list of runs: of each what it trains, how it stands and what it came to, in one line."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Literal

from distrl.config.presets import nearest
from distrl.errors import EXIT_OK, ConfigError
from distrl.metrics.progress import number
from distrl.metrics.snapshot import Value
from distrl.runs.directories import Run, State
from distrl.runs.last_row import last_row
from distrl.runs.manifest import Manifest
from distrl.runs.summary import Summary

OUTCOMES = {
    "mean_return": "solved",
    "evaluation_return": "solved",
    "env_steps": "steps spent",
    "updates": "updates spent",
    "minutes": "time up",
    "asked": "stopped",
}
"""Stop reason -> the same in a word or two; others are short already."""
Kind = Literal["running", "ended", "gone", "solved", "failed"]
KINDS: tuple[Kind, ...] = ("running", "ended", "gone", "solved", "failed")
"""What runs can be filtered by; solved and failed are of those that ended."""
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
"""What runs can be sorted by -> the attribute of an entry."""
_ASCENDING = ("name", "environment", "algorithm", "seed")


@dataclass(frozen=True)
class Entry:
    """One run of a list. None: not known, or not yet.

    Attributes:
        name: Its directory's, below the folder that was looked into.
        outcome: Why it ended, in a word or two; else its state.
        wall_s: Of a run that ended from launch to end, and what earlier launches have trained; of others the training
            time in its newest row.
        started: The newest launch, in seconds since 1970.
        peak_rss_mb: Highest resident memory of each role, added up, MB (10^6 bytes).
    """

    name: str
    path: str
    state: State
    outcome: str
    exit_code: int | None
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
    time_to_first_update_s: float | None
    policy_lag_mean: float | None
    policy_lag_max: float | None
    bottleneck: str | None
    peak_rss_mb: float | None

    @property
    def kinds(self) -> set[str]:
        """Those of `KINDS` that it is."""
        kinds: set[str] = {self.state}
        if self.outcome == "solved":
            kinds.add("solved")
        if self.exit_code not in (None, EXIT_OK):
            kinds.add("failed")
        return kinds


def entry(run: Run, name: str) -> Entry:
    """What is known of a run: of one that ended from its summary, else from the last row of its metrics.

    Raises:
        ConfigError: One of its files is damaged.
    """
    return _unfinished(run, name) if run.summary is None else _finished(run, name, run.summary)


def entry_name(path: Path, places: Iterable[Path]) -> str:
    """A run's name in a list: its path below the folder it was found in; its directory's name where it was named."""
    for place in places:
        if path != place and path.is_relative_to(place):
            return str(path.relative_to(place))
    return path.resolve().name


def selected(
    entries: Iterable[Entry], env: str | None = None, algorithm: str | None = None, kind: str | None = None
) -> Iterator[Entry]:
    """Those that match all that is asked for.

    Args:
        env: A pattern with * and ?, like the next.
        kind: One of `KINDS`.

    Raises:
        ConfigError: There is no such kind.
    """
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
    """Sorted: newest, most and best first, names and seeds from the least; what is not known comes last.

    Args:
        by: A key of `SORTS`.

    Raises:
        ConfigError: There is no such column.
    """
    if by not in SORTS:
        raise ConfigError(f"runs cannot be sorted by {by!r}; {nearest(by, [*SORTS])}")
    newest = sorted(entries, key=lambda one: (-(one.started or 0.0), one.name))
    value = attrgetter(SORTS[by])
    known = [one for one in newest if value(one) is not None]
    unknown = [one for one in newest if value(one) is None]
    return sorted(known, key=value, reverse=by not in _ASCENDING) + unknown


def _finished(run: Run, name: str, summary: Summary) -> Entry:
    return Entry(
        name=name,
        path=str(run.path),
        state=run.state,
        outcome=OUTCOMES.get(summary.stop_reason, summary.stop_reason),
        exit_code=summary.exit_code,
        env=summary.env,
        algorithm=summary.algorithm,
        seed=summary.seed,
        env_steps=summary.env_steps,
        updates=summary.updates,
        episodes=summary.episodes,
        mean_return_100=summary.mean_return_100,
        best_mean_return_100=summary.best_mean_return_100,
        env_steps_per_s=summary.env_steps_per_s,
        wall_s=summary.resumed_wall_s + summary.wall_s,
        started=run.record.started or None,
        time_to_first_update_s=summary.time_to_first_update_s,
        policy_lag_mean=summary.policy_lag.mean,
        policy_lag_max=summary.policy_lag.max,
        bottleneck=summary.bottleneck,
        peak_rss_mb=sum(summary.peak_rss_mb.values()) or None,
    )


def _unfinished(run: Run, name: str) -> Entry:
    manifest = Manifest.read(run.path / "manifest.json")
    row = last_row(run.path / "metrics.csv")
    return Entry(
        name=name,
        path=str(run.path),
        state=run.state,
        outcome=run.state,
        exit_code=None,
        env=None if manifest is None else manifest.environment,
        algorithm=None if manifest is None else manifest.algorithm,
        seed=None if manifest is None else manifest.seed,
        env_steps=_whole(row.get("env_steps")),
        updates=_whole(row.get("updates")),
        episodes=_whole(row.get("episodes")),
        mean_return_100=number(row.get("mean_return_100")),
        best_mean_return_100=number(row.get("best_mean_return_100")),
        env_steps_per_s=number(row.get("env_steps_per_s")) if run.state == "running" else None,
        wall_s=number(row.get("wall_s")),
        started=run.record.started or None,
        time_to_first_update_s=None,
        policy_lag_mean=number(row.get("policy_lag_mean")),
        policy_lag_max=number(row.get("policy_lag_max")),
        bottleneck=_text(row.get("bottleneck")),
        peak_rss_mb=None,
    )


def _whole(value: Value) -> int | None:
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else None


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
