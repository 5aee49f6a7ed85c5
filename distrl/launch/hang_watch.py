"""Detection of roles that hang in their environments, from heartbeats whose ages are by each host's own clock."""

from distrl.memory_backend.records import RoleStatus
from distrl.roles.plan import Role
from distrl.roles.suspend_clock import AwakeClock

BUSY = ("starting", "acting", "evaluating")
"""States in which a role runs its environment; in all others it waits for another role."""


class HangWatch:
    """Remembers when each role's newest heartbeat was first seen.

    Args:
        limit_s: `environment.step_timeout_s`.
        awake: Excludes time in which this process itself was suspended.
    """

    def __init__(self, limit_s: float, awake: AwakeClock) -> None:
        self._limit_s = limit_s
        self._awake = awake
        self._seen: dict[Role, tuple[int, int, float]] = {}  # incarnation, beat, when it was first seen
        self._ended: dict[Role, int] = {}

    def overdue_s(self, status: RoleStatus) -> float | None:
        """Return seconds without an environment step or heartbeat if they exceed the limit, else None."""
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
        """Return whether the heartbeat's incarnation is not known to have ended."""
        return status.incarnation > self._ended.get(Role(status.role, status.id), 0)

    def ended(self, status: RoleStatus) -> None:
        """Ignore that incarnation from now on: its heartbeat stays until the next one's."""
        role = Role(status.role, status.id)
        self._ended[role] = max(status.incarnation, self._ended.get(role, 0))
