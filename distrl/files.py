"""Files that others may have put there: regular ones alone are opened, and small ones are read up to a bound."""

import errno
import os
import stat
from collections.abc import Mapping
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from distrl.errors import ConfigError

MOST_BYTES = 2**20
MOST_POLICY_BYTES = 2**31
"""Largest file of a policy that is read, as large as a graph can be."""
Model = TypeVar("Model", bound=BaseModel)


class NotAFileError(OSError):
    """A link, a pipe, a socket or a device lies in place of a file."""


def open_regular(path: str | Path, *, links: bool = True, folder: int | None = None) -> BufferedReader:
    """Open a regular file for reading; a pipe would block its reader for ever, and a device may never end.

    Args:
        links: Whether the last component may be a link.
        folder: Descriptor of the folder to which a relative path belongs; None: the working directory.

    Raises:
        NotAFileError: It is no regular file.
        OSError: It cannot be opened, or is a folder.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP and not links:
            raise NotAFileError(errno.ELOOP, "it is a link", str(path)) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise NotAFileError(errno.EINVAL, "it is not a regular file", str(path))
    return open(descriptor, "rb")


def read_regular(path: Path, most: int, *, links: bool = True) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        ConfigError: The file is larger than `most` bytes.
        NotAFileError: It is no regular file; or a link, without `links`.
        OSError: It cannot be read.
    """
    with open_regular(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read() if size <= most else b""
    if max(size, len(content)) > most:
        raise ConfigError(f"{path} is damaged: it has {size:,} bytes, more than {most:,}")
    return content


def read_small(path: Path, most: int = MOST_BYTES, *, links: bool = True) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        ConfigError: The file is larger, or it is no regular file.
        OSError: It cannot be read.
    """
    try:
        return read_regular(path, most, links=links)
    except NotAFileError as error:
        raise ConfigError(f"{path} {(error.strerror or '').removeprefix('it ')}") from error


def read_given(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file that a user names: a regular one, or a pipe of the shell, as in `distrl train <(…)`.

    Raises:
        ConfigError: It is larger than `most`, or something else.
        OSError: It cannot be read.
    """
    if not _is_of_the_shell(path):
        return read_small(path, most)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{path} has more than {most:,} bytes")
    return content


def _is_of_the_shell(path: Path) -> bool:
    """Whether a path names a descriptor of this process, or of the shell: /dev/stdin, /dev/fd/9, /proc/self/fd/9."""
    place = path.absolute()
    is_descriptor = fnmatchcase(str(place), "/proc/*/fd/*") or place.parent == Path("/dev/fd")
    return is_descriptor or place == Path("/dev/stdin")


def read_end(path: Path, most: int, begin: int = 0) -> bytes:
    """Return the last bytes of a regular file, at most `most`; of a file that is cut so, whole lines if there are any.

    Args:
        begin: Bytes before this one are left out.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with open_regular(path) as file:
        start = max(file.seek(0, os.SEEK_END) - most, begin)
        file.seek(max(start - 1, begin))
        read = file.read(most + 1)
    return read if start == begin else read.partition(b"\n")[2] or read[1:]


def check_place(path: Path, option: str, *, force: bool) -> None:
    """Refuse to write a file for the user in place of a folder, a pipe, a socket or a device, or unasked of a file.

    A file is renamed to its place: what lies there, such as /dev/null, would be gone.

    Args:
        option: The option that names the place.
        force: The user wants a file replaced.

    Raises:
        ConfigError: One line with the place.
    """
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a directory; name a file in it")
    if path.exists() and (not path.is_file() or path.absolute().parent == Path("/dev") or _is_of_the_shell(path)):
        raise ConfigError(f"{option} {path} is no file, and one would take its place; choose another {option}")
    if path.exists() and not force:
        raise ConfigError(f"{option} {path} is there already; add --force to replace it, or choose another {option}")


def read_model(model: type[Model], path: Path) -> Model:
    """Read a model from a JSON file; whole numbers of more than 64 bits, which no float and no index holds, are damage.

    Raises:
        ConfigError: The file cannot be read, or is damaged.
    """
    try:
        found = model.model_validate_json(read_small(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ConfigError(f"{path} is damaged: {where or 'the file'}: {problem['msg']}") from error
    for name, value in found:
        if _is_too_large(value):
            raise ConfigError(f"{path} is damaged: {name}: a number of more than 64 bits")
    return found


def _is_too_large(value: object) -> bool:
    if isinstance(value, int):
        return not -(2**63) <= value < 2**63
    if isinstance(value, Mapping):
        return any(map(_is_too_large, value.values()))
    return isinstance(value, list | tuple) and any(map(_is_too_large, value))
