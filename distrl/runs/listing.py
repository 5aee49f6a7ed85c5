"""Runs side by side: a list with the state, progress and outcome of each, filtered and sorted, and a comparison."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from distrl.config.document import flat
from distrl.config.presets import nearest
from distrl.config.settings import Setting, Settings, different, read_settings
from distrl.errors import ConfigError
from distrl.metrics.phrases import UNKNOWN, count_words, known, return_words
from distrl.metrics.snapshot import Snapshot, Value, number
from distrl.runs.directories import Manifest, Run, State, damaged_run, readable, short_names
from distrl.runs.labels import Labels
from distrl.runs.last_row import last_row
from distrl.runs.summary import REASONS, RunEnd, Summary, duration

Kind = Literal["running", "ended", "gone", "damaged", "solved", "stopped", "interrupted", "failed"]
KINDS = get_args(Kind)
"""Filters of the list: a state, or how a run has ended."""
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
class ListedRun:
    """One run of a list. None: not known, or not yet.

    Attributes:
        name: Path of its directory below the folder that was searched.
        outcome: Why it ended, in a word or two; else its state.
        wall_s: Training time. For a run that ended, from launch to end, plus the time of earlier launches.
        started: Time of the newest launch, in seconds since 1970.
        title: Name that a user gave the run; "" for none.
        tags: The user's, see `distrl.runs.labels`.
        peak_rss_mb: Highest resident memory of each role, added up, MB (10^6 bytes).
        problem: What is damaged, in a line; None for nothing.
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
    end: RunEnd | None = None
    time_to_first_update_s: float | None = None
    peak_rss_mb: float | None = None
    title: str = ""
    tags: tuple[str, ...] = ()
    archived: bool = False
    problem: str | None = None

    @property
    def words(self) -> str:
        """The outcome, with what is damaged."""
        if self.problem is None:
            return self.outcome
        told = f"damaged: {self.problem}"
        return told if self.state == "damaged" else f"{self.outcome}; {told}"

    @property
    def kinds(self) -> set[str]:
        """The members of `KINDS` that apply."""
        return {self.state} if self.end is None else {self.state, self.end}


def entry(run: Run, name: str) -> ListedRun:
    """Return the entry of a run, from its summary if it has ended, else from the last row of its metrics."""
    if run.state == "damaged":
        return _damaged(run, name)
    return _unfinished(run, name) if run.summary is None else _finished(run, name, run.summary)


def listed(run: Run, name: str) -> ListedRun:
    """Return the entry of a run; one whose files are damaged is an entry that says so."""
    try:
        return entry(run, name)
    except (ConfigError, OSError) as error:
        return _damaged(damaged_run(run.path, error), name)


def entry_name(path: Path, places: Iterable[Path]) -> str:
    """Return a run's path below the folder it was found in, or its directory's name if it was named itself."""
    for place in places:
        if path != place and path.is_relative_to(place):
            return readable(str(path.relative_to(place)))
    return readable(path.resolve().name)


def selected(
    entries: Iterable[ListedRun],
    env: str | None = None,
    algorithm: str | None = None,
    kind: str | None = None,
    *,
    archived: bool = False,
) -> Iterator[ListedRun]:
    """Yield the entries that match all filters: patterns with * and ?, and one of `KINDS`; archived ones on request."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"unknown state {kind!r}; {nearest(kind, [*KINDS])}")
    for one in entries:
        if one.archived and not archived:
            continue
        if env is not None and not fnmatchcase(one.env or "", env):
            continue
        if algorithm is not None and not fnmatchcase(one.algorithm or "", algorithm):
            continue
        if kind is None or kind in one.kinds:
            yield one


def ordered(entries: Iterable[ListedRun], by: str = "started") -> list[ListedRun]:
    """Return the entries by a key of `SORTS`: newest, most and best first, names ascending, unknown values last."""
    if by not in SORTS:
        raise ConfigError(f"runs cannot be sorted by {by!r}; {nearest(by, [*SORTS])}")
    newest = sorted(entries, key=lambda one: (-(one.started or 0.0), one.name))
    value = attrgetter(SORTS[by])
    having = [one for one in newest if value(one) is not None]
    lacking = [one for one in newest if value(one) is None]
    return sorted(having, key=value, reverse=by not in _ASCENDING) + lacking


def _entry(run: Run, name: str, numbers: Snapshot, **facts: Any) -> ListedRun:
    """Return an entry with a snapshot's numbers; NaN and infinity count as unknown where a whole number is meant."""
    bottleneck = numbers.get("bottleneck")
    columns: dict[str, Any] = {column: _whole(numbers.get(column)) for column in ("env_steps", "updates", "episodes")}
    columns |= {column: number(numbers.get(column)) for column in _NUMBERS}
    labels = Labels() if run.state == "damaged" else Labels.read(run.path)
    return ListedRun(
        name=name,
        path=str(run.path),
        state=run.state,
        started=run.record.started or None,
        bottleneck=bottleneck if isinstance(bottleneck, str) else None,
        title=labels.name,
        tags=labels.tags,
        archived=labels.archived,
        problem=run.problem or None,
        **columns,
        **facts,
    )


