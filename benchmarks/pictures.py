"""Training curves and final scores as SVG, the same bytes for the same results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.measurement import Result
from benchmarks.published import published_curves
from benchmarks.report import mean_curve
from benchmarks.table import Row
from distrl.apps.reports.intervals import interval

STYLE = {"svg.hashsalt": "distrl", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
STYLE |= {"axes.spines.right": False, "legend.frameon": False}
COLUMNS = 2
COLOURS = mpl.rcParams["axes.prop_cycle"].by_key()["color"]


def draw_curves(
    path: Path, rows: Sequence[Row], by_row: Mapping[str, Sequence[Result]], random: Mapping[str, float]
) -> None:
    """Draw a panel per task: interquartile means with their 95 % bands, thin seeds, thresholds, random actions."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(tasks), 2.6)
        for panel, task in zip(panels, tasks, strict=True):
            of_task = [row for row in rows if row.task == task]
            for colour, row in zip(COLOURS * 3, of_task, strict=False):
                curves = [result.curve for result in by_row[row.name] if result.curve]
                for curve in curves:
                    panel.plot(*zip(*curve, strict=True), color=colour, linewidth=0.4, alpha=0.6)
                # A failed training has no last value to keep.
                if curves and not any(result.mean_return is None for result in by_row[row.name]):
                    steps, around = mean_curve(curves)
                    panel.plot(steps, around.centre, color=colour, linewidth=1.6, label=row.algorithm)
                    panel.fill_between(steps, around.low, around.high, color=colour, alpha=0.18, linewidth=0)
            for goal in sorted({row.mean_return for row in of_task if row.mean_return is not None}):
                panel.axhline(goal, color="#888888", linewidth=0.8, linestyle=":")
            if theirs := published_curves().get(task):
                ends = theirs.returns.min(axis=0), theirs.returns.max(axis=0)
                panel.plot(theirs.steps, np.median(theirs.returns, axis=0), color="#444444", label=theirs.name)
                panel.fill_between(theirs.steps, *ends, color="#444444", alpha=0.12, linewidth=0)
            if task in random:
                panel.axhline(random[task], color="#888888", linewidth=0.8, linestyle="--", label="random")
            panel.set_title(task)
            panel.set_xlabel("environment steps")
            panel.set_ylabel("mean return")
            panel.xaxis.set_major_locator(MaxNLocator(4))
            panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the curves, over none
        _save(figure, path)


def draw_scores(path: Path, rows: Sequence[Row], by_row: Mapping[str, Sequence[Result]]) -> None:
    """Draw a panel per task: final scores of every seed, interquartile means with 95 % intervals, thresholds."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(tasks), 1.9)
        for panel, task in zip(panels, tasks, strict=True):
            of_task = [row for row in rows if row.task == task and by_row[row.name]]
            for height, (colour, row) in enumerate(zip(COLOURS * 3, of_task, strict=False)):
                scores = [result.mean_return for result in by_row[row.name] if result.mean_return is not None]
                if len(scores) == len(by_row[row.name]):  # else the interval has no lower end
                    around = interval(scores)
                    panel.plot([around.low, around.high], [height, height], color=colour, linewidth=4, alpha=0.35)
                    panel.plot(around.centre, height, "|", color=colour, markersize=12)
                panel.plot(scores, [height] * len(scores), "o", color=colour, markersize=3)
                if row.mean_return is not None:
                    ends = [height - 0.4, height + 0.4]
                    panel.plot([row.mean_return] * 2, ends, color="#888888", linewidth=1, linestyle=":")
            panel.set_yticks(range(len(of_task)), [_label(row, by_row[row.name]) for row in of_task])
            panel.set_ylim(len(of_task) - 0.4, -0.6)
            panel.set_title(task)
            panel.set_xlabel("mean return of 100 greedy episodes")
        _save(figure, path)


def _label(row: Row, results: Sequence[Result]) -> str:
    """Return 'PPO', or 'PPO, 1 failed'."""
    failed = sum(result.mean_return is None for result in results)
    return f"{row.algorithm}, {failed} failed" if failed else row.algorithm


def _panels(count: int, height: float) -> tuple[Figure, list[Any]]:
    lines = -(-count // COLUMNS)
    figure = Figure(figsize=(8.4, height * lines))
    grid = figure.subplots(lines, min(count, COLUMNS), squeeze=False)
    panels = list(grid.flat)
    for empty in panels[count:]:
        empty.set_visible(False)
    return figure, panels[:count]


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
