"""Train bsuite's agents and distrl on the same tasks, and report both.

    make behaviour
    make behaviour ARGS="--only '*memory_len*' --seeds 1 2 3"

It runs in the environment of `make references`, which has bsuite. Results are kept: the same command continues after an
interruption. `--publish` adds the measured tasks to the committed report and writes `docs/results.md`.
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks import provenance
from benchmarks.behaviour.environment import read_log
from benchmarks.behaviour.tasks import TASKS, Task
from benchmarks.measurement import FailedError, keep, run, train_command
from benchmarks.publishing import PAGE, RESULTS, parser, say
from benchmarks.report import number, published, table
from benchmarks.schedule import in_words
from benchmarks.table import selected
from distrl.apps.reports.intervals import interquartile_mean

LEARNERS = ("distrl", "bsuite")
"""Names of the two sides, in the order of the table."""


@dataclass(frozen=True)
class Outcome:
    """The result of one training.

    Attributes:
        task, learner: Name of the task, and one of `LEARNERS`.
        value: Mean over all episodes; its meaning is the experiment's.
        learned: Whether bsuite counts the task as learned; None: it has a score only.
        configuration: See `provenance.configuration`; of bsuite's agent, its name and episodes.
        commit, date, machine: Origin of the measurement.
    """

    task: str
    learner: str
    seed: int
    value: float
    learned: bool | None
    wall_s: float
    configuration: str
    commit: str
    date: str
    machine: str


Run = tuple[Task, str, int]
"""A task, one of `LEARNERS`, and a seed."""


def main(arguments: list[str] | None = None) -> int:
    """Measure what is missing, and report; return 1 if a training failed."""
    options = parser((__doc__ or "").splitlines()[0], "behaviour")
    given = options.parse_args(arguments)
    try:
        names = {row.name for row in selected([task.row for task in TASKS], given.only)}
    except ValueError as error:
        options.error(str(error))
    tasks = [task for task in TASKS if task.name in names]
    runs = [(task, learner, seed) for seed in given.seeds for task in tasks for learner in LEARNERS]
    failures = measure_missing(runs, given.out)
    outcomes = [found for found in (kept(one, given.out) for one in runs) if found is not None]
    report = {"outcomes": [asdict(one) for one in outcomes]}
    say(f"\n{block(report)}\n")
    if given.publish:
        publish(report)
    for failure in failures:
        say(f"failed: {failure}")
    return 1 if failures else 0


def measure_missing(runs: Sequence[Run], out: Path) -> list[str]:
    """Measure every run without a kept result; return one line per failure."""
    todo = [one for one in runs if kept(one, out) is None]
    if len(todo) < len(runs):
        say(f"{len(runs) - len(todo)} of {len(runs)} are there already")
    failures, began = [], time.monotonic()
    for index, (task, learner, seed) in enumerate(todo):
        name = f"[{len(runs) - len(todo) + index + 1}/{len(runs)}] {task.name} {learner} seed {seed}"
        say(f"{name} …")
        try:
            outcome = measure(task, learner, seed, out)
            told = f"{task.experiment.measure} {number(outcome.value)} in {in_words(outcome.wall_s)}"
        except FailedError as error:
            told = f"failed: {error}"
            failures.append(f"{name}: {error}")
        left = (time.monotonic() - began) / (index + 1) * (len(todo) - index - 1)
        say(f"{name}: {told}" + (f" · {in_words(left)} to go" if left else ""))
    return failures


def measure(task: Task, learner: str, seed: int, out: Path) -> Outcome:
    """Train once and keep the result.

    Raises:
        FailedError: The training failed, or its log ends early. Nothing is kept.
    """
    folder = out / "runs" / f"{task.name}-{learner}-seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    log = (folder / "log").resolve()
    row = replace(task.row, sets=(*task.row.sets, f"environment.kwargs.folder={json.dumps(str(log))}"))
    given = (task.agent, task.bsuite_id, seed, task.experiment.episodes, log)
    theirs = ["-m", "benchmarks.behaviour.agent", *map(str, given)]
    began, commit = time.monotonic(), provenance.commit()
    run(train_command(row, seed, folder / "run") if learner == "distrl" else theirs)
    try:
        value, learned = task.experiment.outcome(read_log(log), task.before)
    except ValueError as error:
        raise FailedError(str(error)) from error
    origin = (_configuration(task, learner), commit, time.strftime("%Y-%m-%d"), provenance.machine())
    outcome = Outcome(task.name, learner, seed, value, learned, time.monotonic() - began, *origin)
    keep(_path((task, learner, seed), out), asdict(outcome))
    return outcome


def _configuration(task: Task, learner: str) -> str:
    if learner == "distrl":
        return provenance.configuration(task.row)
    return f"{task.agent}, {task.experiment.episodes} episodes"


def kept(one: Run, out: Path) -> Outcome | None:
    """Return the stored result of the task's current configuration."""
    path = _path(one, out)
    tree = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if tree.keys() != {field.name for field in fields(Outcome)}:
        return None
    return Outcome(**tree) if tree["configuration"] == _configuration(*one[:2]) else None


