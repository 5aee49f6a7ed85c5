"""Common parts of the benchmarks of speed: command line, origin of figures, and part of the page.

A report is one JSON object: the command, and one entry per measurement with its name, machine, commit, date and the
load of the machine before it. The part of `docs/performance.md` between markers is made of the committed report.
"""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks import provenance
from benchmarks.measurement import FailedError, keep
from benchmarks.publishing import RESULTS, say
from benchmarks.report import published
from distrl.apps.reports.intervals import Interval

PAGE = provenance.ROOT / "docs" / "performance.md"
NOTHING = "Not measured yet."

Entry = dict[str, Any]
"""One measurement: `name`, the fields of `stamp`, and figures."""
Block = Callable[[Mapping[str, Any]], str]
"""Makes the part of a page from a report."""


def parser(
    module_doc: str | None, name: str, names: Sequence[str], page: Path | None = None
) -> argparse.ArgumentParser:
    """Return the parser of all benchmarks of speed; its help ends with the module's docstring, examples included."""
    first, _, rest = (module_doc or "").partition("\n")
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=first,
        epilog=rest.strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    choice = f"what to measure: {', '.join(names)}; * stands for anything"
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help=choice)
    made.add_argument("--out", type=Path, default=Path("runs") / name, metavar="DIR", help="for the report and files")
    made.add_argument("--publish", action="store_true", help=f"into benchmarks/results/ and {(page or PAGE).name}")
    return made


def chosen(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match one of the patterns, in their order; without patterns, all.

    Raises:
        SystemExit: A pattern matches nothing; the message lists the names.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise SystemExit(f"nothing is named {pattern}; there are {', '.join(names)}")
    return [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]


def stamp() -> dict[str, str | float]:
    """Return machine, commit, date and load, before a measurement begins."""
    return {
        "commit": provenance.commit(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": provenance.machine(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def finish(
    name: str, entries: Sequence[Entry], given: argparse.Namespace, block: Block, page: Path | None = None
) -> None:
    """Write the report and its table, print the table, and publish both on request."""
    report = {"command": command_line(name), "results": list(entries)}
    keep(given.out / f"{name}.json", report)
    (given.out / f"{name}.md").write_text(block(report) + "\n", encoding="utf-8")
    say(f"\n{block(report)}")
    if given.publish:
        publish(name, report)
        write_page(name, block, page)


def measure_each(
    name: str,
    names: Sequence[str],
    measure: Callable[[str, Path], Entry],
    given: argparse.Namespace,
    block: Block,
    page: Path,
) -> int:
    """Measure what was chosen of `names`, and report it; return 1 if something failed."""
    wanted, entries = chosen(names, given.only), []
    for each in wanted:
        try:
            entries.append(measure(each, given.out))
        except FailedError as error:
            say(f"failed: {each}: {error}")
    if entries:
        finish(name, entries, given, block, page)
    return int(len(entries) < len(wanted))


def command_line(name: str) -> str:
    """Return the shell command that measures the same again, without the output folder."""
    words = [word for word in sys.argv[1:] if word != "--publish"]
    if "--out" in words:
        where = words.index("--out")
        del words[where : where + 2]
    return f"python -m benchmarks.{name} {shlex.join(words)}".rstrip()


def publish(name: str, report: Mapping[str, Any]) -> None:
    """Merge a report into the committed one, which keeps entries that were not measured now."""
    path = RESULTS / f"{name}.json"
    old = json.loads(path.read_text("utf-8"))["results"] if path.exists() else []
    measured = {entry["name"]: entry for entry in report["results"]}
    kept = [measured.pop(entry["name"], entry) for entry in old]
    keep(path, {**report, "results": [*kept, *measured.values()]})


def write_page(name: str, block: Block, page: Path | None = None) -> None:
    """Write the committed report's part of `docs/performance.md` or of another page."""
    page = page or PAGE
    page.write_text(published(page.read_text("utf-8"), name, page_text(name, block)), encoding="utf-8")


def page_text(name: str, block: Block) -> str:
    """Return the part of the page for the committed report, or a line that there is none."""
    path = RESULTS / f"{name}.json"
    return block(json.loads(path.read_text("utf-8"))) if path.exists() else NOTHING


def heading(report: Mapping[str, Any]) -> str:
    """Return the line that names command, date, commit, machine and its load."""
    entries = report["results"]
    dates, commits, machines = (", ".join(sorted({entry[key] for entry in entries})) for key in _WHERE)
    load = max(entry["load_before"] or 0.0 for entry in entries)  # null: by hand, at an unknown load
    shared = f", which others shared: a load of up to {load:g} before it began" if load >= 1.0 else ""
    return f"`{report['command']}` on {dates}, commit {commits}, {machines}{shared}."


_WHERE = ("date", "commit", "machine")


def listed(report: Mapping[str, Any], heads: Sequence[str], line: Callable[[Entry], Sequence[str]]) -> str:
    """Return the heading and a table with a line for each entry, or a line that nothing was measured."""
    entries = report["results"]
    return f"{heading(report)}\n\n{table(heads, [line(entry) for entry in entries])}" if entries else NOTHING


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def around(found: Sequence[float] | Interval, digits: int = 2) -> str:
    """Return '0.82 [0.79, 0.84]'."""
    centre, low, high = found
    return f"{centre:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def share(found: float | None) -> str:
    """Return '15%'; a dash if unknown."""
    return "–" if found is None else f"{found:.0%}"


def goal(value: float, least: float | None = None, most: float | None = None) -> str:
    """Return '≥ 0.7, met' or '≥ 0.7, **missed**'."""
    met = (least is None or value >= least) and (most is None or value <= most)
    bound = f"≥ {least:g}" if least is not None else f"≤ {most:g}"
    return f"{bound}, {'met' if met else '**missed**'}"
