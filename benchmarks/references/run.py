"""Runs all comparisons, prints their table, and keeps the report on request."""

import argparse
import os
import shlex
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measurement import keep
from benchmarks.provenance import commit, machine
from benchmarks.publishing import RESULTS
from benchmarks.references.figures import TAKEN
from benchmarks.references.table import block

FOLDER = Path(__file__).resolve().parent
LIBRARIES = (
    "stable-baselines3",
    "sb3-contrib",
    "rlax",
    "rliable",
    "dopamine-rl",
    "d3rlpy",
    "torch",
    "jax",
    "keras",
    "tensorflow-cpu",
)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all comparisons agree, else pytest's exit code; 2 after wrong usage."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.references", description=(__doc__ or "").strip())
    made.add_argument(
        "--publish", action="store_true", help="into benchmarks/results/, of which the site makes its page"
    )
    made.add_argument("--only", metavar="WORDS", help="comparisons whose test's name has these words, as pytest's -k")
    given = made.parse_args(arguments)
    if given.publish and given.only:
        made.error("--publish writes the whole table; leave out --only")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    began = time.monotonic()
    code = int(pytest.main(pytest_arguments(given.only)))
    report = make_report(time.monotonic() - began)
    print(f"\n{block(report)}\n", flush=True)
    if code == 0 and given.publish:
        keep(RESULTS / "references.json", report)
    elif given.publish:
        print("not published: a comparison failed", file=sys.stderr)
    return code


def pytest_arguments(only: str | None) -> list[str]:
    """Return pytest's arguments; warnings of the libraries are theirs, and none of them an error."""
    chosen = ["-k", only] if only else []
    return [str(FOLDER), "-q", "-o", "filterwarnings=", "-o", "addopts=", "--import-mode=importlib", *chosen]


def make_report(wall_s: float) -> dict[str, Any]:
    """Return the comparisons so far as one JSON object, with where they come from."""
    return {
        "command": shlex.join(["make", "references"]),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": machine(),
        "wall_s": round(wall_s, 1),
        "versions": {name: version(name) for name in LIBRARIES},
        "figures": [asdict(figure) for figure in TAKEN],
    }
