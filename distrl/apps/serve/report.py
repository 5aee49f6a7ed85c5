"""The record of this server in a run's directory, from which the run's page shows it."""

import asyncio
import logging
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from distrl.apps.serve.batching import Batcher
from distrl.apps.serve.exposition import Measurements
from distrl.apps.serve.sessions import ClientSessions
from distrl.apps.serve.versions import PolicyVersions
from distrl.apps.web import server_records
from distrl.apps.web.server_records import FOLDER, Latencies, Point, ServedPolicy, ServerRecord
from distrl.data_store.atomic import put_file

HISTORY_S = 600.0
FORGET_S = 3600.0
"""A server that begins removes records that have not been written for that long."""
QUANTILES = (0.5, 0.95, 0.99)
_LOG = logging.getLogger(__name__)


class ServerReport:
    """Writes the record of a server.

    Args:
        run_dir: Directory of a run.
        address: Host and port, as other hosts reach them.

    Attributes:
        connections: Returns how many connections there are.
    """

    def __init__(self, run_dir: Path, address: str) -> None:
        self.connections: Callable[[], int] = lambda: 0
        self._folder = run_dir / FOLDER
        self._address, self._host = address, socket.gethostname()
        self._path = self._folder / f"{self._host}-{address.rpartition(':')[2]}.json"
        self._started = time.time()
        self._history: deque[Point] = deque(maxlen=round(HISTORY_S / server_records.EVERY_S))
        self._thread = ThreadPoolExecutor(1, "report")  # a disk may be slow
        self._problem = ""

    async def keep(
        self, versions: PolicyVersions, sessions: ClientSessions, measured: Measurements, batcher: Batcher
    ) -> None:
        """Write the record until this is cancelled, then remove it."""
        self._thread.submit(self._forget)
        before, then = measured.actions, time.perf_counter()
        try:
            while True:
                now = time.perf_counter()
                rate = (measured.actions - before) / max(now - then, 1e-9)
                before, then = measured.actions, now
                states = {"sessions": len(sessions), "waiting": batcher.waiting, "connections": self.connections()}
                record = self._record(versions, measured, rate, states)
                await asyncio.wrap_future(self._thread.submit(self._write, record, measured.take_recent()))
                await asyncio.sleep(server_records.EVERY_S)
        finally:
            self._thread.shutdown()  # it may be writing
            with suppress(OSError):  # as `_write` has reported
                self._path.unlink(missing_ok=True)

    def _record(
        self, versions: PolicyVersions, measured: Measurements, rate: float, states: dict[str, int]
    ) -> ServerRecord:
        policies = [
            ServedPolicy(
                name=track.name,
                source=track.source.name,
                version=track.newest.number,
                share=track.share,
                returns=measured.returns.of(track.name),
                versions=measured.returns.versions_of(track.name),
            )
            for track in versions.tracks
        ]
        failures: Counter[int] = Counter()
        for (_, status), count in measured.requests.items():
            if status >= 400:
                failures[status] += count
        return ServerRecord(
            address=self._address,
            host=self._host,
            pid=os.getpid(),
            started=self._started,
            written=time.time(),
            environment=versions.spec.id,
            policies=policies,
            actions=measured.actions,
            actions_per_s=rate,
            latencies=None,
            failures=failures,
            history=[],
            **states,
        )

    def _write(self, record: ServerRecord, recent: deque[float]) -> None:
        latencies = Latencies(*np.quantile(np.fromiter(recent, float), QUANTILES).tolist()) if recent else None
        self._history.append(
            Point(record.written, record.actions_per_s, None if latencies is None else latencies.p99_s)
        )
        record = record.model_copy(update={"latencies": latencies, "history": [*self._history]})
        try:
            self._folder.mkdir(exist_ok=True)
            put_file(self._path, record.model_dump_json().encode())
            self._problem = ""
        except OSError as error:
            if str(error) != self._problem:  # a full disk is reported once
                self._problem = str(error)
                _LOG.warning("the run's page cannot show this server: %s", error)

    def _forget(self) -> None:
        with suppress(OSError):  # as `_write` reports
            for path in self._folder.glob("*.json"):
                if time.time() - path.stat().st_mtime > FORGET_S:
                    path.unlink()
