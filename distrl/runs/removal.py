"""Removes the directory of a run that has ended, whole; links are removed and never followed."""

import os
import re
import secrets
import shutil
from pathlib import Path

from distrl.data_store.atomic import TEMPORARY
from distrl.errors import ConfigError
from distrl.runs.run_directory import at_rest

MOST_DEPTH = 100
"""Deepest folder of a run that is removed; Python's own removal ends at a thousand with half of the run gone."""


def remove_run_directory(root: Path, run_dir: Path) -> None:
    """Rename the directory away, so that no list shows half of it, and remove it.

    Args:
        root: Folder of runs, in which `run_dir` lies at any depth; no folder between them may be a link.

    Raises:
        ConfigError: The run has not ended, the directory is not below `root`, it holds other runs or a mounted file
            system, or it cannot be removed.
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
                _require_own(run_dir)
                os.rename(parts[-1], doomed, src_dir_fd=above, dst_dir_fd=above)
            shutil.rmtree(doomed, dir_fd=above)
        finally:
            os.close(above)
    except FileNotFoundError as error:
        raise ConfigError(f"{run_dir} is not there any more") from error
    except OSError as error:
        raise ConfigError(f"{run_dir} cannot be removed whole: {error.filename}: {error.strerror}") from error


def _require_own(run_dir: Path) -> None:
    """Raise ConfigError if another run, which may be training, or a mounted file system lies in the directory."""
    device, mounted = run_dir.stat().st_dev, _mounts()
    for folder, _, files in os.walk(run_dir, onerror=_raise):
        if folder.count(os.sep) - str(run_dir).count(os.sep) > MOST_DEPTH:
            raise ConfigError(f"{run_dir} has folders more than {MOST_DEPTH} deep; remove it by hand")
        if folder != str(run_dir) and "run.json" in files:
            raise ConfigError(f"{run_dir} holds another run, {folder}; move or remove that one first")
        if os.lstat(folder).st_dev != device or (mounted and os.path.realpath(folder) in mounted):
            raise ConfigError(f"{folder} is a mounted file system; unmount it first")


def _mounts() -> set[str]:
    """Return where file systems are mounted, which the number of the device does not tell of a bind mount."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:  # not Linux
        return set()
    # Spaces, tabs, line breaks and backslashes of a path are written as octal numbers.
    places = [re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), line.split()[4]) for line in lines]
    return {os.fsdecode(place) for place in places}


def _raise(error: OSError) -> None:
    raise error


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
