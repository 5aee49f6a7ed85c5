"""Live runs in Redis: found by scans of its servers, read and steered over one connection each.

A Redis that is unreachable or holds unexpected data is a `problem` to show, not an error of the page.
"""

import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, NamedTuple

from distrl.apps.dashboard.role_history import RoleHistory
from distrl.config.secrets import refuse_password
from distrl.config.settings import Leaves, Settings, by_path, leaves_of
from distrl.errors import ConfigError, DistrlError, one_line
from distrl.memory_backend.backend import Backend, connect, connect_engine
from distrl.memory_backend.engine import Engine, RunStore
from distrl.memory_backend.keys import RunKeys, run_of, runs_pattern, split_namespace, with_namespace
from distrl.memory_backend.local import PREFIX as LOCAL
from distrl.memory_backend.meter import Meter
from distrl.memory_backend.records import RoleStatus
from distrl.metrics.snapshot import Snapshot, Value, amount
from distrl.runs.directories import RunRecord
from distrl.runs.reading import NOT_YET, SILENT_FOR_S, SILENT_S, Reading

SCAN_S = 2.0
"""Seconds between two scans."""
LOOK_S = 0.9
"""How long a look is reused: a little less than the second between polls of a page."""
FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 30.0
IDLE_S = 30.0
"""The connection to a run that no page shows is closed after that long."""
KEPT = 240
GIVE_UP_S = 1.0
MOST_BYTES = 8 * 2**20
"""Most bytes that one look or one action may read from Redis."""
MOST_S = 5.0
"""Time-out of one look or one action."""
AT_ONCE = 8
"""Threads that read; a Redis that hangs blocks one of them for at most `MOST_S`."""

