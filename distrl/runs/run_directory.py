"""A run's own directory: config.yaml, run.json, manifest.json, summary.json, metrics.csv, and its folders.

The training process holds locks on the directory and on run.lock. The kernel releases them when it ends.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distrl.config.stores import is_store_url
from distrl.data_store.atomic import put_file
from distrl.data_store.named_checkpoints import CheckpointName, parse
from distrl.errors import ConfigError
from distrl.runs.directories import PASSWORD_FILE, RunRecord, process_mark

_FOLDERS = ("logs", "checkpoints", "policy")
_FILES = (
    *("config.yaml", "manifest.json", "run.json", "summary.json", "metrics.csv", "run.lock", "labels.json"),
    *("evaluations.jsonl", "roles.csv", "data.json"),
)


def named_directory(run_dir: Path | None, resume: str) -> Path:
    """Return the directory in which the run named by --resume goes on, or a new run begins with its state.

    Args:
        resume: A directory, RUN@STEP or RUN@best.

    Raises:
        ConfigError: `run_dir` is another directory, and no checkpoint is named.
    """
    named = parse(resume)
    if run_dir is None or run_dir.resolve() == named.run.resolve():
        return named.run
    if named.mark is None:
        raise ConfigError(
            f"--resume {resume} goes on in that directory, but --run-dir is {run_dir}; leave one out, or name a "
            f"checkpoint, --resume {resume}@STEP, with which a new run begins"
        )
    return run_dir


def named_checkpoint(resume: str | None) -> CheckpointName | None:
    """Return the directory or checkpoint that --resume names; None for "auto" and for a run in a data store."""
    return None if resume is None or resume == "auto" or is_store_url(resume) else parse(resume)


def run_to_resume(run_dir: Path | None, resume: str | None) -> Path | None:
    """Return the directory of the run whose state --resume names; None for a new run, or for "auto" without one."""
    named = named_checkpoint(resume)
    return named.run if named is not None else None if resume is None else run_dir


def branches(run_dir: Path, resume: str) -> bool:
    """Whether a new run begins with the state of the checkpoint that --resume names, which is another run's."""
    named = named_checkpoint(resume)
    return named is not None and named.mark is not None and named.run.resolve() != run_dir.resolve()


@contextmanager
def locked(run_dir: Path) -> Iterator[frozenset[Path]]:
    """Create the directory if it is missing; while inside, no other process trains in it.

    Yields:
        The paths that were made, for `Trial.of`.

    Raises:
        ConfigError: Another process trains in it, or it cannot be made.
    """
    with ExitStack() as held:
        with usable(run_dir):
            made = (run_dir, *(run_dir / name for name in (*_FOLDERS, "run.lock")))
            new = frozenset(path for path in made if not os.path.lexists(path))
            for name in _FOLDERS:
                (run_dir / name).mkdir(parents=True, exist_ok=True)
            _hold(held, run_dir, os.O_RDONLY)
            _hold(held, run_dir / "run.lock", os.O_RDWR | os.O_CREAT)
        yield new


@contextmanager
def usable(run_dir: Path) -> Iterator[None]:
    """Turn an OSError inside, where the run's files are opened, into a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{error.filename or run_dir} cannot be used: {error.strerror}; choose another --run-dir, or mend it"
        ) from error


def require_free(run_dir: Path, resume: str | None) -> None:
    """Raise ConfigError for a directory that cannot be trained in, before anything slow is done; change nothing."""
    named = named_checkpoint(resume)
    is_branch = resume is not None and branches(run_dir, resume)
    if (resume is None or is_branch) and (run_dir / "run.json").exists():
        raise ConfigError(f"{run_dir} already holds a run; add --resume auto to go on, or choose another --run-dir")
    _require_own_place(run_dir, named)
    if is_branch and any((run_dir / "checkpoints").glob("*")):
        raise ConfigError(f"{run_dir} already holds checkpoints; choose another --run-dir")
    if named is not None and named.mark is not None:
        named.find()
    folders = [run_dir, *(run_dir / name for name in _FOLDERS)]
    for path in (*folders, *(run_dir / name for name in _FILES), *run_dir.glob("logs/*.log")):
        is_folder = path in folders
        if path.exists() and not (path.is_dir() if is_folder else path.is_file()):
            raise ConfigError(f"{path} is not a {'folder' if is_folder else 'file'}; move it away, or mend it")
    with usable(run_dir), at_rest(run_dir):
        pass


def _require_own_place(run_dir: Path, named: CheckpointName | None) -> None:
    """Raise ConfigError for a name that is no UTF-8, and for a folder of another run, unless a run in it is named."""
    path = run_dir.resolve()
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        shown = str(path).encode(errors="backslashreplace").decode()
        raise ConfigError(f"{shown}: the name is no UTF-8; choose another --run-dir") from error
    outer = next((folder for folder in path.parents if _is_run(folder)), None)
    if outer is not None and named is None:
        raise ConfigError(f"{run_dir} lies in the directory of a run, {outer}; choose another --run-dir")


def _is_run(folder: Path) -> bool:
    try:
        RunRecord.read(folder / "run.json")
    except ConfigError:  # none, or a file of that name of something else
        return False
    return True


@contextmanager
def at_rest(run_dir: Path) -> Iterator[None]:
    """Hold the locks of a run that does not train, so that none begins or is resumed in its directory meanwhile.

    Raises:
        ConfigError: The run has not ended.
    """
    with ExitStack() as held:
        for path in (run_dir, run_dir / "run.lock"):
            if path.exists():
                _hold(held, path, os.O_RDONLY)
        yield


def write_run_json(run_dir: Path, run_id: str, launch: str, redis_url: str | None, *, own: bool = False) -> None:
    """Write run.json, by which other commands find the live run, and remove the summary of an earlier launch.

    Args:
        own: The Redis is the run's own and has the password in the directory.
    """
    pid = os.getpid()
    process = {"host": socket.gethostname(), "pid": pid, "started": time.time(), "process": process_mark(pid)}
    password = PASSWORD_FILE if own else None
    record = RunRecord(run_id=run_id, launch=launch, redis_url=redis_url, redis_password_file=password, **process)
    with usable(run_dir):
        put_file(run_dir / "run.json", record.model_dump_json(indent=1).encode() + b"\n", private=True)
        (run_dir / "summary.json").unlink(missing_ok=True)


def is_directory_of(run_dir: Path, run_id: str, launch: str) -> bool:
    """Whether `run_dir` on this host is the directory in which this launch of the run began."""
    try:
        record = RunRecord.read(run_dir / "run.json")
    except ConfigError:  # there is none
        return False
    return (record.run_id, record.launch) == (run_id, launch)


def run_id_of(run_dir: Path) -> str | None:
    """Return the id of the run in a directory; None if it holds none.

    Raises:
        ConfigError: Its run.json is damaged.
    """
    path = run_dir / "run.json"
    return RunRecord.read(path).run_id if path.exists() else None


def _hold(held: ExitStack, path: Path, flags: int) -> None:
    """Lock a run's directory, or the file run.lock in it, until `held` is closed.

    It takes both, as the file may be replaced by one without a lock, and some network file systems lock no directories.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)  # a pipe would wait for a writer
    held.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        run_dir = path if path.is_dir() else path.parent
        raise ConfigError(f"the run in {run_dir} has not ended; stop it first: distrl stop {run_dir}") from error
    except OSError:
        if not path.is_dir():
            raise
