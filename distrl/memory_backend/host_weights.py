"""Weights in a file that the roles of one host share: one of them fetches a version from Redis, the others read it."""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from distrl.config.schedules import Progress
from distrl.memory_backend.engine import RunStore
from distrl.memory_backend.private_directory import (
    join_private_directory,
    leave_private_directory,
    make_private_directory,
)
from distrl.memory_backend.weights import FIELDS, Published, WeightStore

HOST_WEIGHTS_VARIABLE = "DISTRL_HOST_WEIGHTS"
"""Environment variable with the directory that the roles of a host share."""
PATIENCE_S = 30.0
"""Longest wait for the role that fetches: it may hang, or be stopped."""
_LOOK_S = 0.002
_IDENTITY = ("version", "server_time_s")
_SHARED_MEMORY = Path("/dev/shm")
log = logging.getLogger(__name__)


class SharedDirectory:
    """A private directory for the weights of one launch of a run, in memory where the system has such a place.

    Attributes:
        path: The directory.
    """

    def __init__(self) -> None:
        with suppress(OSError):  # a container may not let this user write there
            self.path, self._lock = make_private_directory(_SHARED_MEMORY)
            return
        self.path, self._lock = make_private_directory()

    def close(self) -> None:
        """Remove the directory; roles that are still alive fetch their weights from Redis."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


@contextmanager
def sharing_weights(launch: str) -> Iterator[None]:
    """While inside, a role of this process shares the weights of a launch with its other roles on this host.

    For roles without a parent on their host, as on Ray. Where no directory can be made, the role fetches alone.
    """
    with ExitStack() as cleanup:
        with suppress(OSError):  # a container may not let this user write there
            directory, lock = join_private_directory(f"weights-{launch}", _SHARED_MEMORY)
            cleanup.callback(leave_private_directory, directory, lock)
            os.environ[HOST_WEIGHTS_VARIABLE] = str(directory)
            cleanup.callback(os.environ.pop, HOST_WEIGHTS_VARIABLE)
        yield


class HostWeights(WeightStore):
    """The hash `weights`, of which each version crosses the network once for all roles that share `directory`.

    A version is known by its number and by the time of its publication: after a fail-over that has lost versions, a
    number can be given again.
    """

    def __init__(self, run: RunStore, directory: Path) -> None:
        super().__init__(run)
        self._file, self._new, self._lock = (directory / name for name in ("weights", "weights.new", "weights.lock"))
        self._refused = False
        self._patience_s = PATIENCE_S

    def fetch(self) -> Published | None:
        """Return the newest weights, from the file if it has them, else from Redis into the file."""
        if self._refused:
            return super().fetch()
        try:
            return self._shared()
        except OSError as error:  # for example a full disk
            log.warning("this role fetches its weights alone: it cannot share those of this host (%s)", error)
            self._refused = True
            return super().fetch()

    def _shared(self) -> Published | None:
        if (held := self._read(self._newest())) is not None:
            self._patience_s = PATIENCE_S
            return held
        deadline = time.monotonic() + self._patience_s
        with self._lock.open("ab") as lock:
            while not _is_locked_by_us(lock):
                if time.monotonic() >= deadline:
                    self._patience_s = 0.0  # until a role of this host has fetched again
                    return super().fetch()
                time.sleep(_LOOK_S)
            self._patience_s = PATIENCE_S
            if (held := self._read(self._newest())) is not None:  # fetched meanwhile
                return held
            published_at, *fields = self._engine.call("HMGET", self._keys.weights, "server_time_s", *FIELDS)
            fetched = self._published(*fields)
            if fetched is not None:
                self._write(_first_line(fields[0], published_at), fetched)
            return fetched

    def _newest(self) -> bytes:
        return _first_line(*self._engine.call("HMGET", self._keys.weights, *_IDENTITY))

    def _read(self, newest: bytes) -> Published | None:
        """Return the file's weights if they are the newest."""
        try:
            with self._file.open("rb") as file:
                if file.readline() != newest:
                    return None
                progress = Progress(*map(int, file.readline().split()))
                return Published(int(newest.split()[0]), file.read(), progress)
        except FileNotFoundError:
            return None

    def _write(self, newest: bytes, weights: Published) -> None:
        """Replace the file as a whole; only the role that holds the lock writes."""
        try:
            with self._new.open("wb") as file:
                file.write(newest + b"%d %d %d\n" % weights.progress)
                file.write(weights.blob)
        except OSError:
            self._new.unlink(missing_ok=True)  # memory that is nearly used up is not to be kept
            raise
        self._new.rename(self._file)


def _first_line(version: bytes | None, server_time_s: bytes | None) -> bytes:
    return b"%s %s\n" % (version or b"0", server_time_s or b"0")


def _is_locked_by_us(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
