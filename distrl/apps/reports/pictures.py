"""Curves and intervals as PNG, SVG and PDF, equal bytes for equal numbers. The only module that imports matplotlib.

Pictures share no state: figures are made without pyplot, and settings hold while one is drawn.
"""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from distrl.apps.reports.curves import Curve, Statistic
from distrl.apps.reports.intervals import Interval
from distrl.apps.reports.plots import LIGHT, CurveOptions, Palette, Panel, PlotGroup
from distrl.errors import one_line
from distrl.metrics.snapshot import MEANINGS, METRICS

UNITS = {metric.name: metric.unit for metric in METRICS}
X_LABELS = {"steps": "environment steps", "updates": "updates", "episodes": "episodes"}
STATISTICS: Mapping[Statistic, str] = {
    "mean": "mean ± one standard deviation",
    "iqm": "interquartile mean, quartiles",
    "interval": "interquartile mean, 95 % interval",
    "median": "median, 95 % interval",
}
MOST_LABELS, LABEL_LENGTH = 24, 44
"""Most labels in a legend, and letters in each."""
STYLES = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)))
"""Line styles, for more lines than colours."""


def picture(
    panels: Sequence[Panel], form: str, options: CurveOptions, legend: str = "", palette: Palette = LIGHT
) -> bytes:
    """Draw panels above each other, with one legend beside them.

    Args:
        form: "png" or "svg".
        legend: Title of the legend, the key that runs are grouped by; "" for none.
    """
    labels = [*dict.fromkeys(group.label for panel in panels for group in (*panel.groups, *panel.second_groups))]
    looks = {label: _look(place, palette) for place, label in enumerate(labels)}
    with _style(palette):
        beside = 0.0 if len(labels) < 2 else 0.45 + 0.072 * max(len(_short(label)) for label in labels)
        high = max(0.7 + 2.9 * len(panels), 0.75 + 0.18 * min(len(labels), MOST_LABELS + 1))  # as the legend needs
        figure = Figure(figsize=(7.0 + beside, high), layout="constrained")
        rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(rows, panels, strict=True):
            _draw_panel(axes, panel, looks)
        _x_axis(rows[-1], options.over)
        if len(labels) > 1:
            _legend(figure, looks, panels, legend, options.statistic)
        return _rendered(figure, form)


def small_picture(groups: Sequence[PlotGroup], over: str, palette: Palette, *, from_zero: bool) -> str:
    """Draw one panel as SVG, without texts except at its axes; the y axis begins at 0 or at the least value."""
    with _style(palette):
        figure, axes = _one_panel((5.2, 2.5), transparent=True)
        _draw(axes, groups, _looks(groups, palette), "solid")
        if from_zero:
            top = max(axes.get_ylim()[1], 0.1)
            axes.set_ylim(-0.02 * top, top)  # so that what is 0 does not hide behind the axis
        axes.yaxis.set_major_formatter(FuncFormatter(_number))
        _x_axis(axes, over)
        return _rendered(figure, "svg").decode()


class Track(NamedTuple):
    """A line of `tracks_picture`.

    Attributes:
        marks: Its points with a mark, each with the label of the track whose colour fills it. Marks whose label has no
            track are left out.
        steps: Draw each value up to the next one.
    """

    label: str
    points: Curve
    marks: Sequence[tuple[float, float, str]] = ()
    steps: bool = False


class Tracks(NamedTuple):
    """A pair of axes of `tracks_picture`."""

    title: str
    tracks: Sequence[Track]
    log: bool = False


def tracks_picture(panels: Sequence[Tracks], note: str) -> bytes:
    """Draw panels over environment steps as SVG; the same label has the same colour in all of them.

    Args:
        note: Title of the legend.
    """
    labels = [*dict.fromkeys(track.label for panel in panels for track in panel.tracks)]
    looks = {label: _look(place, LIGHT) for place, label in enumerate(labels)}
    with _style(LIGHT):
        size = 9.0, max(0.7 + 2.3 * len(panels), 0.95 + 0.18 * min(len(labels), MOST_LABELS + 1))
        figure = Figure(figsize=size, layout="constrained")
        rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(rows, panels, strict=True):
            axes.set_title(panel.title)
            if panel.log:
                axes.set_yscale("log")
            for label, (x, y), marks, steps in panel.tracks:
                style: dict[str, Any] = {"drawstyle": "steps-post"} if steps else {}
                axes.plot(x, y, **looks[label], linewidth=1.3, marker="o" if len(x) == 1 else None, **style)
                for at, value, of in (mark for mark in marks if mark[2] in looks):
                    colours = {"markeredgecolor": looks[label]["color"], "markerfacecolor": looks[of]["color"]}
                    axes.plot(at, value, marker="o", markersize=7, markeredgewidth=1.8, zorder=3, **colours)
            axes.yaxis.set_major_formatter(FuncFormatter(_number))
            low, high = axes.get_ylim()
            # Within a decade there may be no major tick.
            axes.yaxis.set_minor_formatter(FuncFormatter(_number) if panel.log and high < 10 * low else NullFormatter())
        _x_axis(rows[-1], "steps")
        _legend(figure, looks, (), note, "mean")
        return _rendered(figure, "svg")


