"""A run as its Redis has it at one moment: its roles, requests, unrolls and newest numbers."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distrl.memory_backend.backend import Backend
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.records import Control, RoleStatus, SupervisorStatus, blocked_share, rates_while_paused
from distrl.metrics.snapshot import Snapshot


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
