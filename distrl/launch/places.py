"""Roles for which a cluster has no place: they are reported, and an actor makes room for the learner."""

from collections.abc import Callable

from distrl.launch.fleet import Fleet
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.registry import Registry
from distrl.roles.plan import LEARNER, Role
from distrl.roles.suspend_clock import AwakeClock

PATIENCE_S = 5.0
"""Time for a role to get its place, before that is reported and actors make room for the learner."""


class Places:
    """Watches which roles of a fleet have no place.

    Args:
        report: Takes one line for the user.
    """

    def __init__(self, fleet: Fleet, awake: AwakeClock, registry: Registry, report: Callable[[str], None]) -> None:
        self._fleet, self._awake, self._registry, self._report = fleet, awake, registry, report
        self._without: dict[Role, str] = {}  # and what each needs
        self._beats = 0
        self._made_room_at = -PATIENCE_S

    def look(self) -> None:
        """Report changes, and send heartbeats of the roles that wait; let an actor make room for the learner."""
        waiting: dict[Role, str] = {}
        for role, member in self._fleet.members.items():
            needs = None if member.handle is None else member.handle.waits_for
            if needs is None or self._awake.age_s(member.started_at) < PATIENCE_S:
                continue
            waiting[role] = needs
            self._beats += 1
            status = RoleStatus(role.kind, role.id, 0, "-", 0, f"waiting: place, needs {needs}", self._beats)
            self._registry.beat(status)
            if self._without.get(role) != needs:
                self._report(f"no place for {role.name}: needs {needs}; add nodes, or {_remedy(role, needs)}")
        for role in self._without.keys() - waiting.keys():
            if role in self._fleet.members:
                self._report(f"{role.name} waits for a place no longer")
        self._without = waiting
        if LEARNER in waiting and self._awake.age_s(self._made_room_at) >= PATIENCE_S:
            self._make_room()

    def _make_room(self) -> None:
        """Kill the actor with the highest id that has a place: without a learner it would only wait."""
        for member in reversed(self._fleet.actors):
            if member.handle is not None and member.is_placed:
                self._made_room_at = self._awake.look()
                member.killed_for = "it makes room for the learner"
                member.handle.kill()
                return


def _remedy(role: Role, needs: str) -> str:
    if role != LEARNER:
        return "distrl scale takes fewer"
    return "set learner.device: cpu" if "GPU" in needs else "lower learner.threads"
