"""Records of every run, so that the same command continues after an interruption.

OUT/results/<contender>-<task>-<repetition>.json    measured again only after a failure or a change of configuration
OUT/runs/<contender>-<task>/                        output and progress of the last of these runs
"""

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks import provenance
from benchmarks.measurement import keep
from benchmarks.peers import environments
from benchmarks.peers.contenders import SCRIPTS, Contender, Task


@dataclass(frozen=True)
class Measured:
    """Figures of one run; None where there is no such figure.

    Attributes:
        failure: The last line of its output, if it failed.
        steps_per_s: Environment steps per second while learning.
        first_update_s: Seconds from the command to the first update.
        solved_s: Seconds from the command to the exit, if the run reached its task's return.
        mean_return: Mean return of the last 100 training episodes at the end of the run.
        pss_bytes: Greatest memory of all its processes together.
        cpu_us_per_step: Processor time of all processes per environment step.
        env_steps: Number of environment steps.
        wall_s: Duration of the run in seconds, including its end.
        load: The machine's load average before the run.
    """

    contender: str
    task: str
    repetition: int
    seconds: float
    configuration: str
    failure: str | None
    steps_per_s: float | None
    first_update_s: float | None
    solved_s: float | None
    mean_return: float | None
    pss_bytes: int | None
    cpu_us_per_step: float | None
    env_steps: int
    wall_s: float
    load: float
    date: str
    machine: str
    commit: str


def configuration(contender: Contender, task: Task, seconds: float) -> str:
    """Return the sha256 of everything that determines a result; distrl's code counts by git's hash of it."""
    decides = [repr(contender), repr(task), repr(seconds)]
    if contender.ours:
        decides.append(provenance.program())
    else:
        files = (
            SCRIPTS / "progress.py",
            SCRIPTS / str(contender.program),
            environments.requirements(contender.environment),
        )
        decides += [path.read_text(encoding="utf-8") for path in files]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def result_path(out: Path, contender: Contender, task: Task, repetition: int) -> Path:
    """Return the path of the stored result."""
    return out / "results" / f"{contender.name}-{task.name}-{repetition}.json"


def keep_result(out: Path, contender: Contender, task: Task, measured: Measured) -> None:
    """Write the result atomically."""
    keep(result_path(out, contender, task, measured.repetition), asdict(measured))


def kept(out: Path, contender: Contender, task: Task, repetition: int, seconds: float) -> Measured | None:
    """Return the stored result, also of a failure; None without one of this configuration."""
    path = result_path(out, contender, task, repetition)
    tree: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if tree.keys() != {field.name for field in fields(Measured)}:
        return None
    measured = Measured(**tree)
    return measured if measured.configuration == configuration(contender, task, seconds) else None


def repetitions(out: Path, contender: Contender, task: Task) -> list[int]:
    """Return the repetitions with a stored result, in order."""
    paths = (out / "results").glob(f"{contender.name}-{task.name}-*.json")
    return sorted(int(path.stem.rpartition("-")[2]) for path in paths)


def median(results: Sequence[Measured], figure: Callable[[Measured], float | None]) -> float | None:
    """Return the median over the runs that have the figure; None without any."""
    figures = [value for value in map(figure, results) if value is not None]
    return statistics.median(figures) if figures else None