def band_picture(
    groups: Sequence[PlotGroup], x_label: str, y_label: str, form: str, palette: Palette, *, in_page: bool
) -> bytes:
    """Draw the bands of groups, or the curve of a group without one.

    Args:
        form: "svg" or "pdf".
        in_page: Draw as wide as the page, without paper and legend, which it has.
    """
    looks = _looks(groups, palette)
    with _style(palette):
        beside = 0.0 if in_page else 0.45 + 0.072 * max(len(_short(group.label)) for group in groups)
        high = 2.9 if in_page else max(2.9, 0.6 + 0.18 * len(groups))
        figure, axes = _one_panel(((10.6 if in_page else 5.2) + beside, high), transparent=in_page)
        _draw(
            axes,
            [replace(group, curves=()) if group.band else group for group in groups],
            looks,
            "solid" if in_page else None,
        )
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
        axes.yaxis.set_major_formatter(FuncFormatter(_number))
        axes.set(xlabel=x_label, ylabel=y_label)
        if not in_page:
            handles = [Line2D([], [], **look, linewidth=1.9) for look in looks.values()]
            figure.legend(handles, [*map(_short, looks)], loc="outside right upper")
        return _rendered(figure, form)


def interval_picture(
    rows: Mapping[str, Interval], middle: float, x_label: str, form: str, palette: Palette, *, in_page: bool
) -> bytes:
    """Draw an interval from 0 to 1 in each row, the first at the top.

    Args:
        middle: A vertical line there.
        form, in_page: As of `band_picture`.
    """
    width = 10.6 if in_page else 3.4 + 0.072 * max(len(_short(label)) for label in rows)
    with _style(palette):
        figure, axes = _one_panel((width, 0.7 + 0.24 * max(len(rows), 3)), transparent=in_page)
        for place, (centre, low, high) in enumerate(rows.values()):
            axes.plot(
                [low, high], [place, place], color=palette.lines[0], linewidth=5, alpha=0.35, solid_capstyle="butt"
            )
            axes.plot([centre], [place], color=palette.lines[0], marker="o", markersize=4)
        axes.axvline(middle, color=palette.dim, linewidth=0.8)
        axes.set(xlabel=x_label, xlim=(-0.02, 1.02), ylim=(len(rows) - 0.5, -0.5))
        axes.set_yticks(range(len(rows)), [*map(_short, rows)])
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
        return _rendered(figure, form)


def _one_panel(size: tuple[float, float], *, transparent: bool) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    for patch in (figure.patch, axes.patch):
        patch.set_visible(not transparent)
    return figure, axes


def _looks(groups: Sequence[PlotGroup], palette: Palette) -> dict[str, dict[str, Any]]:
    return {group.label: _look(place, palette) for place, group in enumerate(groups)}


def _draw_panel(axes: Axes, panel: Panel, looks: Mapping[str, dict[str, Any]]) -> None:
    _draw(axes, panel.groups, looks)
    axes.yaxis.set_major_formatter(FuncFormatter(_number))
    axes.set_ylabel(_named(panel.metric))
    if panel.second is None:
        axes.set_title(MEANINGS.get(panel.metric, panel.metric))
        return
    other = axes.twinx()
    _draw(other, panel.second_groups, looks, "dashed")
    other.yaxis.set_major_formatter(FuncFormatter(_number))
    other.grid(visible=False)
    other.spines["right"].set_visible(True)
    axes.set_ylabel(f"{_named(panel.metric)}, solid")
    other.set_ylabel(f"{_named(panel.second)}, dashed")
    axes.set_title(f"{panel.metric} and {panel.second}")


