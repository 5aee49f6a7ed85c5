"""Live state of running jobs, read from their Redis: one connection a run, at most one read a second.

A Redis that is unreachable or holds unexpected data is a `problem` to show, not an error of the page.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from distrl.errors import ConfigError, DistrlError
from distrl.memory_backend.backend import Backend, connect
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.meter import Meter
from distrl.memory_backend.records import (
    SILENT_S,
    Control,
    RoleStatus,
    blocked_share,
    heartbeat_ages_s,
    rates_while_paused,
)
from distrl.metrics.snapshot import Snapshot, Value, number
from distrl.runs.directories import RunRecord

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
NOT_YET = "its Redis has not answered yet"

ODD = (DistrlError, ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors of reading a Redis: unreachable, or bytes that this version of distrl has not written."""


@dataclass(frozen=True)
class Look:
    """One read of a run's state.

    Attributes:
        at: Time of the read, in seconds since 1970.
        snapshots: (id, snapshot), oldest first.
        seen_s: (role, id) -> age of its newest heartbeat by the clock of Redis.
        redis: used_bytes, peak_bytes, limit_bytes (0: none), clients, version, url.
        problem: Reason why this is out of date; None if it is not.
    """

    at: float = 0.0
    snapshots: tuple[tuple[str, Snapshot], ...] = ()
    roles: tuple[RoleStatus, ...] = ()
    seen_s: Mapping[tuple[str, int], float] = field(default_factory=dict)
    control: Control = field(default_factory=Control)
    counts: LedgerCounts = field(default_factory=LedgerCounts)
    redis: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def latest(self) -> Snapshot:
        """The newest snapshot with the supervisor's numbers; empty before the first."""
        if not self.snapshots:
            return {}
        actors = sum(role.role == "actor" for role in self.roles)
        fleet = {"actors_up": actors, "actors_blocked_share": blocked_share(self.roles)}
        return {**self.snapshots[-1][1], **fleet, **rates_while_paused(self.roles)}


class LiveRun:
    """One running job. Safe for several threads."""

    def __init__(self, record: RunRecord, clock: Callable[[], float] = time.monotonic) -> None:
        self.record = record
        self._clock = clock
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._look = Look(problem=NOT_YET)
        self._meter = Meter(MOST_BYTES, MOST_S)
        self._kept: deque[tuple[str, Snapshot]] = deque(maxlen=KEPT)
        self._due = float("-inf")
        self._retry_s = FIRST_RETRY_S
        self.asked = clock()

    @property
    def newest(self) -> Look:
        """The newest look, without waiting."""
        return self._look

    @property
    def is_due(self) -> bool:
        """Whether the newest look is too old."""
        return self._clock() >= self._due

    def look(self) -> Look:
        """Return a look at most `LOOK_S` old; while Redis is unreachable, the last one with the problem."""
        self.asked = self._clock()
        with self._lock:
            if self._clock() >= self._due:
                self._refresh()
            return self._look

    @contextmanager
    def backend(self) -> Iterator[Backend]:
        """Lend the backend for an action on the run."""
        with self._lock:
            self._meter.begin()
            backend = self._connected()
            backend.config_json()  # raises for a run that is gone, before anything is written under its name
            self._due = float("-inf")  # so that the next look shows the effect
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
            self._look = replace(self._look, at=time.time(), problem=" ".join(told.split())[:300])
            self._due = self._clock() + self._retry_s
            self._retry_s = min(2.0 * self._retry_s, LONGEST_RETRY_S)
        else:
            self._due = self._clock() + LOOK_S
            self._retry_s = FIRST_RETRY_S

    def _taken(self, backend: Backend) -> Look:
        registry = backend.registry
        backend.config_json()
        after = self._kept[-1][0] if self._kept else "0"
        self._kept.extend((entry, finite(snapshot)) for entry, snapshot in registry.snapshots(after))
        roles, now = tuple(registry.roles()), registry.clock()
        info = backend.engine.call("INFO")
        redis = {"url": backend.engine.url, "version": str(info["redis_version"])}
        sizes = {"used_bytes": "used_memory", "peak_bytes": "used_memory_peak", "limit_bytes": "maxmemory"}
        return Look(
            at=time.time(),
            snapshots=tuple(self._kept),
            roles=roles,
            seen_s=dict(zip(((role.role, role.id) for role in roles), heartbeat_ages_s(now, roles), strict=True)),
            control=registry.control(),
            counts=backend.ledger.counts(),
            redis={
                **redis,
                **{name: int(info.get(key, 0)) for name, key in sizes.items()},
                "clients": int(info.get("connected_clients", 0)),
            },
        )

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


class LiveRuns:
    """The running jobs that pages show, read by separate threads."""

    def __init__(self) -> None:
        self._runs: dict[str, LiveRun] = {}
        self._looking: dict[LiveRun, Future[Look]] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(AT_ONCE, "look")

    def of(self, record: RunRecord) -> LiveRun:
        """Return the one connection to this launch of a run."""
        with self._lock:
            run = self._runs.get(record.run_id)
            if run is None or run.record != record:
                if run is not None:  # launched again under the same id
                    self._threads.submit(run.close)
                run = self._runs[record.run_id] = LiveRun(record)
            return run

    def looks(self, records: Sequence[RunRecord], wait_s: float) -> list[Look]:
        """Return one look each, read in parallel; after `wait_s` in all, the last looks of those without an answer."""
        runs = [self.of(record) for record in records]
        wait([future for run in runs if (future := self._refreshed(run)) is not None], wait_s)
        return [run.newest for run in runs]

    def _refreshed(self, run: LiveRun) -> "Future[Look] | None":
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
            idle = [name for name, run in self._runs.items() if time.monotonic() - run.asked >= idle_s]
            gone = [self._runs.pop(name) for name in idle]
            for run in gone:
                self._looking.pop(run, None)
        for run in gone:
            run.close()


def finite(snapshot: Mapping[str, Any]) -> dict[str, Value]:
    """Return the numbers and texts of a snapshot without NaN and infinity, which JSON lacks."""
    known = {str(name): value for name, value in snapshot.items() if type(value) in (int, float, str)}
    return {name: value for name, value in known.items() if not isinstance(value, float) or math.isfinite(value)}


def role_row(role: RoleStatus, look: Look) -> dict[str, Any]:
    """Return a heartbeat as pages show it."""
    newest = int(number(look.latest.get("weights_version")) or 0)
    row = asdict(role)
    del row["stacks"]
    seen_s = look.seen_s.get((role.role, role.id), 0.0)
    row |= {"seen_s": seen_s, "silent": seen_s > SILENT_S}
    return {**row, "restarts": max(role.incarnation - 1, 0), "behind": newest - role.weights_version}
