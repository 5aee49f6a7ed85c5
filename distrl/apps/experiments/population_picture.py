"""population.svg: scores and settings of all members over environment steps, with a mark where one took over."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from distrl.apps.config.configuration import load
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.population_record import Lesson, Record, read_record
from distrl.apps.experiments.search import Search
from distrl.apps.experiments.sweep import Varied
from distrl.apps.reports.curves import Curve, curve, thinned
from distrl.apps.reports.pictures import Track, Tracks, tracks_picture
from distrl.apps.reports.plots import MOST_POINTS
from distrl.data_store.atomic import put_file
from distrl.errors import ConfigError, DistrlError
from distrl.metrics.snapshot import Value
from distrl.runs.metrics_csv import read_table

NAME = "population.svg"
_NOTE = "● took over from the\nmember of its colour"


def draw_picture(search: Search, directory: SweepDirectory) -> list[Path]:
    """Draw population.svg; return what was drawn: nothing before the first score.

    Raises:
        DistrlError: It cannot be written.
    """
    record = read_record(directory)
    assert record is not None
    evaluates = load(file=directory.base).config.evaluation.every_env_steps is not None
    metric = "evaluation_mean_return" if evaluates else "mean_return_100"
    curves = _curves(record, directory, metric)
    if not curves:
        return []
    lessons = {name: [each for each in record.lessons if each.member == name] for name in curves}
    scores = [
        Track(name, points, [(each.env_steps, _at(points, each.env_steps), each.teacher) for each in lessons[name]])
        for name, points in curves.items()
    ]
    panels = [Tracks(metric, scores)]
    for path, varied in search.vary.items():
        tracks = [
            _settings(name, path, varied, lessons[name], record.members[name].values, points.x[-1])
            for name, points in curves.items()
        ]
        panels.append(Tracks(_title(path, varied), tracks, log=varied.log))
    place = directory.path / NAME
    try:
        put_file(place, tracks_picture(panels, _NOTE))
    except OSError as error:
        raise DistrlError(f"{place} cannot be written: {error.strerror}") from error
    return [place]


def _curves(record: Record, directory: SweepDirectory, metric: str) -> dict[str, Curve]:
    """Return the scores of each member that has one."""
    found = {}
    for name in record.members:
        try:
            points = curve(read_table(directory.path / name / "metrics.csv"), metric)
        except ConfigError:  # it has not begun
            continue
        if len(points.x):
            found[name] = thinned(points, MOST_POINTS)
    return found


def _at(points: Curve, x: float) -> float:
    return float(np.interp(x, points.x, points.y))


def _settings(
    name: str, path: str, varied: Varied, lessons: list[Lesson], now: Mapping[str, Value], end: float
) -> Track:
    """Return the values of one setting, from its first to its present one."""
    first = lessons[0].before if lessons else now
    steps = [0.0, *(float(each.env_steps) for each in lessons), end]
    values = [_height(varied, each[path]) for each in (first, *(each.after for each in lessons), now)]
    marks = [(at, value, each.teacher) for at, value, each in zip(steps[1:], values[1:], lessons, strict=False)]
    return Track(name, Curve(np.array(steps), np.array(values)), marks, steps=True)


def _height(varied: Varied, value: Value) -> float:
    """Return the height of a value: itself, or of a list that is not of numbers, its place there."""
    if _is_numeric(varied):
        assert isinstance(value, int | float)
        return float(value)
    assert varied.values is not None
    return float(varied.values.index(value))


def _is_numeric(varied: Varied) -> bool:
    return varied.values is None or all(isinstance(value, int | float) for value in varied.values)


def _title(path: str, varied: Varied) -> str:
    if _is_numeric(varied):
        return path
    return f"{path}: {', '.join(f'{place} {value}' for place, value in enumerate(varied.values or ()))}"
