"""From a configuration to a submitted job: its name, its directory, and its record."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distrl.config import RunConfig
from distrl.errors import ConfigError, DistrlError, StoreError
from distrl.jobs.finding import directory_of_id
from distrl.jobs.record import CONFIG_FILE, JOB_FILE, Job, JobRecord
from distrl.jobs.stored_jobs import require_free_in_store, store_record
from distrl.jobs.target import Report, Target

UNDECIDED = "xxxxxx"
"""Stands for the random end of a run id in a dry run, whose output is the same at every call."""


def new_run_id(config: RunConfig, *, dry: bool = False) -> str:
    """Return an id for a run of this configuration: environment, algorithm, and six random digits.

    It has 53 characters at most, as the name of a Helm release.
    """
    names = f"{config.environment.id}-{config.algorithm.name}".lower()
    names = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in names)
    return f"{names[:46]}-{UNDECIDED if dry else secrets.token_hex(3)}"


def require_free(run_id: str, run_dir: Path) -> None:
    """Raise ConfigError if another run has the id or the directory."""
    if run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
        raise _taken(run_id, run_dir)
    holder = directory_of_id(run_id)
    if holder is not None and holder.resolve() != run_dir.resolve():
        raise ConfigError(f"the run id {run_id} is taken: {holder.resolve()} has it; choose another --run-id")


def submit(job: Job, target: Target, report: Report, warn: Report) -> JobRecord:
    """Submit a job and write its record; after an error there is neither a job nor a directory.

    Args:
        report: Takes a line for each part that was submitted.
        warn: Takes a line for what could not be done.

    Raises:
        ConfigError: The directory is taken or cannot be made, or the target refuses.
    """
    try:
        require_free_in_store(job.loaded.config.checkpoint.store, job.run_id)
    except StoreError as error:  # the hosts of the run may have rights that this one lacks
        warn(f"the data store is not looked into: {error}")
    with _claimed(job):
        record = target.submit(job, report)
        try:
            with _writes(job.run_dir / JOB_FILE):
                record.write(job.run_dir)
        except BaseException:  # without a record the job could be neither seen nor stopped
            target.withdraw(record)
            raise
    try:
        store_record(record)
    except DistrlError as error:  # the hosts of the run may have rights that this one lacks
        warn(f"job.json is not in the data store: {error}")
    return record


@contextmanager
def _claimed(job: Job) -> Iterator[None]:
    """Make the job's directory with job.yaml, which only its owner may read.

    If the block raises, remove what is in it, and itself if it was made here.
    """
    path, was_there = job.run_dir / CONFIG_FILE, job.run_dir.is_dir()
    try:
        job.run_dir.mkdir(parents=True, exist_ok=True)
        require_free(job.run_id, job.run_dir)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # of two that submit, one gets it
    except FileExistsError as error:
        raise _taken(job.run_id, job.run_dir) from error
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be made: {error.strerror}; choose another --run-dir") from error
    try:
        with _writes(path), os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(job.config_text(secrets=True))
        yield
    except BaseException:
        shutil.rmtree(job.run_dir, ignore_errors=True)
        if was_there:
            job.run_dir.mkdir(exist_ok=True)
        raise


@contextmanager
def _writes(path: Path) -> Iterator[None]:
    """Turn an error of the system in the block into one line."""
    try:
        yield
    except OSError as error:
        what = error.filename or path
        raise ConfigError(f"{what} cannot be written: {error.strerror}; there is no job") from error


def _taken(run_id: str, run_dir: Path) -> ConfigError:
    if run_dir.name == run_id:
        return ConfigError(f"the run id {run_id} is taken: {run_dir} exists; choose another --run-id")
    return ConfigError(f"{run_dir} is taken: it exists and is no empty directory; choose another --run-dir")
