"""Removes the directory of a run that has ended, whole; links are removed and never followed."""

import os
import secrets
import shutil
from pathlib import Path

from distrl.data_store.atomic import TEMPORARY
from distrl.errors import ConfigError
from distrl.runs.run_directory import at_rest


def remove_run_directory(root: Path, run_dir: Path) -> None:
    """Rename the directory away, so that no list shows half of it, and remove it.

    Args:
        root: Folder of runs, in which `run_dir` lies at any depth; no folder between them may be a link.

    Raises:
        ConfigError: The run has not ended, the directory is not below `root`, or it cannot be removed.
    """
    if not run_dir.is_relative_to(root) or run_dir == root or ".." in run_dir.relative_to(root).parts:
        raise ConfigError(f"{run_dir.name} is the folder that the list is of; remove it by hand")
    doomed = f"{TEMPORARY}{secrets.token_hex(6)}.removed"
    parts = run_dir.relative_to(root).parts
    if run_dir.is_symlink():
        raise ConfigError(f"{run_dir} is a link; remove it by hand")
    try:
        above = _opened(root, parts[:-1])
        try:
            with at_rest(run_dir):
                os.rename(parts[-1], doomed, src_dir_fd=above, dst_dir_fd=above)
            shutil.rmtree(doomed, dir_fd=above)
        finally:
            os.close(above)
    except FileNotFoundError as error:
        raise ConfigError(f"{run_dir} is not there any more") from error
    except OSError as error:
        raise ConfigError(f"{run_dir} cannot be removed whole: {error.filename}: {error.strerror}") from error


def _opened(root: Path, parts: tuple[str, ...]) -> int:
    """Return a descriptor of a folder below `root`; raise OSError if one on the way is a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    folder = os.open(root, flags)
    for part in parts:
        try:
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder
