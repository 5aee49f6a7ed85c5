"""The number of actors of a run: what operators and autoscaling want, and the starts and ends that bring it about."""

from collections.abc import Callable, Collection, Sequence

from distrl.config import RunConfig
from distrl.launch.autoscaling import Autoscaling
from distrl.launch.fleet import Fleet, end
from distrl.launch.monitor import Monitor
from distrl.machine import cores
from distrl.memory_backend.records import AWAITS_CLIENT, Control, RoleStatus, SupervisorStatus
from distrl.memory_backend.registry import Registry
from distrl.roles.plan import ACTORS_PER_CORE, Role, most_actors

ACTOR_GRACE_S = 5.0


class Scaling:
    """Brings the fleet to the wanted number of actors.

    Args:
        let_go: Called with each actor that has been retired.
    """

    def __init__(
        self, config: RunConfig, fleet: Fleet, monitor: Monitor, registry: Registry, let_go: Callable[[Role], None]
    ) -> None:
        self._config, self._fleet, self._monitor, self._registry, self._let_go = (
            config,
            fleet,
            monitor,
            registry,
            let_go,
        )
        self._target, self._most = config.started_actors, most_actors(config)
        self._autoscaling = Autoscaling(config)
        self._scaling_from: int | None = None
        self._without_actors = False  # as last reported

    def described(self, host: str, pid: int, beat: int) -> SupervisorStatus:
        """Return the supervisor's heartbeat."""
        return SupervisorStatus(
            *(host, pid, beat),
            actors=self._target if self._most else None,
            autoscales=self._autoscaling.enabled,
            actors_wanted=None if self._config.learns_from_data else self._autoscaling.wanted,
            wanted_because=self._autoscaling.reason,
        )

    def obey(self, control: Control) -> None:
        """Follow requests for another number of actors; an operator's number ends autoscaling."""
        self._autoscaling.obey(control, self._target)
        if self._autoscaling.enabled or control.target_actors is None or control.target_actors == self._target:
            return
        self._scale(control.target_actors, forced=control.target_forced)
        self._autoscaling.restart(self._target)

    def autoscale(self, control: Control, statuses: Sequence[RoleStatus]) -> None:
        """Bring the wanted number of actors up to date, and follow it where this run starts actors.

        Args:
            statuses: Heartbeats of the roles that are up.
        """
        before = self._target if self._most else self._autoscaling.wanted
        own = [status for status in statuses if status.role != "actor" or self._starts(Role.of(status))]
        self._autoscaling.look(control, own)
        wanted = self._monitor.fleet.actors_wanted = self._autoscaling.wanted
        if wanted is None or wanted == before or not self._autoscaling.enabled:
            return
        self._monitor.event(f"{_actors(wanted)} wanted: {self._autoscaling.reason}")
        if self._most:
            self._scale(wanted, forced=True)

    def awaits_actors(self, statuses: Sequence[RoleStatus]) -> bool:
        """Return whether nothing can be learned because no actor of another host acts; report a change."""
        joined = not self._config.launch.start_actors and not self._config.learns_from_data
        awaits = joined and not any(status.role == "actor" and status.state != AWAITS_CLIENT for status in statuses)
        if awaits != self._without_actors:
            self._without_actors = awaits
            self._monitor.event("no actor is there: waiting until actors join" if awaits else "actors have joined")
        return awaits

    def start_missing(self, most: int) -> None:
        """Start at most `most` of the actors that are missing."""
        present = [member.role.id for member in self._fleet.actors]
        if len(present) < self._target:
            self._start(min(most, self._target - len(present)), present)
        if self._scaling_from is not None and len(present) == self._target:
            self._monitor.event(f"scaled from {self._scaling_from} to {self._target} actors")
            self._scaling_from = None

    def _start(self, count: int, present: list[int]) -> None:
        """Start actors with the next free ids, and add these to `present`."""
        reported = {Role.of(status) for status in self._monitor.fleet.roles}
        for _ in range(min(count, self._room_to_start(reported))):
            actor = max(present, default=-1) + 1
            while Role("actor", actor) in reported:  # it has joined by hand
                actor += 1
            present.append(actor)
            self._fleet.add(Role("actor", actor))

    def _starts(self, role: Role) -> bool:
        """Return whether it is one of the actors that are scaled: the run's own, or all where all join."""
        return role in self._fleet.members or not self._most

    def _room_to_start(self, reported: Collection[Role]) -> int:
        """Return how many actors may start now: those that import leave no core to the learner and `distrl stop`."""
        if self._config.launch.ray_address is not None:  # the cluster places them
            return self._target
        starting = [member for member in self._fleet.actors if member.handle and member.role not in reported]
        return ACTORS_PER_CORE * cores() - len(starting)

    def _scale(self, target: int, *, forced: bool) -> None:
        """Follow a request: retire the highest ids at once; `start_missing` adds actors."""
        if not self._most or target < 1 or (target > self._most and not forced):
            allowed = f"1 to {self._most} are allowed (actors.max_count)" if self._most else "they join by themselves"
            self._monitor.event(f"not scaled to {target} actors: {allowed}")
            self._registry.set_control(target_actors=self._target)  # other readers follow it, too
            return
        if self._scaling_from is None:
            self._scaling_from = self._target
        self._target = target
        self._monitor.fleet.actors = target
        retired = [self._fleet.retire(member.role) for member in self._fleet.actors[target:]]
        end(retired, ACTOR_GRACE_S)
        for member in retired:
            self._let_go(member.role)
            self._registry.forget(member.role.key)


def _actors(count: int) -> str:
    return "1 actor" if count == 1 else f"{count} actors"
