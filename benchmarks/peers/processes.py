"""All processes of one run: their memory, their processor time, and their end.

Some processes leave their group, such as Ray's or a Redis daemon. Therefore this process adopts orphans during a run
(Linux: PR_SET_CHILD_SUBREAPER), so that the run consists of our descendants.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

_SET_CHILD_SUBREAPER = 36  # of prctl(2)


@dataclass(frozen=True)
class Usage:
    """Resources of all processes of a run together.

    Attributes:
        pss_bytes: Proportional set size: memory that n processes share counts 1/n in each.
        cpu_s: Processor time of living processes.
        processes: Number of processes.
    """

    pss_bytes: int
    cpu_s: float
    processes: int


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Adopt orphans among our descendants while inside.

    Raises:
        OSError: The system lacks this function of Linux.
    """
    _prctl(1)
    try:
        yield
    finally:
        _prctl(0)


def _prctl(on: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, on, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(but: frozenset[int] = frozenset()) -> list[psutil.Process]:
    """Return the descendants of this process without those in `but` and without zombies; adopted ones are reaped."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid in but:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def reap_orphans(child: int, but: frozenset[int] = frozenset()) -> None:
    """Reap adopted children that have ended; `child`, our own, is left to `subprocess`."""
    for process in psutil.Process().children():
        if process.pid != child and process.pid not in but:
            with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(process.pid, os.WNOHANG)


def usage(processes: list[psutil.Process]) -> Usage:
    """Return the resources of all processes now; one that ends meanwhile does not count."""
    pss_bytes, cpu_s, count = 0, 0.0, 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            pss_bytes += process.memory_full_info().pss
            cpu_s += times.user + times.system
            count += 1
    return Usage(pss_bytes, cpu_s, count)


def end(but: frozenset[int], patience_s: float = 10.0) -> None:
    """End all descendants: SIGTERM, and SIGKILL for those that are alive after `patience_s`."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        left = descendants(but)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(sign)
        until = time.monotonic() + patience_s
        while descendants(but) and time.monotonic() < until:
            time.sleep(0.05)
