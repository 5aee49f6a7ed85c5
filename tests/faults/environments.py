"""Environments that fail; named as `tests.faults.environments:Absent`."""

import os
import time

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


class Stuck(Sleeping):
    """Its hundredth step takes longer than anybody waits."""

    def step(self, action):
        self._all = getattr(self, "_all", 0) + 1
        if self._all == 100:
            time.sleep(1000.0)
        return super().step(action)
