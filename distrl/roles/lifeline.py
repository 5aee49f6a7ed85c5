"""The lifeline ends roles with their parent: a role holds the read end of a pipe that only the parent keeps open."""

import atexit
import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from distrl.process_group import end_own_group

LIFELINE_VARIABLE = "DISTRL_LIFELINE_FD"
GRACE_S = 8.0
_CLUSTER_GRACE_S = 4.0
_POLL_S = 0.2


class Lifeline:
    """The parent's side. Children inherit `read_fd`; the write end closes when the parent ends, in whatever way."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()

    def close(self) -> None:
        os.close(self._write_fd)
        os.close(self.read_fd)


def watch_lifeline() -> None:
    """Send SIGTERM to this process when its parent is gone, and exit after `GRACE_S` seconds. No-op by hand.

    Then the end of this process is that of its group, too, which the parent would have ended.
    """
    value = os.environ.get(LIFELINE_VARIABLE)
    if value is None:
        return
    gone = threading.Event()
    # Libraries register their own ends later, mostly, and what is registered last comes first.
    atexit.register(_end_orphans, gone, os.getpid())
    threading.Thread(target=_wait_for_end, args=(int(value), gone), name="lifeline", daemon=True).start()


def _wait_for_end(read_fd: int, gone: threading.Event) -> None:
    while os.read(read_fd, 1):  # never written to: read returns only at the end of the pipe
        pass
    gone.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    end_own_group(os.getpid())
    os._exit(1)


def _end_orphans(gone: threading.Event, leader: int) -> None:
    if gone.is_set():
        end_own_group(leader)


def _guard(directory: str, parent: int) -> None:
    """Once standard input ends, wait for the processes in `directory`, then kill them, then remove it."""
    not_theirs = {parent, os.getpid()}  # both hold its lock
    while sys.stdin.buffer.read(65536):
        pass
    deadline = time.monotonic() + _CLUSTER_GRACE_S
    while _at_work_in(directory) - not_theirs and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for pid in _at_work_in(directory) - not_theirs:
        with contextlib.suppress(ProcessLookupError):  # it has ended just now
            os.kill(pid, signal.SIGKILL)
    for _ in range(50):  # again while dying processes still write into it
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):
            return
        time.sleep(_POLL_S)


def _at_work_in(directory: str) -> set[int]:
    """Processes with an open file in `directory`; none where there is no /proc."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # ended, closed, or another user's
            if os.readlink(link).startswith(f"{directory}{os.sep}"):
                found.add(int(link.parts[2]))
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _guard(os.path.realpath(sys.argv[1]), os.getppid())
