"""Jobs and runs in a data store: their records, how they have ended, and copies of their logs."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from distrl.apps.jobs import run_logs
from distrl.apps.jobs.record import JOB_FILE, UNSUBMITTED, JobRecord
from distrl.apps.jobs.target import JobState, LogLine
from distrl.config.stores import checked_store_url, split_run
from distrl.data_store.fetching import fetch_files
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import StoredRun
from distrl.errors import ConfigError, StoreError
from distrl.memory_backend.keys import checked_run_id
from distrl.runs.summary import Summary

_FILES = (JOB_FILE, "summary.json", "manifest.json")


def store_record(record: JobRecord) -> None:
    """Write job.json into the run's folder in the store; nothing without a store.

    Raises:
        StoreError, ConfigError: The store does not take it.
    """
    if record.store is not None:
        open_objects(record.store).put(f"{record.run_id}/{JOB_FILE}", record.content)


def require_free_in_store(store: str | None, run_id: str) -> None:
    """Raise ConfigError if the store has a run or job of the id, which a new one would go on with or replace.

    Raises:
        StoreError: The store does not answer.
    """
    if store is None:
        return
    run = StoredRun(open_objects(store), run_id)
    if run.look().is_begun or run.objects.get(f"{run_id}/{JOB_FILE}") is not None:
        raise ConfigError(
            f"the run id {run_id} is taken: {run.url} is a run; choose another --run-id, or go on with it by distrl "
            f"train --resume {run.url}"
        )


def stored_jobs(
    url: str, states_of: Callable[[Sequence[JobRecord]], Sequence[JobState]], trouble: Callable[[str], None]
) -> list[tuple[JobRecord, JobState]]:
    """Return the runs in a store with their states; those of `distrl train` count as jobs, too.

    Args:
        states_of: The states of jobs by their targets, for those without a summary in the store.
        trouble: Gets a line for each folder that cannot be a run's.

    Raises:
        ConfigError: The store cannot be used.
    """
    store, found = checked_store_url(url, "--store"), []
    try:
        objects = open_objects(store)
        for run_id in objects.folders():
            try:
                found += _stored_job(StoredRun(objects, checked_run_id(run_id)))
            except (ConfigError, ValueError) as error:
                trouble(f"{store}/{run_id}: {error}")
    except StoreError as error:
        raise ConfigError(f"--store: {error}") from error
    open_ends = [record for record, state in found if state.state == "unknown" and record.target != UNSUBMITTED]
    asked = dict(zip((record.run_id for record in open_ends), states_of(open_ends), strict=True))
    return [
        (record, state if (now := asked.get(record.run_id, state)).state == "unknown" else now)
        for record, state in found
    ]


def _stored_job(run: StoredRun) -> list[tuple[JobRecord, JobState]]:
    """Return a run with its state by what the store has; nothing if it has no run there."""
    with tempfile.TemporaryDirectory(prefix="distrl-") as place:
        folder = Path(place)
        fetch_files(run, folder, _FILES)
        if not any((folder / name).exists() for name in _FILES):
            return []
        bare = JobRecord.bare(run.run_id, store=run.objects.url)
        try:
            return [(JobRecord.read(folder) if (folder / JOB_FILE).exists() else bare, _state(folder))]
        except ConfigError as error:
            return [(bare, JobState("damaged", str(error).replace(f"{folder}/", "")))]


def _state(folder: Path) -> JobState:
    """Return the state of a run by its fetched summary; a damaged one is told."""
    path = folder / "summary.json"
    if not path.exists():
        return JobState("unknown", "the store has no summary: it trains, or was killed, or its machine is gone")
    try:
        return JobState.of(Summary.read(path))
    except ConfigError as error:
        return JobState("unknown", str(error).replace(f"{folder}/", ""))


def stored_log(url: str) -> Iterator[LogLine]:
    """Yield the lines of a run's logs in a data store, STORE/RUN; those of a run that trains are older.

    Raises:
        ConfigError: There are none, or the store cannot be used.
    """
    store, run_id = split_run(url, "RUN")
    with tempfile.TemporaryDirectory(prefix="distrl-") as folder:
        try:
            fetch_files(StoredRun(open_objects(store), checked_run_id(run_id)), Path(folder), ["logs/"])
        except StoreError as error:
            raise ConfigError(f"RUN: {error}") from error
        logs = Path(folder) / "logs"
        if not logs.is_dir():
            raise ConfigError(
                f"{url}: no log of such a run is in the store; distrl jobs --store {store} lists its runs"
            )
        yield from run_logs.lines(logs)
