"""Several runs side by side: the settings that differ, outcomes, groups, what mattered, and their curves."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast
from zlib import crc32

import numpy as np

from distrl.apps.dashboard.files import NotThereError
from distrl.apps.dashboard.importance import ENOUGH, importances
from distrl.apps.dashboard.index import IndexedRun
from distrl.apps.dashboard.outcomes import Centre, Group, best_words, grouped
from distrl.apps.dashboard.payloads import Json, Runs, coordinates, numbers, words
from distrl.apps.dashboard.sweeps import FoundSweep, described, find_sweep, sweeps_of
from distrl.apps.reports.curves import Band, Curve, Statistic, band, by_number, curve, smoothed, thinned
from distrl.config.settings import Setting, Settings, different, short_names
from distrl.errors import ConfigError
from distrl.metrics.phrases import count_words, digits_apart, return_words
from distrl.metrics.snapshot import X_AXES
from distrl.metrics.titles import title_of

ALL, ALL_BUT_SEED, USUAL = "*", "~seed", "~"
"""Groups: all runs together; runs that differ in nothing but their seed; the latter if it has groups, else none."""
MOST_LINES, MOST_RUNS, MOST_BANDS = 60, 1000, 16
MOST_SETTINGS = 300
SEED = "seed"
OUTCOMES = (
    *("evaluation_mean_return", "best_evaluation_return", "mean_return_100", "best_mean_return_100"),
    *("env_steps_per_s", "env_steps", "training_s"),
)
"""Outcomes of runs; the first one that runs have is the usual one."""
RETURNS = OUTCOMES[:4]
CENTRES: Mapping[Statistic, Centre] = {"mean": "mean", "iqm": "iqm", "interval": "iqm", "median": "median"}
BAND_WORK = 2**22
"""Numbers of all resamples of the bands together, which sets their points."""
BAND_POINTS = (60, 400)
LONGEST_LABEL = 160


class Asked(NamedTuple):
    """The request of a page that compares runs.

    Attributes:
        ids: Runs; with a sweep, those of its runs that are meant, or none for all.
        sweep: Id of a sweep; "": none.
        groups: Dotted paths, or one of `ALL`, `ALL_BUT_SEED`, `USUAL`; empty: each run by itself.
        outcome: One of `OUTCOMES`; "": the usual one.
    """

    ids: Sequence[str]
    sweep: str = ""
    groups: Sequence[str] = (USUAL,)
    statistic: Statistic = "interval"
    outcome: str = ""


class Compared:
    """The runs that a page compares, with their settings, groups and outcomes."""

    def __init__(self, runs: Runs, asked: Asked) -> None:
        self.runs, self.statistic = runs, asked.statistic
        self.sweep: FoundSweep | None = find_sweep(runs.index, asked.sweep) if asked.sweep else None
        self.entries, self.without = _chosen(runs, asked, self.sweep)
        self.rows = [runs.row_of(entry, None) for entry in self.entries]
        self.settings = [runs.settings_of(entry) for entry in self.entries]
        self.paths = self._paths()
        self.names = short_names(self.paths, {path for one in self.settings for path in one})
        self.outcome = asked.outcome or self._usual_outcome()
        self.outcomes = [_outcome(row, self.outcome) for row in self.rows]
        self.grouped_by = self._resolved(asked.groups)
        self._digits: dict[str, int] = {}
        self.labels = [self._label(settings) for settings in self.settings]
        self.groups = grouped(self.labels, self.outcomes, CENTRES[self.statistic])
        self.places = self._places()

    def _paths(self) -> list[str]:
        """Return the settings that differ: those that the sweep varies first, the seed last."""
        found = different([one for one in self.settings if one])
        varied = self.sweep.sweep.varied if self.sweep and self.sweep.sweep else ()

        def place(path: str) -> int:  # a number in place of a schedule becomes a section
            return next((n for n, one in enumerate(varied) if f"{path}.".startswith(f"{one}.")), len(varied))

        return sorted(found, key=lambda path: (path == SEED, place(path)))

    def _usual_outcome(self) -> str:
        """Return the newest evaluation if every run with a return has one, as of a sweep's score; else the return."""
        having = {
            name: {place for place, row in enumerate(self.rows) if _outcome(row, name) is not None} for name in RETURNS
        }
        evaluated = having["evaluation_mean_return"]
        return "evaluation_mean_return" if evaluated and evaluated >= having["mean_return_100"] else "mean_return_100"

    def _resolved(self, groups: Sequence[str]) -> tuple[str, ...]:
        """Return dotted paths, or (`ALL`,); empty: no groups."""
        if ALL in groups:
            return (ALL,)
        apart = tuple(path for path in self.paths if path != SEED)
        if USUAL in groups:
            several = len({_values_of(one, apart) for one in self.settings}) < len(self.settings)
            return (apart or (ALL,)) if several and SEED in self.paths else ()
        if ALL_BUT_SEED in groups:
            return apart or (ALL,)
        return tuple(dict.fromkeys(groups))

    def _label(self, settings: Settings) -> str | None:
        if not self.grouped_by or not settings:
            return None
        if self.grouped_by == (ALL,):
            return "all runs"
        told = " ".join(f"{self.names.get(path, path)}={self._short(settings, path)}" for path in self.grouped_by)
        if len(told) <= LONGEST_LABEL:
            return told
        return f"{told[:LONGEST_LABEL]}… ({crc32(told.encode()):08x})"  # labels tell groups apart

    def _short(self, settings: Settings, path: str) -> str:
        """Return a value in one line, numbers with as many digits as tell those of the runs apart."""
        if path not in self._digits:
            values = [one[path].value for one in self.settings if path in one]
            self._digits[path] = digits_apart(value for value in values if isinstance(value, float))
        value = settings[path].value if path in settings else None
        return f"{value:.{self._digits[path]}g}" if isinstance(value, float) else text(settings, path)

    def table(self) -> Json:
        """Return the settings that differ and the outcomes, the groups, the best one, and what mattered."""
        mattered = self._importances()
        return {
            "runs": self._rows(range(len(self.rows))),
            "settings": [self._column(path) for path in self.paths[:MOST_SETTINGS]],
            "outcomes": [{"name": name, "title": title_of(name)} for name in OUTCOMES if self._has(name)],
            "outcome": self.outcome,
            "group": list(self.grouped_by),
            "groups": [self._group(one) for one in self.groups],
            "best": self._best_words(),
            "importance": mattered,
            "sweep": None if self.sweep is None else described(self.sweep),
            "sweeps": [] if self.sweep else sweeps_of(self.runs.index, self.entries),
        }

    def curves(self, name: str, over: str, points: int, window: int, only: Collection[str] | None = None) -> Json:
        """Return the lines of a metric, and the bands of the groups; of more than `MOST_LINES` runs only bands.

        Args:
            only: Ids of the runs that lines and bands are of; None: all. Groups, labels and colours are those of all.
        """
        chosen = [at for at, entry in enumerate(self.entries) if only is None or entry.id in only]
        found = {at: _curve(self.runs, self.entries[at], name, over, window) for at in chosen}
        members = {one.label: [at for at in one.members if at in found] for one in self.groups}
        shown = sorted([label for label, among in members.items() if among][:MOST_BANDS], key=self.places.__getitem__)
        most = BAND_WORK // (2000 * max(1, sum(len(members[label]) for label in shown)))
        most = max(BAND_POINTS[0], min(BAND_POINTS[1], most))
        lines = chosen if len(chosen) <= MOST_LINES else chosen[: 0 if shown else MOST_LINES]
        return {
            "runs": self._rows(chosen),
            "curves": {self.entries[at].id: coordinates(thinned(found[at], points)) for at in lines},
            "bands": [
                {
                    "label": label,
                    "place": self.places[label],
                    **_band([found[at] for at in members[label]], self.statistic, most),
                }
                for label in shown
            ],
            "columns": sorted({column for entry in self.entries for column in self.runs.columns_of(entry)}),
            "left_out": self._left_out(len(chosen), sum(map(bool, members.values()))),
        }

    def _places(self) -> dict[str, int]:
        """Return a group's label -> its place, which sets its colour: first the groups that bands show, by label."""
        parts = self.groups[:MOST_BANDS], self.groups[MOST_BANDS:]
        ordered = [label for part in parts for label in sorted((one.label for one in part), key=_by_parts)]
        return {label: place for place, label in enumerate(ordered)}

    def _rows(self, places: Iterable[int]) -> list[Json]:
        return [self.rows[at] | {"group": self.labels[at], "outcome": self.outcomes[at]} for at in places]

    def _column(self, path: str) -> Json:
        """Return a setting's values, as numbers where all of them are."""
        values = [one[path].value if path in one else None for one in self.settings]
        numeric = all(_is_number(value) for value in values)
        told = [text(one, path) for one in self.settings]
        return {"path": path, "name": self.names[path], "texts": told, "numbers": values if numeric else None}

    def _has(self, name: str) -> bool:
        return any(_outcome(row, name) is not None for row in self.rows)

    def _group(self, one: Group) -> Json:
        scored = [self.rows[at]["numbers"] for at in one.members if self.outcomes[at] is not None]
        best = [float(value) for each in scored if _is_number(value := each.get("best_mean_return_100"))]
        interval = None if one.outcome is None else numbers(one.outcome)
        ids = [self.entries[at].id for at in one.members]
        return {
            "label": one.label,
            "ids": ids,
            "counted": one.counted,
            "interval": interval,
            "best": max(best, default=None),
        }

    def _best_words(self) -> str:
        """Return which group, or which run, is best; empty for an outcome of which more is not better."""
        if self.outcome not in (*RETURNS, "env_steps_per_s"):
            return ""
        groups = self.groups
        if not groups:
            names = [entry.name for entry in self.entries]
            groups = grouped([*names], self.outcomes, "mean")
        say = return_words if self.outcome in RETURNS else count_words
        told = best_words(groups, CENTRES[self.statistic], say)
        running = sum(entry.state == "running" for entry in self.entries)
        missing = sum(value is None for value in self.outcomes)
        if told and missing:
            told += f" Not counted: {missing} of {len(self.outcomes)} runs, which failed or have no value yet."
        return told + (f" {running} still running." if told and running else "")

    def _importances(self) -> Json:
        """Return what each setting but the seed explains of the outcome, and in a sentence how to read it."""
        counted = [at for at, value in enumerate(self.outcomes) if value is not None]
        values = {path: self._values(path, counted) for path in self.paths if path != SEED}
        found = importances(values, [cast(float, self.outcomes[at]) for at in counted])
        rows = [{"path": path, "name": self.names[path], **one._asdict()} for path, one in found.items()]
        return {"settings": rows[:40], "words": _importance_words(rows, len(counted), len(values))}

    def _values(self, path: str, places: Sequence[int]) -> list[float | str]:
        known = [self.settings[at].get(path) for at in places]
        if all(one is not None and _is_number(one.value) for one in known):
            return [float(cast(Setting, one).value) for one in known]
        return ["" if one is None else words(one.value) for one in known]

    def _left_out(self, runs: int, groups: int) -> str:
        """Return what the chart of so many runs, in so many groups, does not show."""
        told = []
        if self.without and self.sweep is None:
            gone = "1 of these runs is" if self.without == 1 else f"{self.without} of these runs are"
            told.append(f"{gone} not there any more.")
        elif self.without:
            told.append(f"Only the first {MOST_RUNS:,} runs are compared; {self.without:,} more are left out.")
        if runs > MOST_LINES:
            told.append(
                f"{runs:,} runs are too many for lines of their own: the chart shows groups."
                if groups
                else f"The chart shows the first {MOST_LINES} of {runs:,} runs; group them to see all."
            )
        if groups > MOST_BANDS:
            told.append(f"The chart shows the {MOST_BANDS} groups with the greatest outcome of {groups:,}.")
        if len(self.paths) > MOST_SETTINGS:
            told.append(f"{len(self.paths) - MOST_SETTINGS:,} further settings that differ are left out.")
        return " ".join(told)


