"""Time that passes while a process is stopped (SIGSTOP) or its machine suspended must not look as if somebody hung."""

import threading
import time
from collections import deque
from collections.abc import Callable

NAP_S = 3.0
"""Nobody asks less often than that unless the process did not run."""
NAPS = 16
"""That are remembered."""


class AwakeClock:
    """How much time has passed while this process was running, by looks at the monotonic clock.

    Safe for several threads, one of which must look at least every `NAP_S` seconds: what passes between two looks that
    are further apart was slept through.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = clock()
        self._naps: deque[tuple[float, float]] = deque(maxlen=NAPS)  # from, to
        self._lock = threading.Lock()

    def look(self) -> float:
        """Now, in monotonic seconds."""
        with self._lock:
            now = self._clock()
            if now - self._seen > NAP_S:
                self._naps.append((self._seen, now))
            self._seen = now
            return now

    def age_s(self, since: float) -> float:
        """Seconds awake between `since`, in monotonic seconds, and now."""
        now = self.look()
        return now - since - sum(max(0.0, end - max(begin, since)) for begin, end in tuple(self._naps))
