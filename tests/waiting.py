"""Waiting for what other threads and processes bring about: for as long as it takes, and no longer.

No other file of tests/ sleeps; `tests/test_architecture.py` keeps that.
"""

import os
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_S = 240.0 if "CI" in os.environ else 120.0
"""Seconds until a wait is given up, many times what it takes on an idle machine: CI's may be slow and shared."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.05


def wait_until(condition: Callable[[], Found], what: str = "", patience_s: float = PATIENCE_S) -> Found:
    """Return the first true value of the condition; fail with its last value when the patience is over."""
    deadline, pause_s = time.monotonic() + patience_s, SHORTEST_PAUSE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"after {patience_s:g} s still not: {what or 'true'}; last seen: {found!r}"
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
    return found


def lasts(seconds: float) -> None:
    """Take as long as what this stands for: slow work, an outage, a measured interval. Never a wait for an event."""
    time.sleep(seconds)