def _finished(run: Run, name: str, summary: Summary) -> ListedRun:
    wall_s = summary.resumed_wall_s + summary.wall_s
    return _entry(
        run,
        name,
        {**summary.snapshot(), "wall_s": wall_s},
        outcome=REASONS[summary.stop_reason].short if summary.stop_reason in REASONS else summary.stop_reason,
        exit_code=summary.exit_code,
        end=summary.end,
        env=summary.env,
        algorithm=summary.algorithm,
        seed=summary.seed,
        time_to_first_update_s=summary.time_to_first_update_s,
        peak_rss_mb=sum(summary.peak_rss_mb.values()) or None,
    )


def _unfinished(run: Run, name: str) -> ListedRun:
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


def _damaged(run: Run, name: str) -> ListedRun:
    return _entry(run, name, {}, outcome=run.state, env=None, algorithm=None, seed=None)


def _whole(value: Value) -> int | None:
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else None


class Quantity(NamedTuple):
    """One quantity of every run."""

    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """At least two runs, and their settings in the same order; none of one whose configuration is damaged."""

    entries: tuple[ListedRun, ...]
    settings: tuple[Settings, ...]

    @property
    def differences(self) -> list[Quantity]:
        """The settings that differ between the runs."""
        rows = [{path: setting for path, setting in _rows(settings)} for settings in self.settings]
        return [
            Quantity(path, tuple(each[path].text if path in each else UNKNOWN for each in rows))
            for path in different([*filter(None, rows)])
        ]

    @property
    def outcomes(self) -> list[Quantity]:
        """Outcomes of the runs."""
        return [Quantity(name, tuple(map(cell, self.entries))) for name, cell in _OUTCOMES]

    def json(self) -> dict[str, Any]:
        """Return plain data; a setting that a run lacks is absent from it."""
        paths = different([*filter(None, self.settings)])
        return {
            "runs": [asdict(one) | {"tags": [*one.tags]} for one in self.entries],
            "differences": [{path: each[path].value for path in paths if path in each} for each in self.settings],
        }


def _rows(settings: Settings) -> Iterator[tuple[str, Setting]]:
    """Yield the rows of settings: a list of sections, such as network.heads, has one for each of their values."""
    for path, setting in settings.items():
        if isinstance(setting.value, list) and any(isinstance(item, Mapping) for item in setting.value):
            for number, item in enumerate(setting.value):
                place = f"{path}[{number}]"
                below = [((place, *keys), value) for keys, value in flat(item)] if isinstance(item, Mapping) else []
                within = {".".join(keys): Setting(value, setting.origin) for keys, value in below}
                yield from _rows(within or {place: Setting(item, setting.origin)})
        else:
            yield path, setting


def compare_runs(runs: Sequence[Run]) -> Comparison:
    """Read the runs to compare."""
    names = short_names([run.path for run in runs])
    entries, settings = [], list[Settings]()
    for run, name in zip(runs, names, strict=True):
        entries.append(listed(run, name))
        try:
            settings.append(read_settings(run.path / "config.yaml"))
        except ConfigError as error:
            problem = entries[-1].problem or damaged_run(run.path, error).problem
            entries[-1] = replace(entries[-1], problem=problem)
            settings.append({})
    return Comparison(tuple(entries), tuple(settings))


def _exit(one: ListedRun) -> str:
    return one.words if one.exit_code in (None, 0) else f"{one.words} (exit code {one.exit_code})"


def _lag(one: ListedRun) -> str:
    if one.policy_lag_mean is None or one.policy_lag_max is None:
        return UNKNOWN
    return f"{one.policy_lag_mean:.1f}, max {one.policy_lag_max:,.0f}"


_OUTCOMES: tuple[tuple[str, Callable[[ListedRun], str]], ...] = (
    ("end", _exit),
    ("environment", lambda one: one.env or UNKNOWN),
    ("algorithm", lambda one: one.algorithm or UNKNOWN),
    ("return", lambda one: known(one.mean_return_100, return_words)),
    ("best return", lambda one: known(one.best_mean_return_100, return_words)),
    ("steps", lambda one: known(one.env_steps, count_words)),
    ("updates", lambda one: known(one.updates, count_words)),
    ("episodes", lambda one: known(one.episodes, count_words)),
    ("steps/s", lambda one: known(one.env_steps_per_s, count_words)),
    ("wall time", lambda one: known(one.wall_s, duration)),
    ("to first update", lambda one: known(one.time_to_first_update_s, duration)),
    ("policy lag", _lag),
    ("bottleneck", lambda one: one.bottleneck or UNKNOWN),
    ("peak memory", lambda one: known(one.peak_rss_mb, lambda mb: f"{mb:,.0f} MB")),
)
