"""One row under one seed: train and evaluate by the command line, and store the result as JSON.

OUT/results/<row>-seed-<seed>.json      written after the evaluation; measured again only if the row's configuration has
                                        changed
OUT/results/random/<task>.json          the mean return of random actions
OUT/runs/<row>-seed-<seed>/             the run's directory; an interrupted run starts again
"""

import contextlib
import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks import provenance
from benchmarks.table import EPISODES, Row, evaluation_seed

ROOT = Path(__file__).resolve().parents[1]

CURVE_POINTS = 100
NO_RESULT = (2, 6, 130)
"""Exit codes without a result: wrong usage, no memory backend, interrupted."""
ENDS_WITHIN_S = 20.0
"""Longest time that a program may take to end in order after its limit."""


class FailedError(Exception):
    """Error of a training or an evaluation; the message is its last line.

    Attributes:
        code: The program's exit code; None without one.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Result:
    """The result of one seed of one row.

    Attributes:
        row: Name of the row.
        env_steps: Environment steps of training.
        update_steps: Environment steps that one update takes.
        stop_reason: Name in `stop` of the condition that ended the training.
        mean_return: Mean return of `EPISODES` greedy episodes with the final weights; None: the training failed.
        failure: The error of a failed training, such as losses that are not finite; else None.
        training_mean_return: Mean return of the last 100 training episodes; None before the first ended.
        wall_s: Seconds of training and evaluation together.
        curve: (environment steps, mean return of the last 100 training episodes), in order.
        evaluation_seed: Seed of the greedy episodes.
        configuration: See `provenance.configuration`.
        commit, date, machine: Origin of the measurement.
    """

    row: str
    seed: int
    env_steps: int
    update_steps: int
    stop_reason: str
    mean_return: float | None
    failure: str | None
    training_mean_return: float | None
    wall_s: float
    curve: tuple[tuple[int, float], ...]
    evaluation_seed: int
    configuration: str
    commit: str
    date: str
    machine: str

    @property
    def score(self) -> float:
        """`mean_return`; -infinity for a failed training."""
        return -math.inf if self.mean_return is None else self.mean_return

    @staticmethod
    def of(tree: Mapping[str, Any]) -> "Result":
        """Return the result in a JSON object."""
        return Result(**{**tree, "curve": tuple((int(steps), float(mean)) for steps, mean in tree["curve"])})


def result_path(out: Path, row: Row, seed: int) -> Path:
    """Return the path of the stored result."""
    return out / "results" / f"{row.name}-seed-{seed}.json"


def run_directory(row: Row, seed: int, out: Path) -> Path:
    """Return the run's directory."""
    return out / "runs" / f"{row.name}-seed-{seed}"


def kept_results(out: Path, rows: Sequence[Row], seeds: Sequence[int]) -> list[Result]:
    """Return the stored results of the rows' current configurations, in the order of rows and seeds."""
    kept, names = [], {field.name for field in fields(Result)}
    for row in rows:
        for path in (result_path(out, row, seed) for seed in seeds):
            tree = json.loads(path.read_text("utf-8")) if path.exists() else {}
            if tree.keys() == names and tree["configuration"] == provenance.configuration(row):
                kept.append(Result.of(tree))
    return kept


def measure(row: Row, seed: int, out: Path) -> Result:
    """Train and evaluate, and store the result, also of a failed training.

    Raises:
        FailedError: There is no result, as after wrong usage or an interruption. Nothing is stored.
    """
    run_dir = run_directory(row, seed, out)
    if run_dir.exists():
        shutil.rmtree(run_dir)
    commit = provenance.commit()  # files may change meanwhile
    evaluated, failure = {"mean_return": None, "wall_s": 0.0}, None
    try:
        run(train_command(row, seed, run_dir))
    except FailedError as error:
        of_training = error.code is not None and error.code > 0 and error.code not in NO_RESULT
        if not of_training or not (run_dir / "summary.json").exists():
            raise
        failure = str(error)
    if failure is None:
        evaluated = json.loads(run(["-m", "distrl", "evaluate", str(run_dir), *_episodes(seed)]))
    summary = json.loads((run_dir / "summary.json").read_text("utf-8"))
    result = Result(
        row=row.name,
        seed=seed,
        env_steps=summary["env_steps"],
        update_steps=provenance.update_steps(row, summary["env_steps"], summary["updates"]),
        stop_reason=summary["stop_reason"],
        mean_return=evaluated["mean_return"],
        failure=failure,
        training_mean_return=summary["mean_return_100"],
        wall_s=summary["wall_s"] + evaluated["wall_s"],
        curve=thinned(list(read_curve(run_dir / "metrics.csv"))),
        evaluation_seed=evaluation_seed(seed),
        configuration=provenance.configuration(row),
        commit=commit,
        date=time.strftime("%Y-%m-%d"),
        machine=provenance.machine(),
    )
    keep(result_path(out, row, seed), asdict(result))
    return result


