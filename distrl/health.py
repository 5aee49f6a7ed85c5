"""Heartbeats in files, by which a probe sees that distrl lives here, such as a container's or kubelet's.

A process writes the monotonic time once a second into a file of its own, named KIND.PID, in the directory that
`DISTRL_HEALTH_DIR` names; without the variable it writes nothing. It holds a lock on the file until it ends. A probe
reads these files alone: it depends on no server, and imports nothing of the program.
"""

import fcntl
import getopt
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from distrl import role_kinds
from distrl.errors import ConfigError

DIRECTORY_VARIABLE = "DISTRL_HEALTH_DIR"
BEAT_S = 1.0
WITHIN_S = 30.0
"""Default of the greatest age of a heartbeat."""
KINDS = ("supervisor", *role_kinds.KINDS, "actors", "dashboard", "serve")
"""Kinds of processes: that of `distrl train`, roles, and those of `distrl actors` and `distrl dashboard`."""
_DIGITS = 24
log = logging.getLogger(__name__)


class Beats:
    """The heartbeats of this process; `beat` writes one."""

    def __init__(self, directory: Path, kind: str) -> None:
        """Write the first heartbeat.

        Raises:
            ConfigError: The directory cannot be written to.
        """
        self._path = directory / f"{kind}.{os.getpid()}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)  # a probe holds it for a moment at most
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"{DIRECTORY_VARIABLE} {directory}: {reason}; name one that can be written to") from error
        self._told = False
        self.beat()

    def beat(self) -> None:
        """Write the time; a failure is logged once, and makes the probe fail."""
        try:
            os.pwrite(self._file, f"{time.monotonic():0{_DIGITS}.3f}".encode(), 0)
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("no heartbeat in %s: %s", self._path, error)

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # without its lock it is ignored
            self._path.unlink()
        os.close(self._file)


@contextmanager
def opened(kind: str) -> Iterator[Beats | None]:
    """Yield the heartbeats of this process, or None where no probe reads them."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        yield None
        return
    beats = Beats(Path(directory), kind)
    try:
        yield beats
    finally:
        beats.close()


@contextmanager
def beating(kind: str) -> Iterator[None]:
    """While inside, write heartbeats from a thread of their own: neither Redis nor a long step delays them."""
    with opened(kind) as beats:
        if beats is None:
            yield
            return
        end = threading.Event()

        def go_on() -> None:
            while not end.wait(BEAT_S):
                beats.beat()

        thread = threading.Thread(target=go_on, name="health", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def ages_s(directory: Path) -> dict[str, float]:
    """Return for each kind of process here the age in seconds of its newest heartbeat.

    Files of processes that have ended are ignored: their parent starts them again, or ends as well.

    Raises:
        OSError: The directory exists, and cannot be read.
    """
    ages: dict[str, float] = {}
    for path in sorted(directory.iterdir()) if directory.exists() else ():
        kind = next((kind for kind in KINDS if path.name.partition(".")[0] == kind), None)
        with suppress(OSError, ValueError):  # it has ended just now, or is no file of ours
            if kind is not None and (text := _text_if_held(path)) is not None:
                age_s = time.monotonic() - float(text)
                ages[kind] = min(age_s, ages.get(kind, age_s))
    return ages


def _text_if_held(path: Path) -> str | None:
    """Return the contents of a file on which a process holds the lock, which it loses however it ends."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
    return None


def judge(directory: Path, wanted: str | None, within_s: float) -> tuple[bool, str]:
    """Return whether the processes here are alive, and one line that says why.

    Args:
        wanted: The kind that must be there, and is the only one that is judged; None: all that are there.
        within_s: Greatest age of a heartbeat. Of several processes of one kind, one is enough: their parent watches
            the others.
    """
    try:
        ages = ages_s(directory)
    except OSError as error:
        return False, f"{directory} cannot be read: {error.strerror}"
    judged = {kind: age_s for kind, age_s in ages.items() if wanted in (None, kind)}
    if not judged:
        return False, f"no {wanted or 'process of distrl'} has a heartbeat in {directory}"
    late = {kind: age_s for kind, age_s in judged.items() if age_s > within_s}
    line = ", ".join(f"{kind} {age_s:.1f} s ago" for kind, age_s in (late or judged).items())
    return not late, f"no heartbeat within {within_s:g} s: {line}" if late else f"heartbeats: {line}"


def probe(wanted: str | None, within_s: float) -> int:
    """Print the judgement on the directory that the environment names; return 0 if all is well, else 1.

    Raises:
        ConfigError: The environment names none.
    """
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        raise ConfigError(
            f"set {DIRECTORY_VARIABLE} to the directory in which distrl's processes have their heartbeats"
        )
    healthy, line = judge(Path(directory), wanted, within_s)
    print(line)
    return 0 if healthy else 1


def quick_probe(arguments: Sequence[str]) -> int | None:
    """Run `distrl health` without the command line's imports; None if the whole command line must answer."""
    try:
        options, rest = getopt.getopt([*arguments], "", ["role=", "within="])
        named = dict(options)
        wanted = next(kind for kind in (None, *KINDS) if kind == named.get("--role"))
        within_s = float(named.get("--within", WITHIN_S))
    except (getopt.GetoptError, StopIteration, ValueError):
        return None
    if rest or not within_s > 0.0 or not os.environ.get(DIRECTORY_VARIABLE):
        return None
    return probe(wanted, within_s)