def _chosen(runs: Runs, asked: Asked, sweep: FoundSweep | None) -> tuple[list[IndexedRun], int]:
    """Return the runs, and how many others are left out: those that are gone, or beyond `MOST_RUNS` of a sweep."""
    ids = dict.fromkeys(asked.ids)
    if sweep is None:
        if not 1 <= len(ids) <= MOST_LINES:
            raise ConfigError(f"name 1 to {MOST_LINES} runs, or a sweep: id=…&id=… or sweep=…")
        found = runs.index.some(ids)
        if not found:
            raise NotThereError("none of these runs is there any more")
        return found, len(ids) - len(found)
    entries = [entry for entry in sweep.entries if not ids or entry.id in ids]
    return entries[:MOST_RUNS], max(len(entries) - MOST_RUNS, 0)


def text(settings: Settings, path: str) -> str:
    """Return a setting's value in one line; "null" where a run lacks it."""
    return words(settings[path].value if path in settings else None)


def _by_parts(label: str) -> list[Any]:
    return [by_number(part) for part in re.split(r"[ =]", label)]


def _values_of(settings: Settings, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(text(settings, path) for path in paths)


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e300
    )


def _outcome(row: Json, name: str) -> float | None:
    """Return an outcome; None for a run that failed, or where it is not known."""
    value = row["numbers"].get(name)
    if row["state"] == "damaged" or "failed" in row["words"] or not _is_number(value):
        return None
    return float(value)


