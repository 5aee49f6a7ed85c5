"""Selects what a picture of runs shows: the metric, the x axis, and which runs form one line or one band."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.apps.reports.curves import Band, Curve, Statistic, band, by_number, curve, smoothed, thinned
from distrl.config.presets import nearest
from distrl.config.settings import read_settings, value_of
from distrl.errors import ConfigError
from distrl.metrics.snapshot import X_AXES
from distrl.runs.directories import short_names
from distrl.runs.metrics_csv import Table, read_table


@dataclass(frozen=True)
class Palette:
    """Colours of everything; lines take theirs in turn."""

    paper: str
    ink: str
    dim: str
    grid: str
    lines: tuple[str, ...]


LIGHT = Palette(
    "#ffffff",
    "#1c2733",
    "#5c6b7a",
    "#e3e8ee",
    ("#1f6fb4", "#d1661c", "#2e8b57", "#b23a6f", "#7156a8", "#8a6d1f", "#0f8a94", "#c23b3b", "#5b6b7a", "#5f8a14"),
)
DARK = Palette(
    "#0f1419",
    "#e6edf3",
    "#9aa7b4",
    "#27313b",
    ("#6cb6ff", "#ffa657", "#7ee0a1", "#ff8fbf", "#bda6ff", "#e3c567", "#5ad4de", "#ff7b72", "#aab6c2", "#b5e06b"),
)


MOST_POINTS = 2000
"""Most points of one line, more than a picture has columns of pixels."""
FOLDER = "folder"
"""Groups runs by folder instead of a key of the configuration."""


@dataclass(frozen=True)
class PlottedRun:
    """A run's numbers and name."""

    name: str
    path: Path
    table: Table


@dataclass(frozen=True)
class PlotGroup:
    """Runs that are drawn together: a line for each, and a band for several that have common x."""

    label: str
    curves: tuple[Curve, ...]
    band: Band | None


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a metric of every group, and optionally another one on a second y axis."""

    metric: str
    groups: tuple[PlotGroup, ...]
    second: str | None = None
    second_groups: tuple[PlotGroup, ...] = ()


@dataclass(frozen=True)
class CurveOptions:
    """Options of curves.

    Attributes:
        over: A key of `X_AXES`.
        window: Points of the moving average; 1 leaves the values unchanged.
    """

    over: str = "steps"
    window: int = 1
    statistic: Statistic = "mean"


def read_sources(paths: Sequence[Path], trouble: Callable[[str], None]) -> list[PlottedRun]:
    """Read the numbers of runs; `trouble` gets a line for each that is skipped, damaged or without a row yet."""
    sources, reasons = [], []
    for name, path in zip(short_names(paths), paths, strict=True):
        try:
            table = read_table(path / "metrics.csv")
        except ConfigError as error:
            reasons.append(str(error))
            continue
        if any(map(len, table.values())):
            sources.append(PlottedRun(name, path, table))
        else:
            reasons.append(f"{path} has no numbers yet; wait for its first updates")
    if not sources:
        raise ConfigError("; ".join(reasons[:1]) or "no run to draw")
    for reason in reasons:
        trouble(reason)
    return sources


def group_sources(sources: Sequence[PlottedRun], by: str | None) -> dict[str, list[PlottedRun]]:
    """Group runs by label.

    Args:
        by: None: every run alone. "folder": runs of one folder together. Else a key of the configuration, like
            network.learning_rate: runs with equal values together.
    """
    if by is None:
        return {source.name: [source] for source in sources}
    if by == FOLDER:
        labels = short_names([source.path.resolve().parent for source in sources])
    else:
        labels = [value_of(read_settings(source.path / "config.yaml"), by) for source in sources]
    groups: dict[str, list[PlottedRun]] = {}
    for label, source in sorted(zip(labels, sources, strict=True), key=lambda pair: by_number(pair[0])):
        groups.setdefault(label, []).append(source)
    return groups


def panel(groups: Mapping[str, Sequence[PlottedRun]], metric: str, second: str | None, options: CurveOptions) -> Panel:
    """Make one pair of axes."""
    shown = draw_groups(groups, metric, options)
    return Panel(metric, shown, second, () if second is None else draw_groups(groups, second, options))


def draw_groups(
    groups: Mapping[str, Sequence[PlottedRun]], metric: str, options: CurveOptions
) -> tuple[PlotGroup, ...]:
    """Return curves and bands of one metric, without the runs and groups that have no number of it."""
    tables = [source.table for sources in groups.values() for source in sources]
    known = dict.fromkeys(name for table in tables for name in table)
    if metric not in known:
        raise ConfigError(f"no metric is named {metric!r}; {nearest(metric, [*known])}")
    shown = []
    for label, sources in groups.items():
        having = [source.table for source in sources if metric in source.table and X_AXES[options.over] in source.table]
        found = [each for each in (curve(table, metric, options.over) for table in having) if len(each.x)]
        if found:
            shown.append(_group(label, found, options))
    if not shown:
        raise ConfigError(f"{metric} has no value yet in any of the runs")
    return tuple(shown)


def _group(label: str, found: Sequence[Curve], options: CurveOptions) -> PlotGroup:
    smooth = [Curve(each.x, smoothed(each.y, options.window)) for each in found]
    around = band(smooth, options.statistic) if len(smooth) > 1 else None
    lines = tuple(thinned(each, MOST_POINTS) for each in smooth)
    return PlotGroup(label, lines, around if around is not None and len(around.x) else None)
