"""All processes of one run: what they hold of memory, what they use of the processors, and their end.

Processes leave their group (Ray's do, a Redis that is a daemon does). Therefore orphans are handed to this process
while a run goes on (Linux: PR_SET_CHILD_SUBREAPER), so that our descendants are the run.
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
    """Of all processes of a run together.

    Attributes:
        pss_bytes: Proportional set size: memory that n processes share counts 1/n in each.
        cpu_s: Processor time, of those that are still there.
        processes: How many there are.
    """

    pss_bytes: int
    cpu_s: float
    processes: int


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Orphans among our descendants become our children meanwhile.

    Raises:
        OSError: The system has no such thing; it is Linux's.
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
    """Of this process, without those in `but` and without zombies, which are reaped where we inherited them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid in but:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def reap_orphans(child: int, but: frozenset[int] = frozenset()) -> None:
    """Takes note of the end of those that became our children; `child`, our own, is left to `subprocess`."""
    for process in psutil.Process().children():
        if process.pid != child and process.pid not in but:
            with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(process.pid, os.WNOHANG)


def usage(processes: list[psutil.Process]) -> Usage:
    """What they use by now; one that ends meanwhile counts nothing."""
    pss_bytes, cpu_s, count = 0, 0.0, 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            pss_bytes += process.memory_full_info().pss
            cpu_s += times.user + times.system
            count += 1
    return Usage(pss_bytes, cpu_s, count)


def end(but: frozenset[int], patience_s: float = 10.0) -> None:
    """Ends all descendants: SIGTERM, and SIGKILL for those that are there after `patience_s`."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        left = descendants(but)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(sign)
        until = time.monotonic() + patience_s
        while descendants(but) and time.monotonic() < until:
            time.sleep(0.05)
