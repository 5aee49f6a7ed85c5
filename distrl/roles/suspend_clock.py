"""The suspend clock: time while a process is stopped (SIGSTOP) or its machine suspended must not look like a hang."""

import threading
import time
from collections import deque
from collections.abc import Callable

NAP_S = 3.0
"""Longer gaps between two looks mean that the process did not run."""
NAPS = 16
"""Number of suspended periods that are kept."""


class AwakeClock:
    """Measures time in which this process ran, by looks at the monotonic clock.

    Safe for several threads, one of which must look at least every `NAP_S` seconds: a longer gap counts as suspended.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = clock()
        self._naps: deque[tuple[float, float]] = deque(maxlen=NAPS)  # from, to
        self._lock = threading.Lock()

    def look(self) -> float:
        """Return the time, in monotonic seconds."""
        with self._lock:
            now = self._clock()
            if now - self._seen > NAP_S:
                self._naps.append((self._seen, now))
            self._seen = now
            return now

    def age_s(self, since: float) -> float:
        """Return seconds awake since `since`, in monotonic seconds."""
        now = self.look()
        return now - since - sum(max(0.0, end - max(begin, since)) for begin, end in tuple(self._naps))
