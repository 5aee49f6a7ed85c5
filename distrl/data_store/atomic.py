"""Directories and files that are there whole or not at all, however the process or the machine ends.

What is written gets its name last: it is written under a temporary name beside its place, flushed to the disk and
renamed, and the rename is flushed. What is removed loses its name first. So a crash leaves at most temporary names.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from distrl.errors import naming

_TEMPORARY = ".tmp-"


def put_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Makes a directory that holds `files`.

    A directory can only take a name that is free. One that is there already steps aside to `replaced(path)` for the
    moment between two renames; whoever reads must look there, too. It stays there until it is removed.

    Args:
        path: Its parent must exist.
        files: Name -> content.
    """
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    temporary.mkdir()
    try:
        for name, content in files.items():
            _write(temporary / name, content)
        _flush(temporary)
    except OSError:  # a full disk needs the room more than anybody needs half of it
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if path.exists():
        remove_directory(replaced(path))
        path.rename(replaced(path))
    temporary.rename(path)
    _flush(path.parent)


def put_file(path: Path, content: bytes) -> None:
    """Makes or replaces one file."""
    with file(path) as opened:
        opened.write(content)


@contextmanager
def file(path: Path) -> Iterator[IO[bytes]]:
    """Makes or replaces one file with what is written inside the `with` block; not if that raises."""
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    try:
        with naming(path), temporary.open("wb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
    except Exception:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)
    _flush(path.parent)


def replaced(path: Path) -> Path:
    """Where the directory at `path` steps aside for its successor."""
    return path.with_name(f"{path.name}.replaced")


def remove_directory(path: Path) -> None:
    """Removes a directory with all its files; nothing if it is not there."""
    if path.exists():
        doomed = path.with_name(f"{_TEMPORARY}{path.name}.doomed")
        path.rename(doomed)
        _remove(doomed)


def remove_temporaries(directory: Path) -> None:
    """Removes what crashes have left in `directory`. Its one writer calls this before it writes."""
    for path in directory.glob(f"{_TEMPORARY}*"):
        _remove(path)


def _remove(path: Path) -> None:
    """A directory with all its files; of a link, whatever it leads to, the link alone."""
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
    """Makes renames inside `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
