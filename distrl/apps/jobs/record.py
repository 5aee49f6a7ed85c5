"""A submitted job, and the record of it that every verb reads: job.json.

The record is written before anything of the job is at its target, so that no job is without one.
No daemon knows jobs. The record lies in the run's directory and, with `checkpoint.store`, in the run's folder in the
store, so that another machine can watch and stop the job.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from distrl.apps.config.configuration import Configuration
from distrl.config.load import LoadedConfig, dump_given
from distrl.config.secrets import masked
from distrl.data_store.atomic import put_file
from distrl.errors import ConfigError
from distrl.files import open_regular, read_model

JOB_FILE = "job.json"
CONFIG_FILE = "job.yaml"
"""The configuration that the job gets: the values that are not defaults. A submission locks it until it ends."""
UNSUBMITTED = "-"
"""Target of a run of which no submission is known."""
JOB_LOG = "job.log"
"""Name of the file in logs/ that has the output of the job's `distrl train --dated`."""


@dataclass(frozen=True)
class Job:
    """A run that is to be submitted.

    Attributes:
        loaded: Its whole configuration, as `distrl train` would take it.
        run_dir: Absolute; the submitting host keeps the record there. A target with a shared disk runs there, too.
        address: Where the target is, such as the URL of Ray's job server; None: the target's default.
        wait: Submit also what the target cannot start now, because it may grow.
        dry: Show the plan alone, also where a target that only checks it does not answer.
    """

    run_id: str
    loaded: LoadedConfig
    run_dir: Path
    address: str | None = None
    wait: bool = False
    dry: bool = False

    @property
    def config(self) -> Configuration:
        """The configuration, with the sections of targets."""
        return Configuration.of(self.loaded.config)

    def config_text(self, *, secrets: bool) -> str:
        """Return the content of job.yaml; without `secrets` they are masked, for eyes alone."""
        return dump_given(self.loaded) if secrets else dump_given(self.loaded, masked)


class JobRecord(BaseModel):
    """job.json: what was submitted, and where.

    Attributes:
        target: Name of the target, a key of `targets.TARGETS`.
        address: As in `Job`, but resolved: another machine finds the target by it.
        run_dir: The run's directory on the hosts where the run writes it.
        store: `checkpoint.store`.
        actors: Number of actors that was requested last, by the configuration or by `distrl scale`.
        submitted: Seconds since 1970.
        handles: Name of a part -> the target's name for it, such as "learner" -> "4711". Empty while nothing is at the
            target.
        complete: Whether the submission has finished; one that was killed has not, and may have left parts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = Field(1, ge=1, le=1)
    run_id: str
    target: str
    address: str | None
    run_dir: str
    store: str | None
    actors: int = Field(ge=0)
    submitted: float = Field(ge=0.0, lt=1e11)
    handles: dict[str, str]
    complete: bool = True
    _under_way: bool = PrivateAttr(default=False)

    @property
    def under_way(self) -> bool:
        """Whether the submission went on when the record was read."""
        return self._under_way and not self.complete

    @property
    def content(self) -> bytes:
        """The content of job.json."""
        return self.model_dump_json(indent=2).encode() + b"\n"

    def write(self, run_dir: Path) -> None:
        """Write job.json into a run's directory."""
        put_file(run_dir / JOB_FILE, self.content)

    def handle(self, name: str) -> str:
        """Return a handle.

        Raises:
            ConfigError: The record has none of that name.
        """
        if name not in self.handles:
            raise ConfigError(
                f"the record of {self.run_id} is damaged: it has no {name}" if self.complete else self.unfinished
            )
        return self.handles[name]

    @property
    def unfinished(self) -> str:
        """One line about a submission that goes on, or was cut off: then with the command that removes its parts."""
        if self.under_way:
            return f"the submission of {self.run_id} is under way"
        return f"the submission of {self.run_id} has not finished; distrl stop removes what there is of it"

    @classmethod
    def bare(cls, run_id: str, *, run_dir: str = "-", store: str | None = None) -> "JobRecord":
        """Return a record for a run that `distrl train` has begun, or whose own record cannot be read."""
        return cls(
            run_id=run_id,
            target=UNSUBMITTED,
            address=None,
            run_dir=run_dir,
            store=store,
            actors=0,
            submitted=0.0,
            handles={},
        )

    @classmethod
    def read(cls, run_dir: Path) -> "JobRecord":
        """Read job.json of a run's directory.

        Raises:
            ConfigError: There is none, or it is damaged.
        """
        path = run_dir / JOB_FILE
        if not path.exists():
            raise ConfigError(f"{run_dir} holds no job (no {JOB_FILE}); distrl jobs lists those under runs/")
        under_way = _is_locked(run_dir / CONFIG_FILE)  # first, as a submission completes the record and then ends
        record = read_model(cls, path)
        record._under_way = under_way
        return record


class OpenRecord:
    """The record of a job that is being submitted, in the run's directory.

    Args:
        target: Name of the target.
    """

    def __init__(self, job: Job, target: str) -> None:
        config = job.config
        self._folder = job.run_dir
        self.record = JobRecord(
            run_id=job.run_id,
            target=target,
            address=job.address,
            run_dir=str(job.run_dir),
            store=config.checkpoint.store,
            actors=config.actors.count,
            submitted=time.time(),
            handles={},
            complete=False,
        )

    def write(self, **changes: str | bool | Mapping[str, str]) -> None:
        """Write the record down with other values of its fields.

        Raises:
            ConfigError: It cannot be written.
        """
        self.record = self.record.model_copy(update=changes)
        with or_no_job(self._folder / JOB_FILE):
            self.record.write(self._folder)


@contextmanager
def submitting(run_dir: Path) -> Iterator[None]:
    """Hold the lock by which others see that the submission goes on; the kernel releases it when this process ends.

    A file system without locks holds none: there, a submission that goes on looks like one that was cut off.
    """
    # NFS locks only what is open for writing.
    with os.fdopen(os.open(run_dir / CONFIG_FILE, os.O_RDWR | os.O_NOFOLLOW), "r+b") as config:
        with suppress(OSError):
            fcntl.flock(config, fcntl.LOCK_EX)
        yield


def _is_locked(path: Path) -> bool:
    try:
        with open_regular(path) as config:
            fcntl.flock(config, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # it is gone, or another user's, who alone can remove the job
        return False
    return False


@contextmanager
def or_no_job(path: Path) -> Iterator[None]:
    """Turn an error of the system in the block, which writes files of a job, into one line."""
    try:
        yield
    except OSError as error:
        what = error.filename or path
        raise ConfigError(f"{what} cannot be written: {error.strerror}; there is no job") from error
