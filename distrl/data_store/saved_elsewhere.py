"""Folders in which a learner saves its last updates when the run's own directory does not take them."""

import glob
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from distrl.errors import ConfigError
from distrl.files import read_small


def places() -> Iterator[Path]:
    """Yield directories to try, the first one first: a temporary one and the home, as far as this process has them."""
    with suppress(FileNotFoundError):
        yield Path(tempfile.gettempdir())
    with suppress(RuntimeError):
        yield Path.home()


def new_folder(place: Path, run_dir: Path) -> Path:
    """Make a folder for a run, which no other user reads.

    Raises:
        OSError: It cannot be made there.
    """
    return Path(tempfile.mkdtemp(prefix=_prefix(run_dir), dir=place))


def newest_resumable(run_dir: Path) -> Path | None:
    """Return the directory with the newest checkpoint of a run, which `--resume` takes.

    That is the run's own, or a folder on this host, if that has later updates and was written after the run's own
    checkpoints. A copy of a run's directory counts as written when it was copied. None: there is no checkpoint.
    """
    newest, found = _newest(run_dir), run_dir
    for folder in _folders(run_dir):
        saved = _newest(folder)
        if saved is not None and (newest is None or (saved.name > newest.name and saved.written > newest.written)):
            newest, found = saved, folder
    return None if newest is None else found


class _Saved(NamedTuple):
    """The name of a checkpoint, and when it was written, in nanoseconds."""

    name: str
    written: int


def _newest(run_dir: Path) -> _Saved | None:
    """Return the newest checkpoint; None: there is none, or the disk does not answer, which must not hide others."""
    try:
        path = max((run_dir / "checkpoints").glob("ckpt-*"), key=lambda path: path.name, default=None)
        return None if path is None else _Saved(path.name, path.stat().st_mtime_ns)
    except OSError:
        return None


def _prefix(run_dir: Path) -> str:
    return f"saved-by-distrl-{run_dir.resolve().name}-"


def _folders(run_dir: Path) -> Iterator[Path]:
    """Yield the folders of a run, none that another user has made: anybody may write to a temporary directory."""
    run_id = _run_id(run_dir)
    for place in places():
        with suppress(OSError):  # a home on a server that does not answer
            for folder in sorted(place.glob(f"{glob.escape(_prefix(run_dir))}*")):
                if run_id is not None and _is_own(folder) and _run_id(folder) == run_id:
                    yield folder


def _is_own(folder: Path) -> bool:
    """Whether this user has made the folder, and it is still there."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()


def _run_id(run_dir: Path) -> str | None:
    """Return the id of the run, by the manifest of its newest launch, of which a folder has a copy."""
    try:
        tree = json.loads(read_small(run_dir / "manifest.json"))
        return str(tree["run_id"])
    except (OSError, ConfigError, ValueError, KeyError, TypeError):
        return None
