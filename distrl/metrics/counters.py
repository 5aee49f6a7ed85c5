"""Counters of a role: shares of its time by name, statistics of updates, and a histogram of policy lag."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate, chain

import numpy as np

from distrl.metrics.snapshot import INTERVAL, Snapshot

Clock = Callable[[], float]


class Waits:
    """Shares of a role's time by name. Threads may measure at the same time, each under its own names."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        self._seconds: dict[str, float] = {}
        self._totals_s: dict[str, float] = {}
        self._open: dict[str, float] = {}  # name -> when the measurement that is under way began

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count the time inside the `with` block under `name`."""
        with self._lock:
            self._open[name] = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._count(name, self._open.pop(name), self._clock())

    def under_way_s(self, name: str) -> float:
        """Return the seconds since an open measurement began or since the last call of `shares`; 0 if there is none."""
        with self._lock:
            began = self._open.get(name)
            return 0.0 if began is None else self._clock() - began

    def total_s(self, name: str) -> float:
        """Return the seconds counted under a name since the start, those of an open measurement included."""
        with self._lock:
            began = self._open.get(name)
            under_way_s = 0.0 if began is None else self._clock() - began
            return self._totals_s.get(name, 0.0) + under_way_s

    def shares(self) -> dict[str, float]:
        """Return name -> share of the wall time since the last call (at first: since the start), 0 to 1 each.

        An open measurement counts up to now, so that an endless wait shows.
        """
        with self._lock:
            now = self._clock()
            for name, began in self._open.items():
                self._count(name, began, now)
                self._open[name] = now
            elapsed_s = now - self._since
            shares = {name: seconds / elapsed_s if elapsed_s > 0 else 0.0 for name, seconds in self._seconds.items()}
            self._seconds = dict.fromkeys(self._seconds, 0.0)
            self._since = now
            return shares

    def _count(self, name: str, began: float, ended: float) -> None:
        for seconds in (self._seconds, self._totals_s):
            seconds[name] = seconds.get(name, 0.0) + ended - began


class IntervalStatistics:
    """Mean, standard deviation, minimum and maximum of each metric over the updates since the last snapshot.

    They are of its finite values: an infinite one, as of a divergence, would leave no deviation.
    """

    def __init__(self) -> None:
        self._updates: list[Mapping[str, float]] = []

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of one update, of which "finite" is none. Kept, not copied."""
        self._updates.append(metrics)

    def snapshot(self) -> Snapshot:
        """Return ``interval/<metric>/mean``, std, min, max of the updates in which it was finite, and begin anew."""
        updates, self._updates = self._updates, []
        names = [name for name in dict.fromkeys(chain.from_iterable(updates)) if name != "finite"]
        values = np.array([[metrics.get(name, np.nan) for name in names] for metrics in updates], np.float64)
        found: dict[str, float] = {}
        for name, column in zip(names, values.T, strict=True):
            there = column[np.isfinite(column)]
            if not there.size:
                continue
            statistics = {"mean": there.mean(), "std": there.std(), "min": there.min(), "max": there.max()}
            found |= {f"{INTERVAL}/{name}/{word}": float(number) for word, number in statistics.items()}
        return found


class LagHistogram:
    """Age in updates of the weights that made the trained unrolls.

    Args:
        limit: Lags from here on share one bucket; mean and maximum stay exact, a percentile there is the maximum.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._counts = [0] * (limit + 1)
        self._sum = 0
        self._max = 0

    def add(self, lag: int, count: int = 1) -> None:
        """Count `count` unrolls of that lag, or raise ValueError for a negative one."""
        if lag < 0:
            raise ValueError(f"a policy lag of {lag} updates: the unroll's weights are newer than the learner's")
        self._counts[min(lag, len(self._counts) - 1)] += count
        self._sum += lag * count
        self._max = max(self._max, lag)

    def snapshot(self) -> Snapshot:
        """Return mean, 95th percentile (the least lag that at least 95 % of the unrolls do not exceed) and maximum."""
        total = sum(self._counts)
        if total == 0:
            return dict.fromkeys(("policy_lag_mean", "policy_lag_p95", "policy_lag_max"))
        up_to = accumulate(self._counts)
        p95 = next(lag for lag, seen in enumerate(up_to) if 100 * seen >= 95 * total)
        p95 = self._max if p95 == len(self._counts) - 1 else p95
        return {"policy_lag_mean": self._sum / total, "policy_lag_p95": p95, "policy_lag_max": self._max}
