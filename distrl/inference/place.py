"""The private directory in which actors of one host and one launch find their inference server."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distrl.memory_backend.private_directory import join_private_directory, leave_private_directory

_SHARED_MEMORY = Path("/dev/shm")
_WAITING = "waiting.lock"


@contextmanager
def host_directory(launch: str) -> Iterator[Path]:
    """While inside, this process uses the directory, which the last process removes.

    It is in memory where the system has such a place. A later start removes it if all its processes were killed.

    Args:
        launch: Token of the launch.

    Raises:
        OSError: It cannot be made, or another user has made it.
    """
    name = f"inference-{launch}"
    try:
        directory, lock = join_private_directory(name, _SHARED_MEMORY)
    except OSError:  # the system has none, or a container does not let this user write there
        directory, lock = join_private_directory(name)
    try:
        yield directory
    finally:
        leave_private_directory(directory, lock)


@contextmanager
def held_alone(directory: Path) -> Iterator[bool]:
    """While inside, this process alone is the server in that directory; yields False if another process is.

    The kernel frees the place when the process ends.
    """
    with (directory / "server.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


@contextmanager
def waiting_for_place(directory: Path) -> Iterator[None]:
    """While inside, this process waits to be the server in that directory, which the present one can tell."""
    with (directory / _WAITING).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def is_awaited(directory: Path) -> bool:
    """Return whether another process waits to be the server in that directory."""
    with (directory / _WAITING).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def socket_path(directory: Path) -> Path:
    """Return the path of the server's socket."""
    return directory / "socket"