def _draw(
    axes: Axes, groups: Sequence[PlotGroup], looks: Mapping[str, dict[str, Any]], style: Any | None = None
) -> None:
    """Draw every run, thinly if there is a band, with the centre of the band in front."""
    for group in groups:
        look = looks[group.label] | ({} if style is None else {"linestyle": style})
        thin: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.4} if group.band is not None else {"linewidth": 1.5}
        for x, y in group.curves:
            # A run of one row is a point, which a line would not show.
            axes.plot(x, y, **look, **thin, marker="o" if len(x) == 1 else None, markersize=3.5)
        if group.band is not None:
            x, centre, low, high = group.band
            axes.fill_between(x, low, high, color=look["color"], alpha=0.17, linewidth=0)
            axes.plot(x, centre, **look, linewidth=1.9, marker="o" if len(x) == 1 else None, markersize=3.5)


def _legend(
    figure: Figure, looks: Mapping[str, dict[str, Any]], panels: Sequence[Panel], legend: str, statistic: Statistic
) -> None:
    counts = {group.label: f" · {len(group.curves)} runs" for panel in panels for group in panel.groups if group.band}
    shown = [*looks][:MOST_LABELS]
    handles = [Line2D([], [], **looks[label], linewidth=1.9) for label in shown]
    labels = [f"{_short(label)}{counts.get(label, '')}" for label in shown]
    if len(looks) > len(shown):
        handles.append(Line2D([], [], linestyle="none"))
        labels.append(f"and {len(looks) - len(shown)} more")
    title = "\n".join(filter(None, [legend, STATISTICS[statistic] if counts else ""]))
    figure.legend(handles, labels, loc="outside right upper", title=title or None, alignment="left")


def _look(place: int, palette: Palette) -> dict[str, Any]:
    colours = len(palette.lines)
    return {"color": palette.lines[place % colours], "linestyle": STYLES[place // colours % len(STYLES)]}


def _x_axis(lowest: Axes, over: str) -> None:
    """Label the x axis of the lowest panel."""
    lowest.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    label, scale = X_LABELS.get(over, ""), 1.0
    if over == "time":
        longest = lowest.get_xlim()[1]
        unit, scale = ("hours", 3600.0) if longest > 7200 else ("minutes", 60.0) if longest > 120 else ("seconds", 1.0)
        label = f"training time, {unit}"
        # Ticks are chosen in seconds but must be round in the unit.
        lowest.xaxis.set_major_locator(_Scaled(scale))
    lowest.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _number(value / scale, None)))
    lowest.set_xlabel(label)


class _Scaled(MaxNLocator):
    """Ticks that are round in a unit other than the axis'."""

    def __init__(self, scale: float) -> None:
        super().__init__(6, steps=[1, 2, 2.5, 5, 10])
        self._scale = scale

    def tick_values(self, vmin: float, vmax: float) -> Any:
        return np.asarray(super().tick_values(vmin / self._scale, vmax / self._scale)) * self._scale


def _number(value: float, _: int | None) -> str:
    """'1,500,000', '0.25', '1e-05'."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"
    return text.replace("-", "−") if text[:1] == "-" else text


def _named(metric: str) -> str:
    unit = UNITS.get(metric, "")
    return f"{metric} ({unit})" if unit and unit not in metric else metric


def _short(label: str) -> str:
    """Shorten a label to both of its ends, on one line."""
    label = one_line(label)
    if len(label) <= LABEL_LENGTH:
        return label
    half = LABEL_LENGTH // 2
    return f"{label[:half]}…{label[-half + 1 :]}"


@contextmanager
def _style(palette: Palette) -> Iterator[None]:
    settings: dict[Any, Any] = {
        "svg.hashsalt": "distrl",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,  # journals refuse matplotlib's default, Type 3
        "text.parse_math": False,  # a $ in a run's name is a dollar
        "font.size": 9,
        "figure.facecolor": palette.paper,
        "axes.facecolor": palette.paper,
        "axes.edgecolor": palette.dim,
        "axes.labelcolor": palette.dim,
        "axes.titlecolor": palette.ink,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.xmargin": 0.01,
        "grid.color": palette.grid,
        "grid.linewidth": 0.7,
        "xtick.color": palette.dim,
        "ytick.color": palette.dim,
        "text.color": palette.ink,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "legend.title_fontsize": 8.5,
        "legend.handlelength": 1.6,
        "savefig.dpi": 160,
        "path.simplify_threshold": 0.3,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box, and an SVG's reader may have it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _rendered(figure: Figure, form: str) -> bytes:
    file = io.BytesIO()
    dates: Mapping[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(file, format=form, metadata=dates.get(form))
    return file.getvalue()
