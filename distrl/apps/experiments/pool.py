"""Trainings beside each other, each a process of its own with its share of this machine's cores."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.process_group import end_group, has_ended
from distrl.roles.lifeline import LIFELINE_VARIABLE, Lifeline

GRACE_S = 60.0
"""Time in which a training that is asked to stop stores its last checkpoint."""
_POLL_S = 0.1


@dataclass
class _Place:
    """A share of the cores, and the training in it.

    Attributes:
        cores: Numbers of its cores; empty where the system cannot assign them.
        stop_by: Monotonic time at which it is killed.
    """

    cores: frozenset[int]
    process: "subprocess.Popen[bytes] | None" = None
    name: str = ""
    stop_by: float = math.inf


class Pool:
    """Runs up to so many trainings at once. Leaving the context stops those that still run, and waits for them.

    Should this process be killed, its trainings stop by themselves.

    Args:
        places: Most trainings at once.
        end_s: Longest time that the end of a training waits for others: `Configuration.end_s`.
    """

    def __init__(self, places: int, end_s: float = 0.0) -> None:
        self._grace_s = GRACE_S + end_s
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._places = [_Place(frozenset(share)) for share in shares(cores, places)]
        self._lifeline = Lifeline()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        while self.running:
            for _name, _code in self.ended():
                pass
            time.sleep(_POLL_S)
        self._lifeline.close()

    @property
    def running(self) -> list[str]:
        """Names of the trainings that have not been reported as ended."""
        return [place.name for place in self._places if place.process is not None]

    @property
    def has_room(self) -> bool:
        return any(place.process is None for place in self._places)

    def start(self, name: str, arguments: Sequence[str], log: Path, inherited: Sequence[int] = ()) -> None:
        """Start `distrl ARGUMENTS` in a free place; its output is appended to `log`.

        Args:
            inherited: File descriptors that it keeps open.

        Raises:
            OSError: The log cannot be written, or no process can be started.
        """
        place = next(place for place in self._places if place.process is None)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "distrl", *arguments],  # -P: as with the command `distrl`
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, LIFELINE_VARIABLE: str(self._lifeline.read_fd)},
                pass_fds=(self._lifeline.read_fd, *inherited),
                start_new_session=True,  # Ctrl-C reaches this process alone, which stops them in order
            )
        place.process, place.name, place.stop_by = process, name, math.inf
        if place.cores:
            with contextlib.suppress(OSError):  # it has ended, or another program has changed what may be used
                os.sched_setaffinity(process.pid, place.cores)  # at once: what it starts later inherits them

    def ended(self) -> Iterator[tuple[str, int]]:
        """Yield the name and exit code of every training that has ended, once; kill those that do not stop."""
        for place in self._places:
            if place.process is not None and time.monotonic() > place.stop_by:
                end_group(place.process)  # not kill(), which may reap it, and then its group is not known any more
            if place.process is not None and has_ended(place.process):
                process, place.process = place.process, None
                end_group(process)
                yield place.name, process.returncode

    def stop(self, name: str | None = None) -> None:
        """Make a training, or all of them, stop after a last checkpoint, within `GRACE_S` and `end_s`."""
        for place in self._places:
            chosen = name is None or place.name == name
            process = place.process
            if not chosen or process is None or has_ended(process):
                continue
            if place.stop_by == math.inf:  # a second SIGTERM would cost the last checkpoint
                os.kill(process.pid, signal.SIGTERM)  # not send_signal(), which may reap it
                place.stop_by = time.monotonic() + self._grace_s


def shares(cores: Sequence[int], count: int) -> list[list[int]]:
    """Deal cores out evenly; where there are fewer than shares, several shares have the same core."""
    if not cores:
        return [[] for _ in range(count)]
    return [[*cores[index::count]] or [cores[index % len(cores)]] for index in range(count)]
