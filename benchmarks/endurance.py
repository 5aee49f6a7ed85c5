"""Endurance tests, two at a time, and their measurements in docs/reliability.md. Takes two hours.

    python -m benchmarks.endurance
    python -m benchmarks.endurance --only network no-actors --publish

These are ordinary tests of real runs, with the same checks as in CI. There each runs for seconds, here for minutes or
an hour. A test that fails yields no measurement and is reported at the end.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import provenance
from benchmarks.measurement import keep
from benchmarks.publishing import RESULTS, say
from benchmarks.speed import Entry, chosen, finish, listed, parser, stamp

PAGE = provenance.ROOT / "docs" / "reliability.md"
DIRECTORY_VARIABLE = "DISTRL_ENDURANCE"
"""Directory of the records of the tests' fixture `measured`."""
TESTS = {
    "constant-kills": "tests/failures/test_constant_kills.py",
    "scaling": "tests/failures/test_scaling_under_way.py",
    "slow-learner": "tests/failures/test_slow_learner.py",
    "no-actors": "tests/failures/test_no_actors.py",
    "redis": "tests/failures/test_redis_restarts.py",
    "network": "tests/failures/test_network.py",
    "payloads": "tests/security/test_hostile_payloads.py",
    "suspended": "tests/failures/test_kills.py",
}
FAULTS = {
    1: "a random actor of four is killed every 10 s",
    2: "no actor for minutes",
    3: "the learner dies in the middle of what must not be torn apart",
    4: "Redis or the network to it goes and comes back",
    6: "the learner sleeps a second per batch",
    9: "hostile payloads",
    13: "everything is suspended",
    17: "actors come and go",
    19: "one of two actors is killed every minute",
}
UNITS = {
    "_mb_per_h": lambda value: f"{value:+.2f} MB/h",
    "_share": lambda value: f"{value:.1%}",
    "_ms": lambda value: f"{value:,.1f} ms",
    "_us": lambda value: f"{value:,.0f} µs",
    "_mb": lambda value: f"{value:,.0f} MB",
    "_s": lambda value: f"{value:,.1f} s",
    "": lambda value: f"{value:,g}" if isinstance(value, float) else f"{value:,}",
}
"""Ending of a figure's name -> its format."""


def measure(names: Sequence[str], out: Path) -> tuple[list[Entry], bool]:
    """Return the measurements of the tests, and whether all tests have passed."""
    found, where = (out / "measured").resolve(), stamp()
    found.mkdir(parents=True, exist_ok=True)
    for old in found.glob("*.json"):
        old.unlink()
    command = [sys.executable, "-m", "pytest", "-m", "endurance", "-n", "2", "--dist", "worksteal"]
    command += [TESTS[name] for name in names]
    done = subprocess.run(command, cwd=provenance.ROOT, env={**os.environ, DIRECTORY_VARIABLE: str(found)}, check=False)
    told = [json.loads(path.read_text("utf-8")) for path in sorted(found.glob("*.json"))]
    return [{"name": one["test"], **where, **one} for one in told], done.returncode == 0


def forget(names: Sequence[str]) -> None:
    """Return earlier measurements of these tests, without those of tests that fail now."""
    path = RESULTS / "endurance.json"
    if path.exists():
        report = json.loads(path.read_text("utf-8"))
        kept = [entry for entry in report["results"] if entry["file"] not in {TESTS[name] for name in names}]
        keep(path, {**report, "results": kept})


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    ordered = {**report, "results": sorted(report["results"], key=lambda entry: (entry["row"], entry["name"]))}
    return listed(ordered, ["Fault", "Measured"], _line)


def _line(entry: Entry) -> Sequence[str]:
    return FAULTS[entry["row"]], "; ".join(_told(name, value) for name, value in entry["found"].items())


def _told(name: str, value: float | str) -> str:
    """Return a figure in words: 'slowest back 1.9 s'."""
    if isinstance(value, str):
        return f"{name.replace('_', ' ')} {value}"
    unit = next(unit for unit in UNITS if name.endswith(unit))
    return f"{name.removesuffix(unit).replace('_', ' ')} {UNITS[unit](value)}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a test failed."""
    given = parser(__doc__, "endurance", list(TESTS), page=PAGE).parse_args(arguments)
    names = chosen(list(TESTS), given.only)
    entries, passed = measure(names, given.out)
    if given.publish:
        forget(names)
    finish("endurance", entries, given, block, page=PAGE)
    if not passed:
        say("some tests failed: see above")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
