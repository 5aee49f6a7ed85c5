"""One run of the CartPole preset's command: time of the first update, time of the exit, and memory.

Times are wall-clock times from the start of the command's process, so they include the interpreter and every import.
`import tensorflow` alone, measured beside them, shows the machine's speed at that moment.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import measurement
from benchmarks.measurement import FailedError

PRESET = "cartpole-impala"
BACKENDS = ("tensorflow", "jax")
SAMPLE_EVERY_S = 1.0


@dataclass(frozen=True)
class WholeRun:
    """The result of one command.

    Attributes:
        first_update_s: Time from the start of the command's process to the first update.
        exit_s: Time to the process' end.
        env_steps, stop_reason: Values of the run's summary.
        memory_mb: Process -> proportional set size in MB (10^6 bytes) when the sum was greatest: "supervisor",
            "learner", "actor 0", …, and "redis" with its guardian. Empty unless requested.
    """

    first_update_s: float
    exit_s: float
    env_steps: int
    stop_reason: str
    memory_mb: Mapping[str, float]


def import_s() -> float:
    """Return the seconds of ``python -c "import tensorflow"`` from its start to its exit."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def fill_caches(folder: Path, backend: str) -> None:
    """Run a short training, after which policies and compiled programs are cached as on a machine in use.

    Raises:
        FailedError: It failed.
    """
    run(folder, backend, ["stop.updates=50"])


def run(folder: Path, backend: str, sets: Sequence[str], *, watches_memory: bool = False) -> WholeRun:
    """Train by the command line, in a new directory.

    Args:
        backend: The learner's backend.
        sets: PATH=VALUE each.
        watches_memory: Measure the memory of all processes once a second, which takes some milliseconds each time.

    Raises:
        FailedError: The training failed, or ended before its first update.
    """
    shutil.rmtree(folder, ignore_errors=True)
    options = [word for value in (f"learner.backend={backend}", *sets) for word in ("--set", value)]
    command = ["-m", "distrl", "train", "--preset", PRESET, "--run-dir", str(folder), "--quiet", *options]
    most_mb: dict[str, float] = {}
    began_unix_s = time.time()
    with ThreadPoolExecutor(1) as beside:
        training = beside.submit(measurement.run, command)
        while watches_memory and not training.done():
            most_mb = max(most_mb, memory_mb(), key=lambda sizes: sum(sizes.values()))
            wait([training], SAMPLE_EVERY_S)
        training.result()
    ended_unix_s = time.time()
    path = folder / "summary.json"
    summary = json.loads(path.read_text("utf-8"))
    if summary["time_to_first_update_s"] is None:
        raise FailedError(f"{folder}: it ended before its first update")
    launched_unix_s = path.stat().st_mtime - summary["wall_s"]  # it is written as soon as its numbers are there
    return WholeRun(
        first_update_s=launched_unix_s + summary["time_to_first_update_s"] - began_unix_s,
        exit_s=ended_unix_s - began_unix_s,
        env_steps=summary["env_steps"],
        stop_reason=summary["stop_reason"],
        memory_mb=most_mb,
    )


def memory_mb() -> dict[str, float]:
    """Return the proportional set size in MB of all processes below this one, by role."""
    found: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # it ends just now
            role, size = _role(process), process.memory_full_info().pss / 1e6
            found[role] = found.get(role, 0.0) + size
    return found


def _role(process: psutil.Process) -> str:
    if process.ppid() == os.getpid():
        return "supervisor"
    command = " ".join(process.cmdline())
    if command.startswith("distrl: "):
        return command.removeprefix("distrl: ").rstrip()
    return "redis" if "redis" in command else "starting"
