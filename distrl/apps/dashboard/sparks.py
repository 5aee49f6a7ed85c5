"""Small curves of runs in the list: at most 32 points of the training return, cached for runs that have ended."""

import json
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from distrl.apps.dashboard.files import own_file
from distrl.apps.dashboard.index import Index, IndexedRun
from distrl.apps.dashboard.index_store import Kept
from distrl.apps.dashboard.metrics_cache import Tables
from distrl.apps.reports.curves import curve, thinned
from distrl.errors import ConfigError
from distrl.metrics.snapshot import X_AXES

METRIC = "mean_return_100"
MOST_POINTS = 32
WAIT_S = 0.15
"""Time that one page waits for curves that are not known yet."""
AGAIN_S = 5.0
"""The curve of a run that is not over is made again after that long."""
MOST_KEPT = 1000
_LOG = logging.getLogger(__name__)

Spark = tuple[list[float], list[float]]
"""Environment steps and returns."""


class Sparks:
    """The small curves; one thread reads tables. Safe for several threads."""

    def __init__(self, index: Index, tables: Tables) -> None:
        self._index = index
        self._tables = tables
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, float, Spark]] = {}  # id -> stamp, when, curve
        self._reading: dict[str, Future[None]] = {}
        self._thread = ThreadPoolExecutor(1, "sparks")

    def of(self, entries: Sequence[IndexedRun]) -> dict[str, Spark]:
        """Return id -> curve of those runs whose curve is known within `WAIT_S`."""
        wait([future for entry in entries if (future := self._wanted(entry)) is not None], WAIT_S)
        with self._lock:
            return {entry.id: self._known[entry.id][2] for entry in entries if entry.id in self._known}

    def close(self) -> None:
        """End the thread after the table that it reads."""
        self._thread.shutdown(cancel_futures=True)

    def _wanted(self, entry: IndexedRun) -> "Future[None] | None":
        with self._lock:
            known, reading = self._known.get(entry.id), self._reading.get(entry.id)
            if reading is not None:
                return None if known is not None else reading  # an older curve is shown meanwhile
            if known is not None and time.monotonic() - known[1] < AGAIN_S:
                return None
            self._reading[entry.id] = future = self._thread.submit(self._read, entry)
            return None if known is not None else future

    def _read(self, entry: IndexedRun) -> None:
        stamp = "-"
        try:
            stamp = self._stamp(entry)
            with self._lock:
                known = self._known.get(entry.id)
            spark = known[2] if known is not None and known[0] == stamp else self._made(entry, stamp)
        except Exception:  # the future's result is not read; the row has no curve then
            _LOG.exception("a small curve cannot be made: %s", entry.path)
            spark = [], []
        with self._lock:
            self._known.pop(entry.id, None)
            self._known[entry.id] = stamp, time.monotonic(), spark
            while len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
            self._reading.pop(entry.id, None)

    def _stamp(self, entry: IndexedRun) -> str:
        path = own_file(self._index.directory(entry), "metrics.csv")
        if path is None:
            return "-"
        found = path.stat()
        return f"{found.st_mtime_ns}.{found.st_size}.{found.st_ino}"

    def _made(self, entry: IndexedRun, stamp: str) -> Spark:
        over = entry.state == "ended"
        row = self._index.store.row("sparks", entry.id) if over else None
        if row is not None and row.stamp == stamp:
            x, y = json.loads(row.text)
            return x, y
        # Tables of ended runs are not kept in memory: they would displace those that pages show.
        tables = Tables() if over else self._tables
        try:
            table = tables.table(self._index.directory(entry), [X_AXES["steps"], METRIC])
            points = thinned(curve(table, METRIC), MOST_POINTS)
        except (ConfigError, OSError):  # the run's page shows the error
            return [], []
        spark = [float(f"{x:.6g}") for x in points.x], [float(f"{y:.5g}") for y in points.y]
        if over:
            self._index.store.keep("sparks", [Kept(entry.id, stamp, json.dumps(spark))])
        return spark
