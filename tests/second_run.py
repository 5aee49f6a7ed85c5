"""The way in which CI runs pytest: tests that failed are run once more when all else is done.

    python -m tests.second_run note ARGUMENTS   runs pytest; exit code 0 also if tests failed that are to run once more
    python -m tests.second_run judge            runs these, each alone in a process; exit code 1 if one fails again

A test that fails among others and passes alone met a race or a busy machine: `judge` lists it as flaky, which fails no
run. What no second run can excuse keeps pytest's exit code: errors of collection, of usage and of pytest itself, a run
without tests, and more failures than races explain. The notes, and the seconds of each test, stay in build/ci/.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path("build/ci")
MOST = 20
"""So many failures may be races. Beyond, something is broken, and each second run would take its time for nothing."""

FLAKY, FAILED_TWICE = "flaky: failed among others, passed alone", "failed twice"


class Outcomes:
    """The plugin that writes what became of the tests of a run, in the process that directs the workers."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = time.monotonic()
        self._seconds: list[tuple[float, str, str]] = []
        self._failed: dict[str, None] = {}
        self._passed: dict[str, None] = {}
        self._uncollected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds.append((report.duration, report.when or "", report.nodeid))
        if report.failed:  # also: the worker died of it
            self._failed[report.nodeid] = None
        elif report.when == "call" and report.passed:
            self._passed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # xdist's workers run the other tests, and the exit code is that of tests that failed
            self._uncollected.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        parts, _ = terminalreporter.build_summary_stats_line()
        noted = {
            "python": sys.executable,
            "failed": [*self._failed],
            "passed": [test for test in self._passed if test not in self._failed],
            "uncollected": self._uncollected,
            "others": [text for text, _ in parts if text.split()[1] not in ("passed", "failed", "error", "errors")],
            "seconds": time.monotonic() - self._began,
        }
        self._file.write_text(json.dumps(noted))
        rows = (f"{seconds:9.2f}s {when:8} {test}\n" for seconds, when, test in sorted(self._seconds, reverse=True))
        self._file.with_suffix(".durations.txt").write_text("".join(rows))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="the file into which this run writes what became of its tests")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # xdist's workers report to the process that directs them
        config.pluginmanager.register(Outcomes(config.getoption("--outcomes")))


def note(arguments: list[str]) -> int:
    """Run pytest and note the tests that failed; return the exit code, 0 if these are all that went wrong."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{len([*FOLDER.glob('*.json')]) + 1:02}.json"
    code = _pytest(sys.executable, file, *arguments)
    noted = json.loads(file.read_text()) if file.exists() else {"failed": [], "uncollected": []}
    failed = noted["failed"]
    if code != pytest.ExitCode.TESTS_FAILED or not failed or noted["uncollected"]:
        return code
    if len(failed) > MOST:
        print(f"{len(failed)} tests failed, more than the {MOST} that races may explain: none is run once more")
        return code
    print(f"to be run once more, alone, when all else is done: {len(failed)}")
    return 0


def judge() -> int:
    """Run once more what `note` has noted; return 1 if a test fails again, or else 0."""
    runs = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]
    tests: dict[str, list[str]] = {FLAKY: [], FAILED_TWICE: []}
    for run in runs:
        for test in run["failed"]:
            tests[FLAKY if _passes(run["python"], test) else FAILED_TWICE].append(test)
    for heading, found in tests.items():
        if found:
            print(heading, *found, sep="\n  ")
    if runs:
        print(f" {_closing(runs, len(tests[FAILED_TWICE]), len(tests[FLAKY]))} ".center(80, "="))
    return 1 if tests[FAILED_TWICE] else 0


def _closing(runs: list[dict[str, Any]], failed: int, flaky: int) -> str:
    """Return the sums after the second runs; what passed at once and what was skipped is that of the largest run."""
    suite = max(runs, key=lambda run: len(run["passed"]))
    counts = {"failed": failed, "passed": len(suite["passed"]), "flaky": flaky}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return f"{', '.join([*parts, *suite['others']])} in {suite['seconds']:.2f}s"


def _passes(python: str, test: str) -> bool:
    file = FOLDER / "again" / "outcome.json"
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    code = _pytest(python, file, "-n", "0", "-m", "", test)
    return code == 0 and json.loads(file.read_text())["passed"] == [test]


def _pytest(python: str, file: Path, *arguments: str) -> int:
    command = [python, "-m", "pytest", "-p", __spec__.name, "--outcomes", str(file), *arguments]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(note(sys.argv[2:]) if sys.argv[1] == "note" else judge())
