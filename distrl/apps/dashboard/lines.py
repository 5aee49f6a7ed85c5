"""Lines of one run for charts: a stretch of them, the common ruler of their x axes, and all points as CSV."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from distrl.apps.reports.curves import Curve, curve, smoothed, thinned
from distrl.metrics.snapshot import X_AXES
from distrl.runs.metrics_csv import Table

RULER_POINTS = 300
_CSV_ROWS = 2000
_FORMULA = tuple("=+-@\t\r")
"""First letters of what a spreadsheet would calculate; a quotation mark before them makes it text."""
DERIVED = {"samples_per_insert": ("sampled_steps", "trained_steps")}
"""Column that the dashboard computes -> the columns of which it is the quotient."""
DERIVED_METRICS = {
    "samples_per_insert": {
        "name": "samples_per_insert",
        "group": "progress",
        "unit": "",
        "meaning": "steps sampled from the replay memory for each step that entered it",
    }
}


def needed(names: Sequence[str]) -> list[str]:
    """Return the columns of metrics.csv from which these are drawn, with those of all x axes."""
    found = [*X_AXES.values()]
    for name in names:
        found += DERIVED.get(name, (name,))
    return [*dict.fromkeys(found)]


def with_derived(table: Table, names: Sequence[str]) -> Table:
    """Return the table with those of the names that are computed."""
    added = {}
    for name in names:
        above, below = DERIVED.get(name, ("", ""))
        if name not in table and above in table and below in table:
            with np.errstate(divide="ignore", invalid="ignore"):
                added[name] = table[above] / table[below]
    return {**table, **added}


def mark_of(edition: int, table: Table) -> str:
    """Return a mark of the rows of a table; "" for a table whose earlier rows may change."""
    rows = max(map(len, table.values()), default=0)
    return f"{edition}.{rows}" if edition and rows else ""


def rows_before(mark: str, edition: int, table: Table) -> int:
    """Return the number of rows behind a mark of `mark_of`; 0 if it is not one of an earlier state of this table."""
    rows = max(map(len, table.values()), default=0)
    number, _, count = mark.partition(".")
    known = edition > 0 and number == str(edition) and re.fullmatch("[0-9]+", count)
    return int(count) if known and int(count) <= rows else 0


def stretch(
    table: Table, name: str, over: str, window: int, within: tuple[float, float] | None, points: int, since: int = 0
) -> Curve:
    """Return a smoothed line, thinned to `points`.

    Args:
        within: A stretch of x, with one point more at either side.
        since: Number of rows whose points are left out; the mean of a later point still includes them.
    """
    line = curve(table, name, over)
    old = np.isfinite(table[X_AXES[over]][:since]) & np.isfinite(table[name][:since])
    line = Curve(line.x, smoothed(line.y, window))
    begin, end = int(np.count_nonzero(old)), len(line.x)
    if within is not None:
        first, last = np.searchsorted(line.x, within[0], "left"), np.searchsorted(line.x, within[1], "right")
        begin, end = max(int(first) - 1, begin), int(last) + 1
    return thinned(Curve(line.x[begin:end], line.y[begin:end]), points)


def ruler(table: Table, over: str, since: int = 0) -> dict[str, list[float]]:
    """Return x axis -> its values at common rows; empty unless all axes are known there.

    Args:
        since: 0: at most `RULER_POINTS` of all rows, else the newest row if it is not one of these first ones.
    """
    columns = [table.get(column) for column in X_AXES.values()]
    present = {name: column for name, column in zip(X_AXES, columns, strict=True) if column is not None}
    if over not in present:
        return {}
    known = np.flatnonzero(np.isfinite(np.stack([*present.values()])).all(axis=0))
    if since:
        known = known[known >= since][-1:]
    if len(known) > RULER_POINTS:
        known = known[np.linspace(0, len(known) - 1, RULER_POINTS).astype(int)]
    return {name: [float(value) for value in column[known]] for name, column in present.items()}


def csv_pieces(table: Table, names: Sequence[str]) -> Iterator[str]:
    """Yield CSV of all rows in which one of the numbers is known, with every x axis, in pieces."""
    axes = [column for column in X_AXES.values() if column in table and column not in names]
    shown = [name for name in names if name in table]
    columns = [table[name] for name in (*axes, *shown)]
    yield _rows([[f"'{name}" if name[:1] in _FORMULA else name for name in (*axes, *shown)]])
    if not shown:
        return
    at = np.flatnonzero(np.isfinite(np.stack([table[name] for name in shown])).any(axis=0))
    for begin in range(0, len(at), _CSV_ROWS):
        piece = [column[at[begin : begin + _CSV_ROWS]] for column in columns]
        yield _rows([[_cell(value) for value in row] for row in zip(*piece, strict=True)])


def _cell(value: float) -> str:
    if not np.isfinite(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(float(value))


def _rows(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
