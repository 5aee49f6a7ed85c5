"""Folders in which a learner saves its last updates when the run's own directory does not take them."""

import glob
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from distrl.errors import ConfigError
from distrl.files import read_small

log = logging.getLogger(__name__)


def places() -> Iterator[Path]:
    """Yield directories to try, the first one first."""
    try:
        yield Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        log.error("no temporary directory: %s", error)
    try:
        yield Path.home()
    except RuntimeError as error:
        log.error("no home directory: %s", error)


def new_folder(place: Path, run_dir: Path) -> Path:
    """Make a folder for a run, which no other user reads.

    Raises:
        OSError: It cannot be made there.
    """
    return Path(tempfile.mkdtemp(prefix=_prefix(run_dir), dir=place))


def newest_resumable(run_dir: Path) -> Path | None:
    """Return the directory with the newest checkpoint of a run, which `--resume` takes.

    That is the run's own, or a folder on this host, if that has later updates and was written after the run's own
    checkpoints. None: there is no checkpoint.
    """
    newest, found = _newest(run_dir), run_dir
    for folder in _folders(run_dir):
        saved = _newest(folder)
        if saved is not None and (newest is None or (saved.name > newest.name and _written(saved) > _written(newest))):
            newest, found = saved, folder
    return None if newest is None else found


def _newest(run_dir: Path) -> Path | None:
    return max((run_dir / "checkpoints").glob("ckpt-*"), key=lambda path: path.name, default=None)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns


def _prefix(run_dir: Path) -> str:
    return f"saved-by-distrl-{run_dir.resolve().name}-"


def _folders(run_dir: Path) -> Iterator[Path]:
    """Yield the folders of a run, none that another user has made: anybody may write to a temporary directory."""
    run_id = _run_id(run_dir)
    for place in places():
        for folder in sorted(place.glob(f"{glob.escape(_prefix(run_dir))}*")):
            about = folder.lstat()
            is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
            if run_id is not None and is_own and _run_id(folder) == run_id:
                yield folder


def _run_id(run_dir: Path) -> str | None:
    """Return the id of the run, by the manifest of its newest launch, of which a folder has a copy."""
    try:
        tree = json.loads(read_small(run_dir / "manifest.json"))
        return str(tree["run_id"])
    except (OSError, ConfigError, ValueError, KeyError, TypeError):
        return None