ODD = (DistrlError, ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors of reading a Redis: unreachable, or bytes that this version of distrl has not written."""
_LOG = logging.getLogger(__name__)


class _Reads:
    """The time of the next read of a Redis: ever later while it fails."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._retry_s = FIRST_RETRY_S
        self.due = float("-inf")

    @property
    def are_due(self) -> bool:
        return self._clock() >= self.due

    def succeeded(self, rest_s: float) -> None:
        self.due, self._retry_s = self._clock() + rest_s, FIRST_RETRY_S

    def failed(self) -> bool:
        """Return whether this is the first failure of an outage."""
        first = self._retry_s == FIRST_RETRY_S
        self.due = self._clock() + self._retry_s
        self._retry_s = min(2.0 * self._retry_s, LONGEST_RETRY_S)
        return first


class LiveRun:
    """One live run. Safe for several threads."""

    def __init__(self, record: RunRecord, clock: Callable[[], float] = time.monotonic) -> None:
        self.record = record
        self._clock = clock
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._look = Reading(problem=NOT_YET)
        self._meter = Meter(MOST_BYTES, MOST_S)
        self._kept: deque[tuple[str, Snapshot]] = deque(maxlen=KEPT)
        self._reads = _Reads(clock)
        self.history = RoleHistory()
        self.asked = clock()

    @property
    def newest(self) -> Reading:
        """The newest look, without waiting."""
        return self._look

    @property
    def is_due(self) -> bool:
        """Whether the newest look is too old."""
        return self._reads.are_due

    def look(self) -> Reading:
        """Return a look at most `LOOK_S` old; while Redis is unreachable, the last one with the problem."""
        self.asked = self._clock()
        with self._lock:
            if self.is_due:
                self._refresh()
            return self._look

    @contextmanager
    def backend(self) -> Iterator[Backend]:
        """Lend the backend for an action on the run."""
        with self._lock:
            self._meter.begin()
            backend = self._connected()
            backend.config_json()  # raises for a run that is gone, before anything is written under its name
            self._reads.due = float("-inf")  # so that the next look shows the effect
            yield backend

    def close(self) -> None:
        """Close the connection; a later look opens it again."""
        with self._lock:
            self._disconnect()

    def _refresh(self) -> None:
        self._meter.begin()
        try:
            self._look = self._taken(self._connected())
        except ODD as error:
            self._disconnect()
            told = str(error) if isinstance(error, DistrlError) else f"its Redis holds something odd ({error!r})"
            self._look = replace(self._look, at=time.time(), problem=one_line(told)[:300])
            self._reads.failed()
        else:
            self._reads.succeeded(LOOK_S)

    def _taken(self, backend: Backend) -> Reading:
        backend.config_json()
        found = Reading.of(backend, self._kept[-1][0] if self._kept else "0")
        self._kept.extend((entry, finite(snapshot)) for entry, snapshot in found.snapshots)
        self.history.add(found.at, found.roles)
        info = backend.engine.call("INFO")
        sizes = {"used_bytes": "used_memory", "peak_bytes": "used_memory_peak", "limit_bytes": "maxmemory"}
        numbers = {name: int(info.get(key, 0)) for name, key in (sizes | {"clients": "connected_clients"}).items()}
        redis = {"url": backend.engine.url, "version": str(info["redis_version"]), **numbers}
        return replace(found, snapshots=tuple(self._kept), redis=redis)

    def _connected(self) -> Backend:
        if self._backend is None:
            url, run_id = self.record.redis_url, self.record.run_id
            if url is None:
                raise ConfigError("one process without Redis (actors.count: 0); see its files")
            self._backend = connect(url, run_id, name="dashboard", give_up_s=GIVE_UP_S, meter=self._meter)
        return self._backend

    def _disconnect(self) -> None:
        if self._backend is not None:
            self._backend.close()
        self._backend = None


class FoundRun(NamedTuple):
    """A run in Redis whose roles send heartbeats, and its configuration, secrets masked, without origins."""

    record: RunRecord
    namespace: str
    settings: Settings
    leaves: Leaves


class LiveRuns:
    """The live runs that pages show, read by separate threads, and the runs that `scan` finds in some servers."""

    def __init__(self, urls: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._live: dict[tuple[str | None, str], LiveRun] = {}  # (Redis with the namespace, run id) -> run
        self._looking: dict[LiveRun, Future[Reading]] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(AT_ONCE, "look")
        self._servers = [_Server(url, clock) for url in urls]
        self._scanning = threading.Lock()
        self._found: Sequence[FoundRun] = ()

    def of(self, record: RunRecord) -> LiveRun:
        """Return the one connection to this launch of a run."""
        name = record.redis_url, record.run_id
        with self._lock:
            run = self._live.get(name)
            if run is None or run.record != record:
                if run is not None:  # launched again under the same id
                    self._threads.submit(run.close)
                run = self._live[name] = LiveRun(record)
            return run

    def looks(self, records: Sequence[RunRecord], wait_s: float) -> list[Reading]:
        """Return one look each, read in parallel; after `wait_s` in all, the last looks of those without an answer."""
        runs = [self.of(record) for record in records]
        wait([future for run in runs if (future := self._refreshed(run)) is not None], wait_s)
        return [run.newest for run in runs]

    def _refreshed(self, run: LiveRun) -> "Future[Reading] | None":
        """Start to read the run unless a thread does so; None: the last look is recent enough."""
        run.asked = time.monotonic()
        with self._lock:
            looking = self._looking.get(run)
            if looking is not None and not looking.done():
                return looking
            self._looking.pop(run, None)
            if run.is_due:
                self._looking[run] = self._threads.submit(run.look)
            return self._looking.get(run)

    def let_go(self, idle_s: float = IDLE_S) -> None:
        """Close the connections to runs that no page shows."""
        with self._lock:
            idle = [name for name, run in self._live.items() if time.monotonic() - run.asked >= idle_s]
            gone = [self._live.pop(name) for name in idle]
            for run in gone:
                self._looking.pop(run, None)
        for run in gone:
            run.close()

    def found(self) -> Sequence[FoundRun]:
        """Return the runs of the newest `scan`, without waiting; an unreachable Redis keeps its last result."""
        return self._found

    def scan(self) -> None:
        """Scan every server; takes seconds if one does not answer."""
        with self._scanning:
            found = {(run.namespace, run.record.run_id): run for server in self._servers for run in server.runs()}
            self._found = [*found.values()]

    def close(self) -> None:
        """Close all connections, after a scan in progress."""
        self.let_go(idle_s=0.0)
        with self._scanning:
            for server in self._servers:
                server.close()


def check_reachable(urls: Sequence[str]) -> None:
    """Connect to each server once, so that a wrong address is reported at the start; later outages are waited out."""
    for url in urls:
        refuse_password(url, "--redis-url")
        if url.startswith(LOCAL):
            raise ConfigError(f"--redis-url {url} is no Redis; name one, such as redis://host:6379")
        client = connect_engine(url, name="dashboard", give_up_s=GIVE_UP_S)
        try:
            client.call("SCAN", 0, "COUNT", 1)
        finally:
            client.close()


class _Server:
    """A Redis in which runs are looked for."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url, self._namespace = split_namespace(url)
        self._clock = clock
        self._client: Engine | None = None
        self._found: Sequence[FoundRun] = ()
        self._settings: dict[tuple[str, str], tuple[str, Leaves]] = {}  # by namespace and run id: of which launch
        self._beats: dict[tuple[str, str], tuple[object, float]] = {}  # the roles' beats, and since when
        self._reads = _Reads(clock)

    def runs(self) -> Sequence[FoundRun]:
        if not self._reads.are_due:
            return self._found
        try:
            self._client = self._client or connect_engine(self._url, name="dashboard", give_up_s=GIVE_UP_S)
            names = sorted(filter(None, map(run_of, self._client.keys(runs_pattern(self._namespace)))))
            for kept in (self._settings, self._beats):
                for name in kept.keys() - {*names}:
                    del kept[name]
            self._found = [found for name in names if (found := self._run(*name)) is not None]
        except ODD as error:
            self.close()
            if self._reads.failed():
                _LOG.warning("runs cannot be looked for: %s", error)
        else:
            self._reads.succeeded(0.0)
        return self._found

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _run(self, namespace: str, run_id: str) -> FoundRun | None:
        """Return None for a run without heartbeats, or one that this version of distrl has not written."""
        assert self._client is not None
        name = namespace, run_id
        try:
            backend = Backend(RunStore(self._client, RunKeys(run_id, namespace))).of_standing_launch()
            launch, leaves = self._settings.get(name, (None, {}))
            if launch != backend.launch:
                leaves = _read_settings(backend.config_json())
                self._settings[name] = backend.launch, leaves
            beats = [(role.role, role.id, role.incarnation, role.beat) for role in backend.registry.roles()]
        except ODD as error:
            self._client.call("PING")  # raises if Redis is unreachable; else only this run is odd
            _LOG.debug("skipped run %s: %s", run_id, error)
            return None
        before, since = self._beats.get(name, (beats, float("-inf")))
        if before != beats:
            since = self._clock()
        self._beats[name] = (beats, since)
        if self._clock() - since >= SILENT_FOR_S:
            return None
        url = with_namespace(self._url, namespace)
        record = RunRecord(run_id=run_id, redis_url=url, pid=0, started=_started(run_id))
        return FoundRun(record, namespace, by_path(leaves), leaves)


def _read_settings(description: str) -> Leaves:
    described: Any = json.loads(description)
    config = {**described["config"], **described.get("applications", {})}
    json.dumps(config, ensure_ascii=False).encode()  # raises if no response could hold it
    return leaves_of(config)


def _started(run_id: str) -> float:
    """Return the launch time from the run's name, which has its launcher's local time; 0 if it has not."""
    try:
        return max(time.mktime(time.strptime(run_id[:15], "%Y%m%d-%H%M%S")), 0.0)
    except (ValueError, OverflowError):
        return 0.0


def finite(snapshot: Mapping[str, Any]) -> dict[str, Value]:
    """Return the numbers and texts of a snapshot without NaN and infinity, which JSON lacks."""
    known = {str(name): value for name, value in snapshot.items() if type(value) in (int, float, str)}
    return {name: value for name, value in known.items() if not isinstance(value, float) or math.isfinite(value)}


_SHOWN = [field.name for field in fields(RoleStatus) if field.name not in ("stacks", "machine")]


def role_rows(look: Reading) -> list[dict[str, Any]]:
    """Return the heartbeats as pages show them."""
    newest = int(amount(look.latest, "weights_version"))
    return [_role_row(role, age_s, newest) for role, age_s in zip(look.roles, look.ages_s, strict=True)]


def _role_row(role: RoleStatus, seen_s: float, newest: int) -> dict[str, Any]:
    row = {name: getattr(role, name) for name in _SHOWN}  # asdict copies deeply, which takes ten times as long
    row |= {"seen_s": seen_s, "silent": seen_s > SILENT_S, "name": role.name, "log": role.log}
    return {**row, "restarts": max(role.incarnation - 1, 0), "behind": newest - role.weights_version}


def host_loads(roles: Sequence[RoleStatus]) -> dict[str, dict[str, Any]]:
    """Return host -> its load as a role there measured it; a learner's heartbeat, which may have GPUs, comes first."""
    loads: dict[str, dict[str, Any]] = {}
    for role in sorted(roles, key=lambda role: (role.role != "learner", role.id)):
        if role.machine is not None and role.host not in loads:
            loads[role.host] = asdict(role.machine)
    return loads