def _path(one: Run, out: Path) -> Path:
    task, learner, seed = one
    return out / "results" / f"{task.name}-{learner}-seed-{seed}.json"


def publish(report: Mapping[str, Any]) -> None:
    """Merge the report into the committed one, and write the page's part."""
    path = RESULTS / "behaviour.json"
    earlier = json.loads(path.read_text("utf-8"))["outcomes"] if path.exists() else []
    by_run = {(one["task"], one["learner"], one["seed"]): one for one in [*earlier, *report["outcomes"]]}
    tree = {"outcomes": [by_run[key] for key in sorted(by_run)]}
    keep(path, tree)
    PAGE.write_text(published(PAGE.read_text("utf-8"), "behaviour", block(tree)), encoding="utf-8")


def block(report: Mapping[str, Any]) -> str:
    """Return the part of `docs/results.md`."""
    outcomes = [Outcome(**one) for one in report["outcomes"]]
    if not outcomes:
        return "Not measured yet."
    dates, commits, machines = (
        ", ".join(sorted({getattr(one, name) for one in outcomes})) for name in ("date", "commit", "machine")
    )
    hours = sum(one.wall_s for one in outcomes) / 3600.0
    measured = {one.task for one in outcomes}
    seeds = ", ".join(str(seed) for seed in sorted({one.seed for one in outcomes}))
    origin = (
        f"`make behaviour` on {dates}, commit {commits}: {len(measured)} of {len(TASKS)} tasks, seed {seeds}, on "
        f"{machines}, {hours:.2g} h together."
    )
    heads = ["Experiment", "Setting", "Mean over all episodes of", "Agent", "distrl", "bsuite's own agent"]
    return f"{origin}\n\n{table(heads, [_line(task, outcomes) for task in TASKS if task.name in measured])}"


def _line(task: Task, outcomes: Sequence[Outcome]) -> list[str]:
    experiment, setting = task.bsuite_id.partition("/")[0], f"{task.what} (`{task.bsuite_id}`)"
    of_task = [one for one in outcomes if one.task == task.name]
    cells = [_cell([one for one in of_task if one.learner == learner]) for learner in LEARNERS]
    return [experiment, setting, task.experiment.measure, f"`{task.agent}`", *cells]


def _cell(outcomes: Sequence[Outcome]) -> str:
    """Return '0.93, learned', and with several seeds the values of each behind their interquartile mean."""
    if not outcomes:
        return "–"
    values = [one.value for one in outcomes]
    each = f" ({', '.join(map(number, values))})" if len(values) > 1 else ""
    verdicts = [one.learned for one in outcomes if one.learned is not None]
    words = f", learned{f' {sum(verdicts)} of {len(verdicts)}' if len(verdicts) > 1 else ''}" if any(verdicts) else ""
    return f"{number(interquartile_mean(values))}{each}{words or (', not learned' if verdicts else '')}"
