"""From a configuration to a submitted job: its name, its directory, and its record."""

import errno
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from distrl.apps.jobs.finding import job_in
from distrl.apps.jobs.record import CONFIG_FILE, JOB_FILE, Job, JobRecord, OpenRecord, or_no_job, submitting
from distrl.apps.jobs.stored_jobs import require_free_in_store, store_record
from distrl.apps.jobs.target import NoAnswerError, Report, Target
from distrl.apps.jobs.targets import open_target
from distrl.apps.jobs.watching import state_of
from distrl.config import RunConfig
from distrl.data_store.atomic import TEMPORARY, put_file
from distrl.errors import ConfigError, DistrlError, StoreError
from distrl.runs.directories import directory_of_id

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

    Where a job cannot be withdrawn, its directory stays with a record that is not complete.

    Args:
        report: Takes a line for each part that was submitted.
        warn: Takes a line for what could not be done.

    Raises:
        ConfigError: The directory is taken or cannot be made, or the target refuses.
    """
    try:
        require_free_in_store(job.config.checkpoint.store, job.run_id)
    except StoreError as error:  # the hosts of the run may have rights that this one lacks
        warn(f"the data store is not looked into: {error}")
    opened = OpenRecord(job, target.name)
    with _claimed(job, opened):
        try:
            target.submit(job, opened, report)
        except BaseException as error:
            if _may_be_there(opened, error):
                _withdraw(opened, target, error)
            raise
        try:
            opened.write(complete=True)
        except BaseException as error:  # its directory is gone or full, and no command could find the job
            _withdraw(opened, target, error)
            raise
    record = opened.record
    try:
        store_record(record)
    except DistrlError as error:  # the hosts of the run may have rights that this one lacks
        warn(f"job.json is not in the data store: {error}")
    return record


def withdraw_unfinished(record: JobRecord, run_dir: Path) -> bool:
    """Remove what a submission has left that was killed, with the job's directory on this host.

    Returns:
        False if the submission has finished, or the job runs or has run all the same.

    Raises:
        ConfigError: The submission goes on, its target does not answer, or the directory cannot be removed.
    """
    if record.complete:
        return False
    if record.under_way:
        raise ConfigError(f"{record.unfinished}; repeat the command when it has ended")
    if record.handles:
        state, target = state_of(record), open_target(record.target)
        if state.state == "unknown":
            raise ConfigError(f"{record.run_id}: {state.reason}")
        if state.state not in ("waiting", "gone") or (run_dir / "run.json").exists():
            return False
        if state.may_have_begun:
            record.model_copy(update={"complete": True}).write(run_dir)
            return False
        target.withdraw(record)
    try:
        shutil.rmtree(run_dir)
    except OSError as error:
        raise ConfigError(f"{run_dir} cannot be removed: {error.strerror}") from error
    return True


class _LeftError(ConfigError):
    """Parts of a job may be left at its target; its record stays, by which they are found."""


def _may_be_there(opened: OpenRecord, error: BaseException) -> bool:
    """Whether the target may have the job after an error: one that refuses it has undone its part."""
    refuses = isinstance(error, ConfigError) and not isinstance(error, NoAnswerError)
    return bool(opened.record.handles) and not refuses


def _withdraw(opened: OpenRecord, target: Target, error: BaseException) -> None:
    """Withdraw a job after an error.

    Raises:
        _LeftError: That fails, too; the message has both errors.
    """
    try:
        target.withdraw(opened.record)
    except DistrlError as left:
        first = str(error) or type(error).__name__
        raise _LeftError(f"{first}; {opened.record.unfinished}, which failed now: {left}") from error


@contextmanager
def _claimed(job: Job, record: OpenRecord) -> Iterator[None]:
    """Make the job's directory with its record and job.yaml, which only its owner may read.

    It takes its name when it is whole, so that of two that submit one gets it, and one that is killed leaves none
    without a record. If the block raises, the directory is removed, or emptied if it was there before; after
    `_LeftError` it stays.
    """
    run_dir, was_there = job.run_dir, job.run_dir.is_dir()
    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        require_free(job.run_id, run_dir)
    except OSError as error:
        raise _cannot_be_made(error.filename, error) from error
    with ExitStack() as held:
        (_fill if was_there else _make)(job, record.record, held)
        try:
            yield
        except _LeftError:
            raise
        except BaseException:
            held.close()  # NFS keeps a file that is open
            _empty(run_dir)
            if not was_there:
                run_dir.rmdir()
            raise


def _make(job: Job, record: JobRecord, held: ExitStack) -> None:
    """Make the job's directory. It takes its name when it is whole, and locked until `held` is closed."""
    run_dir = job.run_dir
    begun = run_dir.with_name(f"{TEMPORARY}{secrets.token_hex(4)}-{run_dir.name}")
    try:
        begun.mkdir()
    except OSError as error:
        raise _cannot_be_made(begun, error) from error
    try:
        with or_no_job(run_dir / JOB_FILE):
            record.write(begun)
            put_file(begun / CONFIG_FILE, job.config_text(secrets=True).encode(), private=True)
        held.enter_context(submitting(begun))
        try:
            begun.rename(run_dir)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise _taken(job.run_id, run_dir) from error
            raise _cannot_be_made(run_dir, error) from error
    except BaseException:
        shutil.rmtree(begun, ignore_errors=True)
        raise


def _fill(job: Job, record: JobRecord, held: ExitStack) -> None:
    """Take an empty directory, which keeps its rights, and may be a mount point or a link: job.json claims it."""
    path = job.run_dir / JOB_FILE
    try:
        claim = path.open("xb")
    except FileExistsError as error:
        raise _taken(job.run_id, job.run_dir) from error
    except OSError as error:
        raise _cannot_be_made(path, error) from error
    try:
        with or_no_job(path), claim:
            put_file(job.run_dir / CONFIG_FILE, job.config_text(secrets=True).encode(), private=True)
            held.enter_context(submitting(job.run_dir))
            claim.write(record.content)
    except BaseException:
        _empty(job.run_dir)
        raise


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _cannot_be_made(path: Path | str, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be made: {error.strerror}; choose another --run-dir")


def _taken(run_id: str, run_dir: Path) -> ConfigError:
    with suppress(ConfigError):
        record = job_in(run_dir)
        if record is not None and not record.complete:
            return ConfigError(f"the run id {run_id} is taken: {record.unfinished}")
    if run_dir.name == run_id:
        return ConfigError(f"the run id {run_id} is taken: {run_dir} exists; choose another --run-id")
    return ConfigError(f"{run_dir} is taken: it exists and is no empty directory; choose another --run-dir")