def train_command(row: Row, seed: int, run_dir: Path) -> list[str]:
    """Return the Python interpreter's arguments that train this row up to its budget.

    The preset's own `stop.mean_return` may end it earlier, unless the budget is a time.
    """
    budget = [f"stop.env_steps={row.env_steps}"]
    if row.minutes is not None:
        budget = ["stop.mean_return=null", "stop.env_steps=null", f"stop.minutes={row.minutes:g}"]
    sets = [argument for value in (*budget, *row.sets) for argument in ("--set", value)]
    where = ["--seed", str(seed), "--run-dir", str(run_dir), "--quiet"]
    preset = [] if row.preset is None else ["--preset", row.preset]
    return [*row.program, *preset, *where, *sets]


def random_return(row: Row, seed: int, out: Path) -> float:
    """Return the mean return of random actions in this row's task, measured once with an existing run.

    Raises:
        FailedError: See `measure`.
    """
    path = out / "results" / "random" / f"{re.sub(r'[^A-Za-z0-9.]+', '-', row.task)}.json"
    if not path.exists():
        command = ["evaluate", str(run_directory(row, seed, out)), "--baseline", "random"]
        told = json.loads(run(["-m", "distrl", *command, *_episodes(0)]))
        keep(path, {"task": row.task, "mean_return": told["mean_return"]})
    mean: float = json.loads(path.read_text("utf-8"))["mean_return"]
    return mean


def _episodes(seed: int) -> list[str]:
    return ["--seed", str(evaluation_seed(seed)), "--episodes", str(EPISODES), "--json"]


def read_curve(path: Path) -> Iterator[tuple[int, float]]:
    """Yield (environment steps, mean return) of every snapshot with a mean return."""
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["mean_return_100"]:
                yield int(row["env_steps"]), float(row["mean_return_100"])


def thinned(curve: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return at most `CURVE_POINTS` of the points, evenly spaced, with the first and the last."""
    if len(curve) <= CURVE_POINTS:
        return tuple(curve)
    last = len(curve) - 1
    return tuple(curve[round(index * last / (CURVE_POINTS - 1))] for index in range(CURVE_POINTS))


def keep(path: Path, tree: Mapping[str, Any]) -> None:
    """Write JSON atomically: a line for each value, and for each item of a list of mappings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    lines = [f"{json.dumps(key)}: {_json(value)}" for key, value in tree.items()]
    temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    temporary.replace(path)


def _json(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(f" {json.dumps(item)}" for item in value) + "\n]"
    return json.dumps(value)


def run(arguments: Sequence[str], *, limit_s: float | None = None, variables: Mapping[str, str] | None = None) -> str:
    """Run Python with these arguments; return its output.

    Args:
        limit_s: A program that takes longer is asked to end, and killed if it does not.
        variables: Of its environment, beside those of this process.

    Raises:
        FailedError: The program failed, or took longer.
    """
    program = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # distrl's own children find it where it is not installed, as in the environment of `make references`.
        env={**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})},
    )
    with program:
        try:
            output, errors = program.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            program.terminate()  # a training ends in order
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.communicate(timeout=ENDS_WITHIN_S)
            program.kill()
            raise FailedError(f"not done after {limit_s:.0f} s") from None
    if program.returncode:
        lines = errors.strip().splitlines() or [f"exit code {program.returncode}"]
        told = [line for line in lines if "error" in line.lower()]
        raise FailedError((told or lines)[-1], program.returncode)
    return output
