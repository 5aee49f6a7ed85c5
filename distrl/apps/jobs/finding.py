"""The jobs in directories of runs."""

from collections.abc import Iterator
from pathlib import Path

from distrl.apps.jobs.record import JOB_FILE, JobRecord
from distrl.apps.jobs.target import JobState
from distrl.errors import ConfigError
from distrl.runs.directories import RunRecord, readable, records_under


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
    run = RunRecord.read(folder / "run.json")
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
    for folder in [path.parent for path in records_under(root) if path.name == JOB_FILE]:
        try:
            yield JobRecord.read(folder), None
        except ConfigError as error:
            yield JobRecord.bare(readable(folder.name), run_dir=readable(str(folder))), JobState("damaged", str(error))
