"""Environments that fail; named as `tests.faults.environments:Absent`."""

import ctypes
import os
import subprocess
import threading
from argparse import ArgumentParser

from benchmarks.sleeping import Sleeping


class Absent(Sleeping):
    """Cannot be made while a file is there.

    Args:
        flag: The file.
    """

    def __init__(self, flag: str, step_s: float = 0.005) -> None:
        if os.path.exists(flag):
            raise RuntimeError(f"{flag} is there")
        super().__init__(step_s)


class Slow(Sleeping):
    """Takes long to be made, holding the interpreter as imports do, and its steps are quick."""

    def __init__(self, making_s: int, step_s: float = 0.005) -> None:
        ctypes.PyDLL(None).sleep(making_s)
        super().__init__(step_s)


class Stuck(Sleeping):
    """Its thousandth step, which the trial before the launch does not reach, takes longer than any test waits."""

    def step(self, action):
        self._all = getattr(self, "_all", 0) + 1
        if self._all == 1000:
            threading.Event().wait()
        return super().step(action)


class Bare(Sleeping):
    """Cannot be made where `sys.argv` holds more than a program: it parses it, as some modules do at their import."""

    def __init__(self, step_s: float = 0.005) -> None:
        ArgumentParser().parse_args()
        super().__init__(step_s)


class Paced(Sleeping):
    """Reads before every step how long it takes, so that a test can make it faster or slower.

    Args:
        file: A file with the seconds of a step.
    """

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def step(self, action):
        with open(self._file) as file:
            self._step_s = float(file.read())
        return super().step(action)


class Simulated(Sleeping):
    """Has a process of its own, which it ends when it is closed.

    Args:
        pids: A file that takes the number of each such process.
    """

    def __init__(self, pids: str, step_s: float = 0.005) -> None:
        super().__init__(step_s)
        self._simulator = subprocess.Popen(["sleep", "1000"])
        with open(pids, "a") as file:
            print(self._simulator.pid, file=file)

    def close(self):
        self._simulator.kill()
        self._simulator.wait()
        super().close()
