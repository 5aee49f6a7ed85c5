"""Moments of a run for its charts: evaluations with their spread, targets, restarts, checkpoints, changed settings."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distrl.apps.dashboard.files import Event, events, own_file
from distrl.config.settings import Settings
from distrl.metrics.snapshot import DISCOUNTED, X_AXES, estimate_columns, info_column
from distrl.runs.evaluations import EVALUATIONS, read_evaluations
from distrl.runs.metrics_csv import Numbers, Table
from distrl.runs.saved_checkpoints import own_checkpoints

MOST_MARKS = 200
MOST_EVALUATIONS = 1000
SLACK_S = 120.0
"""Seconds by which an event may lie behind the last row, as those of ending do."""
_EVALUATION = re.compile(r"evaluation at ([\d,]+) steps: .*")
_KINDS = (
    ("restart", re.compile(r".* started again \(restart \d+\)")),
    ("parameter", re.compile(r"asked: [a-z_]+\.\S+ .*")),
    ("scale", re.compile(r"scaled from \d+ to \d+ actors")),
    ("request", re.compile(r"asked: (pause|resume|stop|take the networks).*")),
    ("learner", re.compile(r"the learner .*")),
)
_LAUNCH = re.compile(r"run \S+ in .*")
_RESUMED = re.compile(r"resuming from .*\(update (\d+)\).*")
TARGETS = {"stop.mean_return": "mean_return_100", "stop.evaluation_return": "evaluation_mean_return"}
"""Setting -> the metric that has to reach it."""
_METRICS = "stop.metrics."
Json = dict[str, Any]


class _Moment(NamedTuple):
    kind: str
    text: str
    wall_s: float
    time: str = ""


def marks(folder: Path, table: Table, settings: Settings, over: str) -> Json:
    """Return what charts over the x axis `over` mark.

    Events have the time of day. The seconds of training at that moment follow from the newest row of metrics.csv,
    which is as old as the file, and from evaluations, which name their steps. `unplaced` counts events that fit
    nowhere.

    Args:
        table: The columns of all x axes, and those of `columns`.
    """
    found = events(folder)
    walls, rows = table.get("wall_s"), _known_rows(table)
    if walls is None or not len(rows):
        return {"marks": [], "evaluations": [], "estimates": {}, "targets": _targets(settings), "unplaced": 0}
    placed, unplaced = _events(found, _anchors(folder, found, table, rows), table, rows)
    moments = [*_thinned(placed), *_checkpoints(folder, table, rows), *_thinned([*_stages(table, rows)])]
    axis = table[X_AXES[over]][rows]
    return {
        "marks": [
            {"x": _at(walls[rows], axis, one.wall_s), "kind": one.kind, "text": one.text, "time": one.time}
            for one in sorted(moments, key=lambda one: one.wall_s)
        ],
        "evaluations": _evaluations(folder, table, rows, axis),
        "estimates": _estimates(folder, table, rows, axis),
        "targets": _targets(settings),
        "unplaced": unplaced,
    }


def columns(names: Sequence[str]) -> list[str]:
    """Return the columns that `marks` needs, of those that a run has."""
    wanted = ("evaluation_env_steps", "evaluation_mean_return")
    return [*X_AXES.values(), *(name for name in names if name in wanted or name.startswith("curriculum_"))]


def _known_rows(table: Table) -> Any:
    axes = [table[column] for column in X_AXES.values() if column in table]
    return np.flatnonzero(np.isfinite(np.stack(axes)).all(axis=0)) if len(axes) == len(X_AXES) else np.empty(0, int)


def _at(positions: Numbers, values: Numbers, position: float) -> float:
    return float(np.interp(position, positions, values))


def _targets(settings: Settings) -> list[Json]:
    named = {path: info_column(path.removeprefix(_METRICS)) for path in settings if path.startswith(_METRICS)}
    wanted = ((path, metric, settings[path].value) for path, metric in (TARGETS | named).items() if path in settings)
    return [
        {"setting": path, "metric": metric, "value": float(value)}
        for path, metric, value in wanted
        if isinstance(value, int | float) and abs(value) < 1e300
    ]


def _anchors(folder: Path, found: Sequence[Event], table: Table, rows: Any) -> list[tuple[float, float]]:
    """Return pairs of unix time and seconds of training, by time."""
    walls, steps = table["wall_s"][rows], table["env_steps"][rows]
    anchors = []
    for event in found:
        told = _EVALUATION.fullmatch(event.text)
        if told is not None and event.at is not None:
            anchors.append((event.at, _at(steps, walls, float(told[1].replace(",", "")))))
    if (path := own_file(folder, "metrics.csv")) is not None:
        anchors.append((path.stat().st_mtime, float(walls[-1])))
    return sorted(anchors)


def _events(
    found: Sequence[Event], anchors: Sequence[tuple[float, float]], table: Table, rows: Any
) -> tuple[list[_Moment], int]:
    """Return the moments that events tell of, and the number of those that fit nowhere.

    Within a launch the training's time advances with the clock: the nearest anchor of the same launch places an event.
    One before the first update of a launch is placed where the training goes on.
    """
    updates, walls = table["updates"][rows], table["wall_s"][rows]
    launches = [at for event in found if _LAUNCH.fullmatch(event.text) and (at := event.at) is not None]
    placed, unplaced, least_s, last_s = [], 0, 0.0, float(walls[-1])
    for event in found:
        if (resumed := _RESUMED.fullmatch(event.text)) is not None:
            least_s = _at(updates, walls, int(resumed[1][:18]))
            placed.append(_Moment("resumed", event.text, least_s, event.time))
            continue
        kind, at = next((kind for kind, pattern in _KINDS if pattern.fullmatch(event.text)), None), event.at
        if kind is None:
            continue
        begin = max((launch for launch in launches if at is not None and launch <= at), default=float("-inf"))
        end = min((launch for launch in launches if at is not None and launch > at), default=float("inf"))
        own = [anchor for anchor in anchors if begin <= anchor[0] < end]
        anchor = min(own, key=lambda anchor: abs(anchor[0] - (at or 0.0)), default=None)
        wall_s = float("inf") if at is None or anchor is None else anchor[1] + at - anchor[0]
        if wall_s <= last_s + SLACK_S:
            placed.append(_Moment(kind, event.text, min(max(wall_s, least_s), last_s), event.time))
        else:
            unplaced += 1
    return placed, unplaced


def _checkpoints(folder: Path, table: Table, rows: Any) -> Iterator[_Moment]:
    """Yield the best checkpoint, and of all others that are there so many, evenly over the run."""
    updates, walls = table["updates"][rows], table["wall_s"][rows]
    paths, best = own_checkpoints(folder)
    shown = _evenly(sorted(paths), MOST_MARKS)
    for update in {*shown, *(update for update, path in paths.items() if path == best)}:
        told = f"checkpoint of update {update:,}" + (", the best" if paths[update] == best else "")
        yield _Moment("checkpoint", told, _at(updates, walls, float(update)))


def _stages(table: Table, rows: Any) -> Iterator[_Moment]:
    """Yield the changes of what a curriculum sets; one that changes at every row is a curve, and is left out."""
    walls = table["wall_s"][rows]
    for name in [name for name in table if name.startswith("curriculum_")]:
        values = table[name][rows]
        known = np.flatnonzero(np.isfinite(values))
        changed = known[1:][np.diff(values[known]) != 0.0]
        if len(changed) <= MOST_MARKS:
            for at in changed:
                yield _Moment("stage", f"{name.removeprefix('curriculum_')} is {values[at]:g}", float(walls[at]))


def _evaluations(folder: Path, table: Table, rows: Any, axis: Numbers) -> list[Json]:
    """Return evaluations by steps; the spread is only in evaluations.jsonl.

    It is the standard deviation over episodes, within the least and the greatest return of one.
    """
    told: dict[float, Json] = {}
    at_steps, means = (table.get(name, np.empty(0)) for name in ("evaluation_env_steps", "evaluation_mean_return"))
    if len(at_steps) and len(means):
        known = np.isfinite(at_steps) & np.isfinite(means)
        first = np.unique(at_steps[known], return_index=True)[1]
        for steps, mean in zip(at_steps[known][first], means[known][first], strict=True):
            told[float(steps)] = {"mean": float(mean), "low": float(mean), "high": float(mean), "episodes": None}
    path = own_file(folder, EVALUATIONS)
    for one in [] if path is None else read_evaluations(path):
        bounds = {
            "low": max(one.mean_return - one.std_return, one.min_return),
            "high": min(one.mean_return + one.std_return, one.max_return),
        }
        told[float(one.env_steps)] = {"mean": one.mean_return, **bounds, "episodes": one.episodes}
    steps = table["env_steps"][rows]
    return [{"x": _at(steps, axis, at), **told[at]} for at in _evenly(sorted(told), MOST_EVALUATIONS)]


def _estimates(folder: Path, table: Table, rows: Any, axis: Numbers) -> dict[str, list[Json]]:
    """Return column of `evaluation.off_policy` -> estimates by steps, with intervals, and what was played instead."""
    path, steps = own_file(folder, EVALUATIONS), table["env_steps"][rows]
    found = [] if path is None else [one for one in read_evaluations(path) if one.estimates]
    told: dict[str, list[Json]] = {}
    newest = {one.env_steps: one for one in found}  # a run that was resumed has evaluated some steps before
    for _, one in _evenly(sorted(newest.items()), MOST_EVALUATIONS):
        x = _at(steps, axis, float(one.env_steps))
        if (played := one.mean_discounted_return) is not None:
            told.setdefault(DISCOUNTED, []).append({"x": x, "mean": played, "low": None, "high": None})
        for each in one.estimates:
            if (value := each.value) is not None:
                column = estimate_columns(each.estimator)[0]
                told.setdefault(column, []).append({"x": x, "mean": value, "low": each.low, "high": each.high})
    return told


def _evenly(values: Sequence[Any], most: int) -> Sequence[Any]:
    """Return up to so many of the values, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[at] for at in np.linspace(0, len(values) - 1, most).astype(int)]


def _thinned(moments: list[_Moment]) -> list[_Moment]:
    """Return the newest."""
    return sorted(moments, key=lambda one: one.wall_s)[-MOST_MARKS:]
