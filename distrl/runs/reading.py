"""A run as its Redis has it at one moment: its roles, requests, unrolls and newest numbers."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from distrl.memory_backend.backend import Backend
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.records import (
    AWAITS_EVALUATION,
    Control,
    RoleStatus,
    SupervisorStatus,
    blocked_share,
    rates_while_paused,
)
from distrl.metrics.phrases import PRETRAINING, READING
from distrl.metrics.snapshot import Snapshot, number
from distrl.runs.summary import duration

SILENT_S = 5.0
"""Age of the newest heartbeat beyond which a role is shown as silent; roles send one a second."""
SUPERVISOR_SILENT_S = 10.0
"""The same for the supervisor, which may wait 5 s for actors that end."""
SILENT_FOR_S = 3.0 * SILENT_S
"""A run with a role without a heartbeat for that long is stalled."""
STALLED_S = 120.0
"""A run without new environment steps for that long is stalled.

One large update, or a checkpoint on a slow disk, may take a minute.
"""
SLOW_SHARE = 0.5
"""A run is slow if its rate is below this share of its own earlier median."""
NEWEST, EARLIER = 5, 20
"""Snapshots of which the median is the present rate, and least number of earlier ones."""
NOT_YET = "its Redis has not answered yet"


class Verdict(NamedTuple):
    """How a live run is doing, and the numbers that say so; "" where a role or the Redis itself is the reason."""

    word: Literal["healthy", "paused", "stopping", "stalled", "slow"]
    why: str = ""


@dataclass(frozen=True)
class Reading:
    """One reading of a run.

    Attributes:
        snapshots: (id, snapshot), oldest first.
        clock: Time of the reading by `Registry.clock`.
        at: The same by the clock of this process, in seconds since 1970.
        redis: used_bytes, peak_bytes, limit_bytes (0: none), clients, version, url; empty unless the dashboard reads.
        problem: Reason why this is out of date; None if it is not.
    """

    control: Control = field(default_factory=Control)
    roles: Sequence[RoleStatus] = ()
    counts: LedgerCounts = field(default_factory=LedgerCounts)
    snapshots: Sequence[tuple[str, Snapshot]] = ()
    supervisor: SupervisorStatus | None = None
    clock: float = 0.0
    at: float = 0.0
    redis: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @classmethod
    def of(cls, backend: Backend, after: str = "0") -> "Reading":
        """Read the state of a run now, with the snapshots that are newer than the id `after`."""
        registry = backend.registry
        snapshots, control, roles = registry.snapshots(after), registry.control(), registry.roles()
        counts, supervisor = backend.ledger.counts(), registry.supervisor()
        return cls(control, roles, counts, snapshots, supervisor, registry.clock(), time.time())

    @property
    def ages_s(self) -> list[float]:
        """Age of the newest heartbeat of each role in seconds, in their order."""
        return [max(self.clock - role.at, 0.0) for role in self.roles]

    @property
    def supervisor_age_s(self) -> float | None:
        """Age of the supervisor's newest heartbeat in seconds; None before the first."""
        return None if self.supervisor is None else max(self.clock - self.supervisor.at, 0.0)

    @property
    def latest(self) -> Snapshot:
        """The newest snapshot with the supervisor's numbers; empty before the first."""
        if not self.snapshots:
            return {}
        actors = sum(role.role == "actor" for role in self.roles)
        fleet = {"actors_up": actors, "actors_blocked_share": blocked_share(self.roles)}
        if self.supervisor is not None:
            fleet["actors_wanted"] = self.supervisor.actors_wanted
        return {**self.snapshots[-1][1], **fleet, **rates_while_paused(self.roles)}

    @property
    def supervisor_is_silent(self) -> bool:
        """Whether the supervisor sends no heartbeats; at the end of a run it sends none."""
        return self.control.stop is None and (self.supervisor_age_s or 0.0) > SUPERVISOR_SILENT_S

    @property
    def stops(self) -> bool:
        """Whether the run is about to end: it is to stop, or waits for its last evaluation."""
        return self.control.stop is not None or any(role.state == AWAITS_EVALUATION for role in self.roles)

    @property
    def pretrains(self) -> bool:
        """Whether the learner reads data, or learns from it alone: unrolls of actors are not awaited yet."""
        return any(role.role == "learner" and role.state.startswith((READING, PRETRAINING)) for role in self.roles)

    def verdict(self, *, has_redis: bool = True) -> Verdict:
        """Judge the run: it is stalled without new steps, with a silent role, or if its Redis is unreachable.

        Args:
            has_redis: Whether the run should be reachable in a Redis.
        """
        if self.control.paused or self.stops:
            return Verdict("paused" if self.control.paused else "stopping")
        if has_redis and self.problem not in (None, NOT_YET):
            return Verdict("stalled")
        if has_redis and self.problem is None:
            if any(age_s > SILENT_FOR_S for age_s in self.ages_s):
                return Verdict("stalled")
            if (still_s := self._without_steps_s) >= STALLED_S and not self.pretrains:
                return Verdict("stalled", f"No new environment steps for {duration(still_s)}")
        now, earlier = self.present_rate, self._rates[:-NEWEST]
        if now is not None and len(earlier) >= EARLIER and now < SLOW_SHARE * (before := statistics.median(earlier)):
            return Verdict("slow", f"{now:,.0f} steps/s now, {before:,.0f} before")
        return Verdict("healthy")

    @property
    def present_rate(self) -> float | None:
        """Median environment steps per second of the newest snapshots; None while there are too few."""
        newest = self._rates[-NEWEST:]
        return statistics.median(newest) if len(newest) == NEWEST else None

    @property
    def _rates(self) -> list[float]:
        rates = (number(snapshot.get("env_steps_per_s")) for _, snapshot in self.snapshots)
        return [rate for rate in rates if rate is not None]

    @property
    def _without_steps_s(self) -> float:
        """Seconds since the number of environment steps last grew: of training, and since the newest snapshot.

        A learner that waits publishes none.
        """
        newest_id, newest = self.snapshots[-1] if self.snapshots else ("0", {})
        now = since = number(newest.get("wall_s"))
        for _, snapshot in reversed(self.snapshots):
            if snapshot.get("env_steps") != newest.get("env_steps"):
                break
            since = number(snapshot.get("wall_s"))
        if now is None or since is None:
            return 0.0
        milliseconds, _, _ = newest_id.partition("-")  # since 1970, by the clock of Redis
        return now - since + max(self.clock - float(milliseconds) / 1000.0, 0.0)
