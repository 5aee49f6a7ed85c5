"""Tables of runs as the terminal shows them: as many columns as fit beside each other, none of them cut."""

import shutil
import textwrap
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from distrl.errors import one_line, printable
from distrl.metrics.phrases import UNKNOWN, count_words, known, return_words
from distrl.runs.listing import Comparison, ListedRun
from distrl.runs.summary import duration

GAP = "  "
LEAST = 12
"""Width of the narrowest column whose cells are broken into lines."""
_HEARTBEATS = ("supervisor_age_s", "learner_age_s")


class TableColumn(NamedTuple):
    """One column: its heading, its cells, and how readily it is left out where the terminal is narrow: 0 never."""

    heading: str
    cell: Callable[[ListedRun, float], str]
    leave: int = 0
    right: bool = True


COLUMNS = (
    TableColumn(
        "name", lambda one, now: printable(f"{one.name} ({one.title})" if one.title else one.name), right=False
    ),
    TableColumn("state", lambda one, now: printable(one.words), right=False),
    TableColumn("environment", lambda one, now: printable(one.env or UNKNOWN), 2, right=False),
    TableColumn("algorithm", lambda one, now: printable(one.algorithm or UNKNOWN), 3, right=False),
    TableColumn("seed", lambda one, now: known(one.seed, str), 6),
    TableColumn("steps", lambda one, now: known(one.env_steps, count_words)),
    TableColumn("return", lambda one, now: known(one.mean_return_100, return_words)),
    TableColumn("best", lambda one, now: known(one.best_mean_return_100, return_words), 5),
    TableColumn("steps/s", lambda one, now: known(one.env_steps_per_s, count_words), 1),
    TableColumn("wall", lambda one, now: known(one.wall_s, duration), 4),
    TableColumn("started", lambda one, now: known(one.started, _when), 7),
    TableColumn("tags", lambda one, now: printable(" ".join(one.tags)), 8, right=False),
    TableColumn("age", lambda one, now: known(one.started, lambda started: age(now - started))),
)


def runs_table(entries: Sequence[ListedRun], now: float, width: int | None = None) -> str:
    """Format one line per run under a line of headings, in the terminal's width or without a limit."""
    columns = {column: [column.cell(one, now) for one in entries] for column in COLUMNS}
    if not any(one.tags for one in entries):
        columns = {column: cells for column, cells in columns.items() if column.heading != "tags"}
    widths = {column: max(map(len, (column.heading, *cells))) for column, cells in columns.items()}
    shown = _fitting(widths, _room(width))
    fitting = _narrowed([widths[column] for column in shown], _room(width))
    right = [place for place, column in enumerate(shown) if column.right]
    rows = [[column.heading for column in shown], *zip(*(columns[column] for column in shown), strict=True)]
    lines = [_row(cells, fitting, right) for cells in rows]
    count = f"{len(entries):,} {'run' if len(entries) == 1 else 'runs'}"
    left_out = [column.heading for column in columns if column not in shown]
    rest = f"; not shown for want of width: {', '.join(left_out)} (--json has all)" if left_out else ""
    return "\n".join([*lines, f"{count}{rest}"])


