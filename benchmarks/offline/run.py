"""Learn offline from steps that distrl's own SAC has recorded, and with d3rlpy on the same files.

    make references
    build/references/bin/python -m benchmarks.offline --environments Hopper-v5
    build/references/bin/python -m benchmarks.offline --only 'offline-hopper-*-iql-*' --minutes 60
    build/references/bin/python -m benchmarks.offline --list
    build/references/bin/python -m benchmarks.offline --minutes 0 --publish

It runs in the environment of `make references`, which has d3rlpy. Every cell writes OUT/results/<cell>.json when it is
finished; the same command goes on with the next one that is missing, and says how long the rest will take. A SAC run
that SIGINT has ended counts with the steps that it took.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.measurement import FailedError, keep
from benchmarks.offline.cells import RETURNS, SEEDS, Cell, all_cells, missing, remaining_s
from benchmarks.offline.measure import measure
from benchmarks.offline.table import block
from benchmarks.publishing import PAGE, say
from benchmarks.schedule import in_words
from benchmarks.speed import Entry, publish, write_page

COMMAND = "build/references/bin/python -m benchmarks.offline"


def main(arguments: list[str] | None = None) -> int:
    """Measure what is missing, and report; return 1 if a cell failed."""
    given = _parser().parse_args(arguments)
    cells = all_cells(given.environments, given.seeds)
    chosen = [cell for cell in cells if not given.only or any(fnmatchcase(cell.name, one) for one in given.only)]
    out = given.out.resolve()
    todo = missing(chosen, kept(out))
    if given.list:
        say("\n".join(f"{'missing' if cell in todo else 'done':<8}{cell.name}" for cell in chosen))
        return 0
    failed = measure_all(todo, out, given.minutes)
    entries = kept(out)
    report = {"command": COMMAND, "results": [entries[cell.name] for cell in cells if cell.name in entries]}
    say(f"\n{block(report)}")
    if given.publish:
        publish("offline", report)
        write_page("offline", block, PAGE)
    return int(failed > 0)


def _parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n")
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.offline",
        description=first,
        epilog=rest.strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--environments", nargs="+", choices=[*RETURNS], default=[*RETURNS], metavar="ID")
    made.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), metavar="N")
    made.add_argument("--only", nargs="+", default=[], metavar="CELL", help="names of cells; * stands for anything")
    made.add_argument("--minutes", type=float, metavar="M", help="begin no cell after so many minutes")
    made.add_argument("--out", type=Path, default=Path("runs") / "offline", metavar="DIR")
    made.add_argument("--list", action="store_true", help="print the cells in their order, and measure nothing")
    made.add_argument("--publish", action="store_true", help="into benchmarks/results/ and docs/results.md")
    return made


def kept(out: Path) -> dict[str, Entry]:
    """Return the finished cells by name."""
    found = (json.loads(path.read_text("utf-8")) for path in sorted((out / "results").glob("*.json")))
    return {entry["name"]: entry for entry in found}


def measure_all(todo: Sequence[Cell], out: Path, minutes: float | None) -> int:
    """Measure cells, and keep each; return how many failed, with those that need them."""
    began, failed = time.monotonic(), 0
    for index, cell in enumerate(todo):
        if minutes is not None and time.monotonic() - began > 60.0 * minutes:
            say(f"{minutes:g} minutes are over: {len(todo) - index} cells are missing")
            break
        name, started = f"[{index + 1}/{len(todo)}] {cell.name}", time.monotonic()
        say(f"{name} …")
        try:
            entry = measure(cell, out, kept(out))
        except (FailedError, KeyError) as error:
            failed += 1
            say(f"{name}: failed: {error}")
            continue
        keep(out / "results" / f"{cell.name}.json", entry)
        left = remaining_s(todo[index + 1 :], [*kept(out).values()])
        told = "" if left is None else f" · about {in_words(left)} to go"
        say(f"{name}: {_found(entry)} in {in_words(time.monotonic() - started)}{told}")
    return failed


def _found(entry: Entry) -> str:
    if entry["kind"] in ("sac", "expert"):
        return f"{entry['env_steps']:,} steps"
    if entry["kind"] == "record":
        return f"{entry['parts'][0]['rows']:,} rows"
    return f"mean return {entry['mean_return']:,.1f}"


if __name__ == "__main__":
    sys.exit(main())
