"""Remote runs: found in Redis servers, shown beside those whose directories are here."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from distrl.config.settings import Settings, settings_of
from distrl.dashboard.jobs import FIRST_RETRY_S, GIVE_UP_S, LONGEST_RETRY_S, ODD
from distrl.memory_backend.backend import Backend, connect_engine
from distrl.memory_backend.engine import Engine, RunStore
from distrl.memory_backend.keys import RunKeys, run_of, runs_pattern, split_namespace, with_namespace
from distrl.runs.directories import RunRecord

SCAN_S = 2.0
"""Seconds between two scans."""
SILENT_S = 15.0
"""A run without any heartbeat for that long is no longer shown."""
_LOG = logging.getLogger(__name__)


class Found(NamedTuple):
    """A run in Redis whose roles send heartbeats.

    Attributes:
        settings: Its configuration, secrets masked, without origins.
    """

    record: RunRecord
    settings: Settings


class RemoteRuns:
    """Finds runs in Redis servers. Any thread may call `runs`, which does not wait.

    Args:
        urls: URLs of the servers.
    """

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = [_Server(url, clock) for url in urls]
        self._scanning = threading.Lock()
        self._found: Mapping[str, Found] = {}

    def runs(self) -> Mapping[str, Found]:
        """Return run id -> run, as of the newest `scan`; an unreachable Redis keeps its last result."""
        return self._found

    def scan(self) -> None:
        """Scan every server; takes seconds if one does not answer."""
        with self._scanning:
            self._found = {run_id: found for server in self._servers for run_id, found in server.runs().items()}

    def close(self) -> None:
        """Close the connections after a scan in progress."""
        with self._scanning:
            for server in self._servers:
                server.close()


def check_reachable(urls: Sequence[str]) -> None:
    """Connect to each server once, so that a wrong address is reported at the start; later outages are waited out."""
    for url in urls:
        client = connect_engine(url, name="dashboard", give_up_s=GIVE_UP_S)
        try:
            client.call("SCAN", 0, "COUNT", 1)
        finally:
            client.close()


class _Server:
    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url, self._namespace = split_namespace(url)
        self._clock = clock
        self._client: Engine | None = None
        self._found: dict[str, Found] = {}
        self._settings: dict[str, Settings] = {}
        self._beats: dict[str, tuple[object, float]] = {}  # run id -> its roles' beats, and since when; -inf: for ever
        self._due, self._retry_s = float("-inf"), FIRST_RETRY_S

    def runs(self) -> Mapping[str, Found]:
        if self._clock() < self._due:
            return self._found
        try:
            self._client = self._client or connect_engine(self._url, name="dashboard", give_up_s=GIVE_UP_S)
            names = self._client.keys(runs_pattern(self._namespace))
            known = {run_id: namespace for namespace, run_id in filter(None, map(run_of, sorted(names)))}
            self._forget_all_but(known.keys())
            found = {run_id: run for run_id in sorted(known) if (run := self._run(run_id, known[run_id])) is not None}
        except ODD as error:
            if self._retry_s == FIRST_RETRY_S:  # once per outage
                _LOG.warning("runs cannot be looked for: %s", error)
            self.close()
            self._due = self._clock() + self._retry_s
            self._retry_s = min(2.0 * self._retry_s, LONGEST_RETRY_S)
        else:
            self._found, self._retry_s = found, FIRST_RETRY_S
        return self._found

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _run(self, run_id: str, namespace: str) -> Found | None:
        """Return None for a run without heartbeats, or one that this version of distrl has not written."""
        assert self._client is not None
        try:
            backend = Backend(RunStore(self._client, RunKeys(run_id, namespace)))
            if run_id not in self._settings:
                self._settings[run_id] = _read_settings(backend.config_json())
            beats = [(role.role, role.id, role.incarnation, role.beat) for role in backend.registry.roles()]
        except ODD as error:
            self._client.call("PING")  # raises if Redis is unreachable; else only this run is odd
            _LOG.debug("skipped run %s: %s", run_id, error)
            return None
        before, since = self._beats.get(run_id, (beats, float("-inf")))
        if before != beats:
            since = self._clock()
        self._beats[run_id] = (beats, since)
        if self._clock() - since >= SILENT_S:
            return None
        record = RunRecord(
            run_id=run_id, redis_url=with_namespace(self._url, namespace), pid=0, started=_started(run_id)
        )
        return Found(record, self._settings[run_id])

    def _forget_all_but(self, ids: Set[str]) -> None:
        for kept in (self._settings, self._beats):
            for run_id in kept.keys() - ids:
                del kept[run_id]


def _read_settings(description: str) -> Settings:
    config: Any = json.loads(description)["config"]
    json.dumps(config, ensure_ascii=False).encode()  # raises if no response could hold it
    return settings_of(config)


def _started(run_id: str) -> float:
    """Return the launch time from the run's name, which has its launcher's local time; 0 if it has not."""
    try:
        return max(time.mktime(time.strptime(run_id[:15], "%Y%m%d-%H%M%S")), 0.0)
    except (ValueError, OverflowError):
        return 0.0
