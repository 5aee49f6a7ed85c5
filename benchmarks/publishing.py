"""Places of reports: the output folder of a benchmark, and with `--publish` the repository."""

import argparse
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurement import keep
from benchmarks.provenance import ROOT
from benchmarks.report import merged, published, read_report, report_tree
from benchmarks.schedule import measure_all
from benchmarks.table import SEEDS, Row, selected

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"
IMAGES = ROOT / "docs" / "images"

Block = Callable[[Path], str]
"""Makes the part of a page from a report."""
Pictures = Callable[[Path, Path], None]
"""Draws the pictures of a report into a folder."""


def say(text: str) -> None:
    """Print one line at once, also into a file."""
    print(text, flush=True)


def parser(description: str, name: str) -> argparse.ArgumentParser:
    """Return the parser of the options that all benchmarks share."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--only", nargs="+", default=[], metavar="ROW", help="names of rows; * stands for anything")
    made.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), metavar="N")
    made.add_argument("--out", type=Path, default=Path("runs") / name, metavar="DIR")
    made.add_argument("--publish", action="store_true", help="into the committed report and docs/results.md")
    return made


def measure_and_report(
    name: str, rows: Sequence[Row], given: argparse.Namespace, block: Block, pictures: Pictures | None = None
) -> int:
    """Measure all missing rows and report all rows; return 1 if something failed.

    Args:
        name: Name of the benchmark, its report and its part of the page.
    """
    all_rows, rows = rows, selected(rows, given.only)
    results, failures = measure_all(rows, given.seeds, given.out, say)
    if results:
        report = given.out / f"{name}.json"
        command = command_line(name, given.only, given.seeds)
        tree = report_tree(rows, results, random_returns(given.out, rows), command, given.seeds)
        keep(report, tree)
        (given.out / f"{name}.md").write_text(block(report) + "\n", encoding="utf-8")
        if pictures is not None:
            pictures(report, given.out)
        say(f"\n{block(report)}\n")
        if given.publish:
            publish(name, all_rows, tree)
            write_page(name, block, pictures)
    for failure in failures:
        say(f"failed: {failure}")
    return 1 if failures else 0


def publish(name: str, rows: Sequence[Row], tree: dict[str, Any]) -> None:
    """Merge a report into the committed one, which keeps the rows that were not measured now.

    Args:
        rows: All rows of the benchmark.
    """
    path = RESULTS / f"{name}.json"
    if path.exists():
        known = [row.name for row in rows]
        both = merged(json.loads(path.read_text("utf-8")), tree, known)
        names = [row["name"] for row in both["rows"]]
        if names != [row["name"] for row in tree["rows"]] or both["seeds"] != tree["seeds"]:
            both["command"] = command_line(name, [] if names == known else names, both["seeds"])
        tree = both
    keep(path, tree)


def command_line(name: str, only: Sequence[str], seeds: Sequence[int]) -> str:
    """Return the shell command that measures the same again."""
    words = ["--only", *map(shlex.quote, only)] if only else []
    words += ["--seeds", *map(str, seeds)] if tuple(seeds) != SEEDS else []
    options = " ".join(words)
    if name != "learning":
        return f"python -m benchmarks.{name} {options}".rstrip()
    return f'make learning ARGS="{options}"' if options else "make learning"


def write_page(name: str, block: Block, pictures: Pictures | None) -> None:
    """Write the committed report's part of `docs/results.md`."""
    report = RESULTS / f"{name}.json"
    PAGE.write_text(published(PAGE.read_text("utf-8"), name, block(report)), encoding="utf-8")
    if pictures is not None:
        pictures(report, IMAGES)


def random_returns(out: Path, rows: Sequence[Row]) -> dict[str, float]:
    """Return task -> mean return of random actions, where measured."""
    told = [json.loads(path.read_text("utf-8")) for path in sorted((out / "results" / "random").glob("*.json"))]
    tasks = {row.task for row in rows}
    return {entry["task"]: entry["mean_return"] for entry in told if entry["task"] in tasks}


def scores(report: Path) -> Mapping[str, Sequence[float]]:
    """Return row -> final score of each seed; -inf for failed trainings."""
    _, _, by_row = read_report(report)
    return {row: [result.score for result in results] for row, results in by_row.items()}
