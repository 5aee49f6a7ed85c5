"""Origin of a result: the resolved configuration of its training, the commit, the machine."""

import hashlib
import json
import os
import platform
import subprocess
from pathlib import Path

from benchmarks.table import EPISODES, Row, evaluation_seed
from distrl.config.load import load
from distrl.config.run import RunConfig

ROOT = Path(__file__).resolve().parent.parent


def resolved(row: Row) -> RunConfig:
    """Return the output of `distrl config show` for the row's preset and sets, without its budget and seed."""
    return load(preset=row.preset, sets=row.sets).config


def configuration(row: Row) -> str:
    """Return the sha256 of everything that determines a result except its seed and the program's code.

    Settings that neither the preset nor the row gives belong to the code: a new one must not make all results old.
    """
    given = resolved(row).model_dump(mode="json", exclude_unset=True)
    decides = [given, row.program, row.env_steps, row.minutes]
    judged = [EPISODES, evaluation_seed(0)]
    return hashlib.sha256(json.dumps([decides, judged], sort_keys=True).encode()).hexdigest()


def update_steps(row: Row, env_steps: int, updates: int) -> int:
    """Return the environment steps of one update: those of its unrolls, or the mean over updates."""
    config = resolved(row)
    unrolls = config.unrolls_at_once * config.actors.environments * config.actors.unroll_length_steps
    return max(unrolls, -(-env_steps // max(updates, 1)))


def commit() -> str:
    """Return the commit of this repository, with "+" if files differ from it; "unknown" outside of one."""
    return _known_to_git("HEAD", "distrl", "benchmarks/*.py")


def program() -> str:
    """Return git's hash of the folder `distrl/`, which several commits may share; "+" and "unknown" as in `commit`."""
    return _known_to_git("HEAD:distrl", "distrl")


def machine() -> str:
    """Return '2 cores (AMD EPYC)': those that this process may use."""
    cores = len(os.sched_getaffinity(0))
    return f"{cores} {'core' if cores == 1 else 'cores'} ({cpu_model()})"


def cpu_model() -> str:
    """Return the kernel's name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _known_to_git(name: str, *paths: str) -> str:
    try:
        found = _git("rev-parse", "--short", name)
        return f"{found}+" if _git("status", "--porcelain", "--", *paths) else found
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
