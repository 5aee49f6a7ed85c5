"""Published learning curves of other libraries, beside ours at equal environment steps."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.measurement import Result
from benchmarks.provenance import ROOT
from benchmarks.table import Row

FOLDER = ROOT / "benchmarks" / "results"
LINES = 12
"""Most rows of a published table."""


@dataclass(frozen=True)
class Published:
    """Published runs of one algorithm on one task.

    Attributes:
        name: Library and algorithm.
        source: Address of the data.
        what: Description of the numbers.
        steps: [K] environment steps.
        returns: [runs, K] mean return of the training episodes of the steps before.
    """

    name: str
    source: str
    what: str
    steps: np.ndarray
    returns: np.ndarray

    def at(self, steps: float) -> np.ndarray:
        """Return the mean returns [runs] at these environment steps, by linear interpolation."""
        return np.array([np.interp(steps, self.steps, run) for run in self.returns])


@cache
def published_curves() -> Mapping[str, Published]:
    """Return task -> its published runs."""
    found = {}
    for path in sorted(FOLDER.glob("published_*.json")):
        tree = json.loads(path.read_text("utf-8"))
        returns = np.array(tree["returns"])
        steps = tree["steps_per_point"] * np.arange(1, returns.shape[1] + 1)
        found[tree["task"]] = Published(tree["name"], tree["source"], tree["what"], steps, returns)
    return found


def equal_steps(rows: Sequence[Row], by_row: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return, for every task with a published curve, its source and a table of both; without failed trainings."""
    parts = []
    for task, theirs in published_curves().items():
        ours = [row for row in rows if row.task == task and any(result.curve for result in by_row[row.name])]
        if ours:
            told = f"{theirs.what} Ours are of the 100 training episodes before."
            parts.append(f"{task} beside [{theirs.name}]({theirs.source}): {told}\n\n{_table(ours, by_row, theirs)}")
    return parts


def _table(rows: Sequence[Row], by_row: Mapping[str, Sequence[Result]], theirs: Published) -> str:
    curves = {
        f"{row.algorithm}, seed {result.seed}": np.array(result.curve).T
        for row in rows
        for result in by_row[row.name]
        if result.curve
    }
    heads = ["Steps", *curves, f"{theirs.name}: median", "least … greatest"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    last = min(theirs.steps[-1], max(steps[-1] for steps, _ in curves.values()))
    points = theirs.steps[theirs.steps <= last]
    for steps in points[:: -(-len(points) // LINES)]:
        mine = [f"{np.interp(steps, *curve):.1f}" if steps <= curve[0][-1] else "–" for curve in curves.values()]
        others = theirs.at(steps)
        cells = [f"{steps:,}", *mine, f"{np.median(others):.1f}", f"{others.min():.1f} … {others.max():.1f}"]
        lines.append(f"| {' | '.join(cells).replace('-', '−')} |")
    return "\n".join(lines)
