"""Records of every run, so that the same command continues after an interruption.

OUT/results/<contender>-<task>-<repetition>.json    one that went well is not measured again, unless what decides it
                                                    changed
OUT/runs/<contender>-<task>/                        of the last of these runs: what it printed and told
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
    """What one run came to; None where there is no such figure.

    Attributes:
        failure: The last line that it printed, if it failed.
        steps_per_s: Environment steps per second while learning.
        first_update_s: Seconds from the command to the first update.
        solved_s: Seconds from the command to the exit, of a run that reached its task's return.
        mean_return: Of the last 100 training episodes, at the end of the run.
        pss_bytes: The most that all its processes together held of memory.
        cpu_us_per_step: Processor time of all processes for each environment step.
        env_steps: How many there were.
        wall_s: Seconds that the run took, its end included.
        load: The machine's load average before it began.
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
    """sha256 of what decides a result: equal where it need not be redone. distrl's code counts as git has it."""
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
    """Where the result is kept."""
    return out / "results" / f"{contender.name}-{task.name}-{repetition}.json"


def keep_result(out: Path, contender: Contender, task: Task, measured: Measured) -> None:
    """Writes it, whole or not at all."""
    keep(result_path(out, contender, task, measured.repetition), asdict(measured))


def kept(out: Path, contender: Contender, task: Task, repetition: int, seconds: float) -> Measured | None:
    """What is there, be it a failure; None if there is nothing, or of another configuration."""
    path = result_path(out, contender, task, repetition)
    tree: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if tree.keys() != {field.name for field in fields(Measured)}:
        return None
    measured = Measured(**tree)
    return measured if measured.configuration == configuration(contender, task, seconds) else None


def repetitions(out: Path, contender: Contender, task: Task) -> list[int]:
    """Those that there is something of, in order."""
    paths = (out / "results").glob(f"{contender.name}-{task.name}-*.json")
    return sorted(int(path.stem.rpartition("-")[2]) for path in paths)


def median(results: Sequence[Measured], figure: Callable[[Measured], float | None]) -> float | None:
    """Of those that have the figure; None if none has."""
    figures = [value for value in map(figure, results) if value is not None]
    return statistics.median(figures) if figures else None
