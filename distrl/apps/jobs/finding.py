"""Submitted jobs by name: a run's directory, or the id of a run under runs/."""

import os
from collections.abc import Iterator
from pathlib import Path

from distrl.apps.jobs.record import JOB_FILE, JobRecord
from distrl.apps.jobs.target import JobState
from distrl.data_store.atomic import TEMPORARY
from distrl.errors import ConfigError
from distrl.runs.directories import RunRecord, newest_run, readable

RUN_FILE = "run.json"
ROOT = Path("runs")


def run_directory(name: str | None, root: Path = ROOT) -> Path:
    """Return the directory of a run or job: a path, an id under `root`, or, for None, the one that began last.

    A path with a slash need not exist.

    Raises:
        ConfigError: There is none of that name, or none at all.
    """
    if name is None:
        return newest_run(root)
    path = Path(name)
    if os.sep in name or _holds_run(path):
        return path
    if (found := directory_of_id(name, root)) is not None:
        return found
    if path.exists():  # whose reader says what is missing there
        return path
    raise ConfigError(f"{name} is no run's directory, and no run under {root}/ has this id; distrl jobs lists jobs")


def directory_of_id(run_id: str, root: Path = ROOT) -> Path | None:
    """Return the directory directly under `root` of the run or job with an id; None if there is none."""
    if _holds_run(root / run_id):
        return root / run_id
    return next((folder for folder in _directories(root) if _id_in(folder) == run_id), None)


def job_in(folder: Path) -> JobRecord | None:
    """Return the job in a run's directory; None for a run that was not submitted.

    Raises:
        ConfigError: Its record is damaged.
    """
    return JobRecord.read(folder) if (folder / JOB_FILE).exists() else None


def as_job(folder: Path) -> JobRecord:
    """Return the job in a run's directory; a run that `distrl train` began on this machine is one, too.

    Raises:
        ConfigError: The directory holds no run, or a record is damaged.
    """
    submitted = job_in(folder)
    if submitted is not None:
        return submitted
    run = RunRecord.read(folder / RUN_FILE)
    return JobRecord(
        run_id=run.run_id,
        target="here",
        address=None,
        run_dir=str(folder.resolve()),
        store=None,
        actors=0,
        submitted=run.started,
        handles={},
    )


def at_address(job: JobRecord, address: str | None) -> JobRecord:
    """Return the job with another address of its target, such as that of a tunnel; None: the recorded one.

    Raises:
        ConfigError: Its target has no address.
    """
    if address is None:
        return job
    if job.target == "here":
        raise ConfigError(f"--address {address} has no use with {job.run_id}, a job on here")
    return job.model_copy(update={"address": address})


def known_jobs(root: Path) -> Iterator[tuple[JobRecord, JobState | None]]:
    """Yield the jobs in the directories under `root`; with a state, which others lack, if the record cannot be read."""
    for folder in _directories(root):
        try:
            job = job_in(folder)
        except ConfigError as error:
            yield JobRecord.bare(readable(folder.name), run_dir=readable(str(folder))), JobState("damaged", str(error))
        else:
            if job is not None:
                yield job, None


def _directories(root: Path) -> list[Path]:
    """Return the directories directly under `root` that hold a run or a job."""
    found = {path.parent for name in (JOB_FILE, RUN_FILE) for path in root.glob(f"*/{name}")}
    return sorted(folder for folder in found if not folder.name.startswith(TEMPORARY))


def _holds_run(folder: Path) -> bool:
    return (folder / JOB_FILE).exists() or (folder / RUN_FILE).exists()


def _id_in(folder: Path) -> str | None:
    """Return the id of the job or run in a directory; None where its files are damaged."""
    try:
        return as_job(folder).run_id
    except ConfigError:
        return None
