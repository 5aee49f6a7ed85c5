"""Waiting for what other threads and processes bring about: for as long as it takes, and no longer."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_S = 180.0 if "CI" in os.environ else 60.0
"""Seconds until a wait is given up: never how long something may take. CI's machine is slow and shared."""
PAUSE_S = 0.01


def wait_until(condition: Callable[[], Found], what: str = "", patience_s: float = PATIENCE_S) -> Found:
    """Return the first true value of the condition; fail with its last value when the patience is over."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"after {patience_s:g} s still not: {what or 'true'}; last seen: {found!r}"
        time.sleep(PAUSE_S)
    return found
