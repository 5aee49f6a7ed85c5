"""Output of a run while it goes on, and figures derived from it.

The peers' scripts append JSON lines (`scripts/progress.py`); distrl writes `metrics.csv`. Both have the
same four numbers.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

WARM_UP = 0.25
"""Share of the time after the first update that rates leave out."""


@dataclass(frozen=True)
class Row:
    """Progress of a run at one moment.

    Attributes:
        wall_s: Seconds since the command; in distrl's own file, since its launch.
        env_steps: Environment steps so far.
        updates: Optimizer steps so far.
        mean_return_100: Mean return of the last 100 training episodes; None before the 100th.
    """

    wall_s: float
    env_steps: int
    updates: int
    mean_return_100: float | None


def read_rows(path: Path) -> list[Row]:
    """Return complete rows after the first update, in order; none if the file does not exist yet."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()  # what is being written at this moment is left out
    if path.suffix == ".csv":
        rows = [
            Row(float(row["wall_s"]), int(row["env_steps"]), int(row["updates"] or 0), _number(row["mean_return_100"]))
            for row in csv.DictReader(lines)
        ]
    else:
        rows = [Row(**json.loads(line)) for line in lines]
    return [row for row in rows if row.updates > 0]


def since_command(rows: Sequence[Row], offset_s: float) -> list[Row]:
    """Return the rows with `offset_s` added to every time."""
    return [replace(row, wall_s=row.wall_s + offset_s) for row in rows]


def window(rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """Return the two rows between which rates are measured; None if there are not two."""
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    begin_s = first.wall_s + WARM_UP * (last.wall_s - first.wall_s)
    begin = next(row for row in rows if row.wall_s >= begin_s)
    if begin is last:  # updates of many seconds
        begin = rows[-2]
    return (begin, last) if last.wall_s > begin.wall_s else None


def steps_per_s(rows: Sequence[Row]) -> float | None:
    """Return environment steps per second while learning; None before there are two rows."""
    ends = window(rows)
    return None if ends is None else (ends[1].env_steps - ends[0].env_steps) / (ends[1].wall_s - ends[0].wall_s)


def steps_at(rows: Sequence[Row], wall_s: float) -> float:
    """Return the environment steps at a time between the first row and the last, by linear interpolation."""
    after = next((index for index, row in enumerate(rows) if row.wall_s >= wall_s), len(rows) - 1)
    if after == 0:
        return float(rows[0].env_steps)
    before, behind = rows[after - 1], rows[after]
    share = min(1.0, (wall_s - before.wall_s) / (behind.wall_s - before.wall_s))
    return before.env_steps + share * (behind.env_steps - before.env_steps)


def cpu_s_per_step(rows: Sequence[Row], samples: Sequence[tuple[float, float]]) -> float | None:
    """Return the processor time of all processes per environment step; None before there are two samples.

    Args:
        samples: (seconds since the command, processor time so far).
    """
    ends = window(rows)
    if ends is None:
        return None
    inside = [sample for sample in samples if ends[0].wall_s <= sample[0] <= ends[1].wall_s]
    if len(inside) < 2:
        return None
    (from_s, from_cpu_s), (to_s, to_cpu_s) = inside[0], inside[-1]
    steps = steps_at(rows, to_s) - steps_at(rows, from_s)
    return (to_cpu_s - from_cpu_s) / steps if steps > 0 else None


def _number(text: str) -> float | None:
    return float(text) if text else None