def stored_runs_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Format one line per run in Redis; `runs` are the fields of `distrl.launch.stored_runs.RunInRedis`."""
    headings = (
        "run",
        "namespace",
        "state",
        "environment",
        "algorithm",
        "supervisor",
        "learner",
        "actors",
        "expires in",
    )
    lines = [headings]
    for run in runs:
        ages = [known(run[name], lambda age_s: f"{duration(age_s)} ago") for name in _HEARTBEATS]
        expires = "never" if run["expires_s"] is None else duration(run["expires_s"])
        words = (run["run_id"], run["namespace"], run["state"], run["env"] or UNKNOWN, run["algorithm"] or UNKNOWN)
        lines.append((*words, *ages, str(run["actors"]), expires))
    return aligned(lines)


def jobs_table(jobs: Sequence[Mapping[str, Any]], now: float, width: int | None = None) -> str:
    """Format one line per job; `jobs` are those of `distrl.apps.jobs.watching.facts_of`."""
    lines: list[tuple[str, ...]] = [("run", "target", "state", "actors", "submitted", "reason")]
    for job in jobs:
        submitted = f"{age(now - job['submitted'])} ago" if job["submitted"] else "-"
        reason = one_line(job["reason"])
        lines.append((job["run_id"], job["target"], job["state"], str(job["actors"]), submitted, reason))
    return aligned(lines, width)


def aligned(lines: Sequence[tuple[str, ...]], width: int | None = None) -> str:
    """Pad the cells of each column to one width; a wide column is broken into lines where a table would not fit."""
    shown = [tuple(map(printable, line)) for line in lines]
    widths = _narrowed([max(map(len, column)) for column in zip(*shown, strict=True)], _room(width))
    return "\n".join(_row(line, widths) for line in shown)


def comparison_tables(comparison: Comparison, width: int | None = None) -> str:
    """Format a column per run, under headings for differences and outcomes; runs that do not fit go below."""
    differences, outcomes, room = comparison.differences, comparison.outcomes, _room(width)
    lines = [*differences, *outcomes]
    first = min(max(len(line.name) for line in lines), max(room // 2, LEAST))
    most = max(room - first - len(GAP), LEAST)
    names = [printable(one.name) for one in comparison.entries]
    cells = {line.name: [*map(printable, line.cells)] for line in lines}
    widths = [
        min(max(len(name), *(len(row[place]) for row in cells.values())), most) for place, name in enumerate(names)
    ]

    def compared(name: str, row: Sequence[str], places: range) -> str:
        chosen = [first, *(widths[place] for place in places)]
        return _row([name, *(row[place] for place in places)], chosen, right=range(1, len(chosen)))

    blocks = []
    for places in _blocks(widths, room - first):
        told = [compared("", names, places)]
        told.append("configuration" if differences else "configuration: no difference")
        told += [compared(line.name, cells[line.name], places) for line in differences]
        told += ["", "outcome", *(compared(line.name, cells[line.name], places) for line in outcomes)]
        blocks.append("\n".join(told))
    return "\n\n".join(blocks)


def _when(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_s))


def age(seconds: float) -> str:
    """Format an age as '12 s', '5 min', '3 h' or '8 d'."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def _fitting(widths: dict[TableColumn, int], width: int) -> list[TableColumn]:
    """Return the columns that fit, in order; some are never left out."""
    shown = [*widths]
    for column in sorted((each for each in shown if each.leave), key=lambda each: -each.leave):
        if sum(widths[each] for each in shown) + len(GAP) * (len(shown) - 1) <= width:
            break
        shown.remove(column)
    return shown


def _room(width: int | None) -> int:
    """Return the width that is given, or that of the terminal, or none to speak of."""
    return shutil.get_terminal_size((10_000, 24)).columns if width is None else width


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """Return widths of columns with the widest ones narrowed until all fit, or none is wider than `LEAST`."""
    found = [min(width, max(room, LEAST)) for width in widths]
    while (excess := sum(found) + len(GAP) * (len(found) - 1) - room) > 0 and (widest := max(found)) > LEAST:
        others = max((width for width in found if width < widest), default=LEAST)
        found[found.index(widest)] = max(widest - excess, others, LEAST)
    return found


def _row(cells: Sequence[str], widths: Sequence[int], right: Container[int] = ()) -> str:
    """Return the lines of a row whose wide cells are broken into several; `right`: places of cells at the right."""
    columns = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)
        for cell, width in zip(cells, widths, strict=True)
    ]
    lines = [
        [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in zip_longest(*columns, fillvalue="")
    ]
    return "\n".join(GAP.join(line).rstrip() for line in lines)


def _blocks(widths: Sequence[int], room: int) -> Iterator[range]:
    """Yield ranges of columns that go beside each other: as many as fit, at least one."""
    begin, used = 0, 0
    for place, width in enumerate(widths):
        used += len(GAP) + width
        if used > room and place > begin:
            yield range(begin, place)
            begin, used = place, len(GAP) + width
    yield range(begin, len(widths))
