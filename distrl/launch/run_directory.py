"""A run's own directory: config.yaml, run.json, manifest.json, summary.json, metrics.csv, and its folders.

Whoever trains in it holds a lock on run.lock, which the kernel lets go of however that process ends.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distrl.data_store.checkpoints import load_newest
from distrl.errors import CheckpointError, ConfigError, naming
from distrl.metrics.runs import RunRecord, process_mark


@dataclass(frozen=True)
class Opened:
    """A run directory that is ours: the update that its newest checkpoint holds, and lines worth telling."""

    update: int = 0
    notes: tuple[str, ...] = ()


@contextmanager
def open_run_directory(run_dir: Path, resume: str | None) -> Iterator[Opened]:
    """Makes the directory, or checks that it can be resumed; while inside, nobody else trains in it.

    Args:
        run_dir: The run's own directory.
        resume: None: a new run. "auto": resume if there is a checkpoint, else start. Otherwise: must resume.

    Yields:
        What is resumed, and which checkpoints were passed over.

    Raises:
        ConfigError: A new run would overwrite another one, or the run to resume has not ended.
        CheckpointError: There are checkpoints and none is valid, or there is none and `resume` is not "auto".
    """
    require_free(run_dir, resume)
    opened = Opened() if resume is None else _look_for_checkpoint(run_dir, must_exist=resume != "auto")
    for name in ("logs", "checkpoints", "policy"):
        (run_dir / name).mkdir(parents=True, exist_ok=True)
    with _locked(run_dir):
        yield opened


def require_free(run_dir: Path, resume: str | None) -> None:
    """Refuse a directory that cannot be trained in, before anything slow is done. Changes nothing.

    Raises:
        ConfigError: A new run would overwrite another one, or the run to resume has not ended.
    """
    if resume is None and (run_dir / "run.json").exists():
        raise ConfigError(f"{run_dir} already holds a run; add --resume auto to go on, or choose another --run-dir")
    if (run_dir / "run.lock").is_file():
        with _locked(run_dir):
            pass


def write_run_json(run_dir: Path, run_id: str, redis_url: str | None) -> None:
    """What `distrl status` and its siblings need to find the running job; the summary of an earlier launch goes.

    The file is private: the URL may hold a password.
    """
    pid = os.getpid()
    record = RunRecord(run_id=run_id, redis_url=redis_url, pid=pid, started=time.time(), process=process_mark(pid))
    write_private(run_dir / "run.json", record.model_dump_json(indent=1) + "\n")
    (run_dir / "summary.json").unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner may read; readers see the old one or the whole new one."""
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with naming(path), os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def _look_for_checkpoint(run_dir: Path, *, must_exist: bool) -> Opened:
    try:
        loaded = load_newest(run_dir / "checkpoints")
    except CheckpointError as error:
        # Not even with "auto": starting anew would lose, without a word, what somebody may still repair.
        raise CheckpointError(
            f"{run_dir} holds checkpoints and none is valid; put a good one back, or start anew with another "
            f"--run-dir ({error})"
        ) from error
    if loaded is None and must_exist:
        raise CheckpointError(f"nothing to resume: {run_dir} holds no checkpoint under checkpoints/")
    if loaded is None:
        return Opened(notes=(f"no checkpoint in {run_dir}: starting from the beginning",))
    passed_over = [f"passed over {path.name}: {reason}" for path, reason in loaded.rejected]
    return Opened(loaded.step, (*passed_over, f"resuming from {loaded.path.name} (update {loaded.step})"))


@contextmanager
def _locked(run_dir: Path) -> Iterator[None]:
    with (run_dir / "run.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"the run in {run_dir} has not ended; stop it first: distrl stop {run_dir}") from error
        yield
