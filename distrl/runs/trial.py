"""A launch on trial: until it is accepted, a run's directory can be put back as it was, byte by byte.

A launch writes files by replacing them, by appending to them, by making new ones, and by moving them. Nothing but the
kernel's numbers of files (inodes) is kept of what it only appends to or moves, so that a trial costs no time.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from distrl.data_store.atomic import put_file

REPLACED = (
    *("config.yaml", "manifest.json", "run.json", "run.key", "redis.password", "run.lock", "summary.json"),
    *("metrics.csv", "roles.csv", "roles.1.csv", "evaluations.jsonl", "data.json"),
    "checkpoints/best",
    *(f"policy/{name}" for name in ("graph.onnx", "description.json", "weights.msgpack", "best.msgpack")),
    *("logs/events.log", "logs/learner.log", "logs/evaluator.log", "logs/trackers.log"),
)
"""Files that a launch replaces or removes, as patterns of paths below a run's directory."""
APPENDED = (
    "logs/actor-*.log",
    "logs/inference-*.log",
    "tensorboard/events.out.tfevents.*",
    "checkpoints/*",
    "policy/.tmp-*",
)
"""Files that it makes, moves, or appends to; of these there may be many."""
LATER = ("logs/stall.txt", "logs/nonfinite-batch-*.npz", "films/*")
"""Files that it makes once it has been accepted: one that is new before then is no file of this launch."""
FOLDERS = ("logs", "policy", "checkpoints", "checkpoints.of-writer-*", "tensorboard", "films", "after-*")
"""Folders that it makes or moves. All else in the directory is of others: job.json, a job's log, the operator's own."""
TAIL_BYTES = 65_536
"""End of a file that is kept: a row that a crash has torn is removed when the file is opened."""


@dataclass(frozen=True)
class _Entry:
    """A file or folder before the launch.

    Attributes:
        tail: The last bytes of a file that a launch replaces, or takes a torn row from.
        descriptor: That file, open: its content survives its replacement. None for all others.
    """

    found: os.stat_result
    tail: bytes = b""
    descriptor: int | None = None

    @property
    def number(self) -> tuple[int, int]:
        return self.found.st_dev, self.found.st_ino


@dataclass
class Trial:
    """Whether a launch has been accepted: the learner has taken unrolls in, or the run has ended otherwise.

    Attributes:
        report: Takes a line on what a disk, which may be full, refused to take back.
    """

    report: Callable[[str], None]
    accepted: bool = False
    _before: dict[Path, _Entry] = field(default_factory=dict)

    @contextmanager
    def of(self, run_dir: Path, *, new: frozenset[Path]) -> Iterator[None]:
        """Put the directory back at the end, unless the launch has been accepted; the caller holds its locks.

        Args:
            new: Paths that were made right before, which belong to the launch.
        """
        with ExitStack() as opened:
            self._before = {path: _look(run_dir, path, opened) for path in _written(run_dir) if path not in new}
            try:
                yield
            finally:
                if not self.accepted:
                    self._end(run_dir, new)

    def _end(self, run_dir: Path, new: frozenset[Path]) -> None:
        if lacking := self._put_back(run_dir):
            self.report(f"not put back as it was before this launch: {', '.join(map(str, lacking))}")
        if run_dir in new:
            _remove(run_dir)

    def _put_back(self, run_dir: Path) -> list[Path]:
        """Move back what was moved, remove what is new, and restore content; return what could not be."""
        lacking: list[Path] = []
        for path, entry in sorted(self._before.items()):
            with _noting(path, lacking):
                self._move_back(run_dir, path, entry)
        for path in sorted(_written(run_dir), reverse=True):
            if path not in self._before and not _matches(path.relative_to(run_dir), LATER):
                with _noting(path, lacking):
                    _remove(path)
        for path, entry in self._before.items():
            with _noting(path, lacking):
                if stat.S_ISREG(entry.found.st_mode) and not _restore(path, entry):
                    lacking.append(path)
        return lacking

    def _move_back(self, run_dir: Path, path: Path, entry: _Entry) -> None:
        """Move a file or folder back if the launch has moved it; what the launch has put in its place is removed."""
        if os.path.lexists(path) and _number(path) == entry.number:
            return
        moved = {_number(found): found for found in _written(run_dir) if found not in self._before}
        if entry.number in moved:
            _discard(path)
            moved[entry.number].rename(path)


@contextmanager
def _noting(path: Path, lacking: list[Path]) -> Iterator[None]:
    """Go on after an error of the disk, and note the path. A file that another program has removed is not missing."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError:
        lacking.append(path)


def _discard(path: Path) -> None:
    """Remove what the launch has put where something of before belongs."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _written(run_dir: Path) -> list[Path]:
    """Return what launches have written below a directory, without following links."""
    found = [Path(folder) / name for folder, folders, files in os.walk(run_dir) for name in (*folders, *files)]
    return [path for path in found if _matches(path.relative_to(run_dir), (*REPLACED, *APPENDED, *LATER, *FOLDERS))]


def _matches(path: Path, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path.as_posix(), pattern) for pattern in patterns)


def _remove(path: Path) -> None:
    """Remove a file, or a folder in which others have put nothing."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    with suppress(OSError):
        path.rmdir()


def _number(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _look(run_dir: Path, path: Path, opened: ExitStack) -> _Entry:
    found = path.lstat()
    if not (stat.S_ISREG(found.st_mode) and _matches(path.relative_to(run_dir), REPLACED)):
        return _Entry(found)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # of another user: whether the launch may replace it shows when it does
        return _Entry(found)
    opened.callback(os.close, descriptor)
    return _Entry(found, os.pread(descriptor, TAIL_BYTES, max(found.st_size - TAIL_BYTES, 0)), descriptor)


def _restore(path: Path, entry: _Entry) -> bool:
    """Give a file, which may have been removed or replaced, its content, mode and time of change.

    Returns:
        False if another file is there whose content before is not known; it stays.
    """
    size = entry.found.st_size
    is_same = os.path.lexists(path) and _number(path) == entry.number
    if not is_same and entry.descriptor is not None:
        put_file(path, os.pread(entry.descriptor, size, 0), private=True)
        path.chmod(stat.S_IMODE(entry.found.st_mode))
    elif not is_same:
        return not os.path.lexists(path)  # a log that a user has removed stays so
    elif path.lstat().st_size > size:
        os.truncate(path, size)
    elif path.lstat().st_size < size:
        with path.open("r+b") as file:
            file.seek(size - len(entry.tail))
            file.write(entry.tail)
    os.utime(path, ns=(entry.found.st_atime_ns, entry.found.st_mtime_ns), follow_symlinks=False)
    return True