def _curve(runs: Runs, entry: IndexedRun, name: str, over: str, window: int) -> Curve:
    try:
        table = runs.table_of(entry, [X_AXES[over], name])
    except (ConfigError, OSError):  # the run's page shows the error
        table = {}
    if name not in table or X_AXES[over] not in table:
        return Curve(np.empty(0), np.empty(0))
    line = curve(table, name, over)
    return Curve(line.x, smoothed(line.y, window))


def _band(lines: Sequence[Curve], statistic: Statistic, points: int) -> Json:
    known = [line for line in lines if len(line.x)]
    if not known or max(line.x[0] for line in known) > min(line.x[-1] for line in known):
        return {"runs": len(known), "x": [], "centre": [], "low": [], "high": []}
    found: Band = band(known, statistic, points)
    return {
        "runs": len(known),
        "x": [float(x) for x in found.x],
        **{name: numbers(getattr(found, name)) for name in ("centre", "low", "high")},
    }


def _importance_words(rows: Sequence[Json], runs: int, settings: int) -> str:
    if not settings:
        return "No setting but the seed differs."
    if not rows:
        return (
            f"What mattered cannot be judged: {runs} runs have an outcome, and it takes {ENOUGH}, with several runs to "
            "a value and outcomes that differ."
        )
    sure = [row for row in rows if row["p"] <= 0.05]
    if not sure:
        return (
            f"No setting explains more of the outcome than chance does, over {runs} runs and after correction for "
            f"{len(rows)} setting{'s' * (len(rows) != 1)}. Train more, or vary less."
        )
    named = ", ".join(f"{row['name']} {100 * row['share']:.0f} %" for row in sure[:3])
    return f"Explained of the outcome's variance by one setting alone, more than by chance: {named}, over {runs} runs."
