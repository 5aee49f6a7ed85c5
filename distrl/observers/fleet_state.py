"""The numbers of a run that only its supervisor knows: of its roles, and of how many there shall be."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from distrl.memory_backend.records import RoleStatus, blocked_share
from distrl.metrics.snapshot import Snapshot


@dataclass
class FleetState:
    """The roles of a run, as of the supervisor's last look.

    Attributes:
        actors: Number that the run must have.
        actors_wanted: Number that autoscaling wants; None: it does not count.
        restarts: Restarts of roles so far.
        roles: Newest heartbeats of the roles that are up.
    """

    actors: int
    actors_wanted: int | None = None
    restarts: int = 0
    roles: Sequence[RoleStatus] = ()
    _has_learned: bool = field(default=False, init=False)
    _blocked_sum: float = field(default=0.0, init=False)
    _blocked_count: int = field(default=0, init=False)

    def columns(self, *, last: bool) -> Snapshot:
        """Return what the next snapshot of the learner lacks; in the last one, the blocked share is the run's mean."""
        blocked = blocked_share(self.roles)
        if self._has_learned and blocked is not None:  # before the first update there was nothing to wait for
            self._blocked_sum += blocked
            self._blocked_count += 1
        self._has_learned = True
        if last and self._blocked_count:
            blocked = self._blocked_sum / self._blocked_count
        return {
            "actors_up": sum(role.role == "actor" for role in self.roles),
            "actors_wanted": self.actors_wanted,
            "rss_mb": round(sum(role.rss_mb for role in self.roles), 1),
            "cpu_cores": round(sum(role.cpu_share for role in self.roles), 3),
            "restarts": self.restarts,
            "actors_blocked_share": blocked,
        }
