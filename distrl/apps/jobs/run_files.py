"""The files by which a run's directory tells how the job's training has ended."""

from pathlib import Path

from distrl.apps.jobs.record import JOB_LOG, JobRecord
from distrl.apps.jobs.target import JobState
from distrl.errors import EXIT_INTERRUPTED
from distrl.files import open_regular, read_small
from distrl.launch.fleet import last_error
from distrl.runs.directories import Run, open_run

EXIT_FILE = "job.exit"
"""Name of the file in logs/ that has the exit code of the job's `distrl train`."""


def run_of(record: JobRecord) -> Run | None:
    """Return the run in the job's directory; None before it has begun."""
    run_dir = Path(record.run_dir)
    return open_run(run_dir) if (run_dir / "run.json").exists() else None


def exit_code(record: JobRecord) -> int | None:
    """Return the exit code that the job's shell has written; None if it was killed."""
    try:
        text = read_small(Path(record.run_dir) / "logs" / EXIT_FILE).decode(errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def ended_with(record: JobRecord, code: int, run: Run | None) -> JobState:
    """Return the state of a job that has ended with an exit code, by what its run has left."""
    if run is not None and run.summary is not None and run.summary.exit_code == code:
        return JobState.of(run.summary)
    early = "it was stopped before it began to train" if code == EXIT_INTERRUPTED else None
    return JobState.of_code(code, early or _last_error(record) or f"it has ended with {code} and has left no summary")


def _last_error(record: JobRecord) -> str | None:
    try:
        with open_regular(Path(record.run_dir) / "logs" / JOB_LOG) as log:
            return last_error(log)
    except OSError:
        return None
