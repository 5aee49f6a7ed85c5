"""Which roles hang in their environments: judged by heartbeats, each of which tells an age by its own host's clock."""

from distrl.memory_backend.registry_interface import RoleStatus
from distrl.roles.plan import Role
from distrl.roles.suspend_clock import AwakeClock

BUSY = ("starting", "acting", "evaluating")
"""States in which a role is in its environment's hands; in all others it waits for somebody else."""


class HangWatch:
    """Remembers when each role's newest heartbeat was first seen.

    Args:
        limit_s: `environment.step_timeout_s`.
        awake: Tells for how long whoever watches has been awake: what it did not see is nobody's silence.
    """

    def __init__(self, limit_s: float, awake: AwakeClock) -> None:
        self._limit_s = limit_s
        self._awake = awake
        self._seen: dict[Role, tuple[int, int, float]] = {}  # incarnation, beat, when it was first seen
        self._ended: dict[Role, int] = {}

    def overdue_s(self, status: RoleStatus) -> float | None:
        """Seconds without an environment step, or without a heartbeat, if they are beyond the limit; else None."""
        role, now = Role(status.role, status.id), self._awake.look()
        if not self.is_current(status):
            return None
        incarnation, beat, since = self._seen.get(role, (0, 0, now))
        if (incarnation, beat) != (status.incarnation, status.beat):
            since = now
            self._seen[role] = (status.incarnation, status.beat, since)
        age_s = self._awake.age_s(since) + (status.last_step_age_s if status.state in BUSY else 0.0)
        return age_s if age_s > self._limit_s else None

    def is_current(self, status: RoleStatus) -> bool:
        """Whether the heartbeat is of an incarnation that has not ended, as far as is known here."""
        return status.incarnation > self._ended.get(Role(status.role, status.id), 0)

    def ended(self, status: RoleStatus) -> None:
        """That incarnation has ended: its heartbeat, which stays until the next one's, says nothing any more."""
        role = Role(status.role, status.id)
        self._ended[role] = max(status.incarnation, self._ended.get(role, 0))
