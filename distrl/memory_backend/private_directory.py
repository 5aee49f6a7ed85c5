"""Private directories for the time of a run; a later start removes those whose processes were killed.

The processes that own a directory hold a lock on a file in it, which the kernel releases when the last of them has
ended. A process number would not do: by now it could be another process's.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

PREFIX = "distrl-"
LOCK_NAME = "owner.lock"


def make_private_directory(parent: Path | None = None) -> tuple[Path, int]:
    """Make a directory that only this user may enter, and remove those that are abandoned beside it.

    Args:
        parent: By default TMPDIR or the system's equivalent.

    Returns:
        The directory, and the descriptor of its lock; a child that inherits it owns the directory, too.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_abandoned(parent)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    fresh = directory / f"{LOCK_NAME}.new"  # under its name only when it is locked
    descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, socket.gethostname().encode())
    fresh.rename(directory / LOCK_NAME)
    return directory, descriptor


def join_private_directory(name: str, parent: Path | None = None) -> tuple[Path, int]:
    """Make or open the directory that processes of this user on this host share under a name.

    Returns:
        The directory, and the descriptor of its lock, which every process that uses it holds in common.

    Raises:
        OSError: It cannot be made, or another user has made it.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_abandoned(parent)
    directory = parent / f"{PREFIX}{name}"
    while True:
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        descriptor = _share_lock(directory)
        if descriptor is not None:
            return directory, descriptor


def _share_lock(directory: Path) -> int | None:
    """Return the descriptor of the directory's lock, held in common; None if the directory was removed meanwhile."""
    try:
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(f"{directory} is not a private directory of this user")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(directory / LOCK_NAME, flags, 0o600)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.pwrite(descriptor, socket.gethostname().encode(), 0)
    if os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def leave_private_directory(directory: Path, descriptor: int) -> None:
    """Close the lock that `join_private_directory` returned; the last process removes the directory."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except BlockingIOError:  # others use it
        pass
    finally:
        os.close(descriptor)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's private directories in `parent` whose owners, on this host, have ended."""
    for directory in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, without a lock, or removed just now
            _remove_if_abandoned(directory)


def _remove_if_abandoned(directory: Path) -> None:
    """Remove a directory without an owner; raise OSError if it has an owner or no lock."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return
    descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(descriptor, 1024) == socket.gethostname().encode():  # another host's lock is unknown to this kernel
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(descriptor)
