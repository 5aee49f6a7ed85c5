"""A Redis that goes and comes back."""

import os
import signal
import subprocess
from pathlib import Path

import redis

from distrl.memory_backend.embedded_redis import find_server
from tests.waiting import lasts, wait_until


class OwnRedis:
    """A redis-server on a port of 127.0.0.1 that keeps what it is told in an append-only file.

    Args:
        directory: Takes the file; made if missing.
        appendfsync: "always" or "everysec".
        binary: The server; None: that of this machine.
    """

    def __init__(
        self, directory: Path, port: int, appendfsync: str = "everysec", *, binary: Path | None = None
    ) -> None:
        self._binary = binary
        self.port = port
        self._directory = directory
        self._appendfsync = appendfsync
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> "OwnRedis":
        """Returns once it answers, with all that its file holds."""
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._directory),
            "logfile": str(self._directory / "log"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
            "maxmemory": str(2**28),
            "maxmemory-policy": "noeviction",
        }
        command = [
            self._binary or find_server(),
            *(part for name, value in settings.items() for part in (f"--{name}", value)),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        with redis.Redis(port=self.port) as client:
            wait_until(lambda: _answers(client), "Redis answers")
        return self

    def lose_power(self, unwritten_s: float) -> None:
        """Ends it as its machine would: what it was told in the last seconds is not in the file."""
        (file,) = (path for path in self._directory.rglob("*.aof") if "base" not in path.name)
        written = file.stat().st_size
        lasts(unwritten_s)
        self.end(signal.SIGKILL)
        os.truncate(file, written)

    def end(self, number: int = signal.SIGTERM) -> None:
        """By a signal: SIGTERM lets it write its file to the end, SIGKILL does not."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=60.0)
            self._process = None


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
        return False
