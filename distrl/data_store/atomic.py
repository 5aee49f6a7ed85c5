"""Atomic directories and files: after a crash they exist whole or not at all.

Content is written under a temporary name in the same folder, flushed to the disk and renamed, and the rename is
flushed. Removal renames first. So a crash leaves at most temporary names.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from distrl.errors import naming

TEMPORARY = ".tmp-"
"""Begins the names of files and directories that are not complete."""


def put_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Create a directory with `files`, or replace it.

    An existing directory is renamed to `replaced(path)` between two renames, where readers must look too. It stays
    there until it is removed.

    Args:
        path: Its parent must exist.
        files: Name -> content.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    temporary.mkdir()
    try:
        for name, content in files.items():
            _write(temporary / name, content)
        _flush(temporary)
    except BaseException:  # also Ctrl-C: half of a directory is useless, and a full disk needs the room
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if path.exists():
        remove_directory(replaced(path))
        path.rename(replaced(path))
    temporary.rename(path)
    _flush(path.parent)


def put_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """Create or replace one file; only its owner may read a private one."""
    with file(path, private=private) as opened:
        opened.write(content)


@contextmanager
def file(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Create or replace one file with what the `with` block writes, unless the block raises."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    mode = 0o600 if private else 0o666
    try:
        # A link under the temporary name is refused: it would have another file written.
        with (
            naming(path),
            open(temporary, "wb", opener=lambda at, flags: os.open(at, flags | os.O_NOFOLLOW, mode)) as opened,
        ):
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(path)
    except BaseException:  # also Ctrl-C
        temporary.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def replaced(path: Path) -> Path:
    """Return the temporary place of a directory that is being replaced."""
    return path.with_name(f"{path.name}.replaced")


def remove_directory(path: Path) -> None:
    """Remove a directory with all its files, if it exists."""
    if path.exists():
        doomed = path.with_name(f"{TEMPORARY}{path.name}.doomed")
        path.rename(doomed)
        _remove(doomed)


def remove_temporaries(directory: Path, spare: str = "") -> None:
    """Remove the remains of crashes in `directory`. Its one writer calls this before it writes.

    Args:
        spare: Name of a file in it that another thread may be writing.
    """
    for path in directory.glob(f"{TEMPORARY}*"):
        if path.name != f"{TEMPORARY}{spare}":
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a directory with all its files, or a file, or a link but not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _write(path: Path, content: bytes) -> None:
    with naming(path), path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush(directory: Path) -> None:
    """Make renames inside `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
