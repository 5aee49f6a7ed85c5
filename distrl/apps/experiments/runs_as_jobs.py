"""Runs of a sweep as jobs of a target, such as a Slurm cluster. Their directories are on a disk that it shares."""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrl.apps.config.configuration import load
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.sweep import Planned
from distrl.apps.jobs.record import JOB_FILE, Job, JobRecord
from distrl.apps.jobs.submission import new_run_id, submit, withdraw_unfinished
from distrl.apps.jobs.target import OVER, JobState, Target
from distrl.apps.jobs.watching import job_words, state_of, states_of
from distrl.data_store.atomic import put_file
from distrl.errors import ConfigError, DistrlError
from distrl.files import read_small
from distrl.runs.directories import SET_ASIDE

FILE = "jobs.json"
LOOK_S = 2.0
"""Time between two questions about the jobs: other users ask the same server."""


@dataclass(frozen=True)
class JobsTarget:
    """The target of a sweep's jobs.

    Attributes:
        name: A key of `targets.TARGETS`.
        address: Of the target; None: its default.
    """

    name: str
    address: str | None
    target: Target


def place_of(directory: SweepDirectory) -> tuple[str, str | None] | None:
    """Return the name and address of the target that has the jobs of a sweep; None for runs of this machine.

    Raises:
        ConfigError: The file is damaged.
    """
    path = directory.path / FILE
    try:
        tree = json.loads(read_small(path))
        return str(tree["target"]), tree["address"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged: {error!r}; restore it, or remove it to train here") from error


def job_of(
    base: Path | dict[str, Any], run_dir: Path, planned: Planned, address: str | None, *, wait: bool, dry: bool = False
) -> Job:
    """Return the job that trains a run of a sweep.

    Args:
        base: The configuration that all runs share: a file, or its content.
    """
    loaded = load(file=base, sets=[*planned.sets, f"seed={planned.seed}"])
    return Job(new_run_id(loaded.config, dry=dry), loaded, run_dir.resolve(), address, wait, dry)


class RunsAsJobs:
    """At most `most` jobs at once. They go on when this process ends, and the next launch watches them again.

    Args:
        say: Takes lines for the user.
    """

    outlive = True

    def __init__(self, directory: SweepDirectory, most: int, place: JobsTarget, say: Callable[[str], None]) -> None:
        self._directory, self._most, self._place, self._say = directory, most, place, say
        self._records: dict[str, JobRecord] = {}
        self._last: dict[str, JobState] = {}
        self._look_at = -math.inf

    @property
    def running(self) -> list[str]:
        return [*self._records]

    @property
    def has_room(self) -> bool:
        return len(self._records) < self._most

    def take_up(self, planned: Planned) -> bool:
        run_dir = self._directory.run(planned)
        if not (run_dir / JOB_FILE).exists():
            return False
        record = JobRecord.read(run_dir)
        if withdraw_unfinished(record, run_dir):
            return False
        # One that was stopped in order begins anew, unless its target has begun it again.
        if self._directory.outcome(planned).error and state_of(record).state in OVER:
            return False
        self._records[planned.name] = record
        return True

    def start(self, planned: Planned) -> bool:
        """Submit a run, which begins anew."""
        self._remember()
        run_dir = self._directory.run(planned)
        self._set_aside(run_dir)
        # It waits where there is no room now, as other jobs of the sweep may have taken it.
        job = job_of(self._directory.base, run_dir, planned, self._place.address, wait=True)
        self._records[planned.name] = submit(job, self._place.target, lambda _: None, self._say)
        return False

    def ended(self) -> Iterator[tuple[str, int | None]]:
        if time.monotonic() < self._look_at:
            return
        self._look_at, records = time.monotonic() + LOOK_S, [*self._records.items()]
        for (name, record), state in zip(records, states_of([record for _, record in records]), strict=True):
            if state.state == "unknown" and state != self._last.get(name):
                self._say(f"run {name}: {job_words(record, state)}")
            self._last[name] = state
            if state.state in OVER:
                del self._records[name]
                yield name, state.exit_code

    def cause(self, planned: Planned, code: int | None) -> str:
        state = self._last[planned.name]
        if code != 0 and state.reason:
            return state.reason
        if code:
            return f"exit code {code}; see distrl logs {self._directory.run(planned)}"
        return (
            f"its job has ended, and {self._directory.run(planned)}/summary.json is not there; give --dir a path that "
            "this host shares with the cluster"
        )

    def stop(self) -> None:
        """Leave them alone."""

    def _remember(self) -> None:
        """Write down the target before the first job, so that no later launch trains here by mistake."""
        path = self._directory.path / FILE
        if not path.exists():
            place = {"target": self._place.name, "address": self._place.address}
            try:
                put_file(path, json.dumps(place).encode())
            except OSError as error:
                raise DistrlError(f"{path} cannot be written: {error.strerror}") from error

    def _set_aside(self, run_dir: Path) -> None:
        """Rename the directory of a run that is not to go on."""
        if not run_dir.is_dir():
            return
        folder, number = self._directory.path / SET_ASIDE, 1
        while (kept := folder / f"{run_dir.name}.{number}").exists():
            number += 1
        try:
            folder.mkdir(exist_ok=True)
            run_dir.rename(kept)
        except OSError as error:
            raise ConfigError(f"{run_dir} cannot be renamed: {error.strerror}") from error
        self._say(f"run {run_dir.name} begins anew; {kept} has what it left")
