"""The supervise loop, for processes and Ray alike: watch, restart, scale, time out, and end the run in order."""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from distrl.config import RunConfig
from distrl.errors import EnvironmentFailedError, MemoryBackendError, StalledError
from distrl.interrupt import Interrupt
from distrl.launch.autoscaling import Autoscaling
from distrl.launch.fleet import Fleet, Handle, HangWatch, Launcher, Member, end, have_ended
from distrl.launch.monitor import Monitor
from distrl.launch.outcome import Outcome
from distrl.launch.restarts import fatal_end, restart
from distrl.launch.stall_report import stall_report
from distrl.launch.time_limit import TimeLimit
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import AWAITS_EVALUATION, Control, RoleStatus, SupervisorStatus
from distrl.metrics.phrases import role_states
from distrl.roles.machine import cores
from distrl.roles.plan import ACTORS_PER_CORE, Role, most_actors, roles_beside_actors
from distrl.roles.suspend_clock import AwakeClock

LEARNER = Role("learner")
TICK_S = 0.05
REGISTRY_EVERY_S = 0.5
LEARNER_GRACE_S = 30.0
STARTING_GRACE_S = 2.0
"""Grace for a learner that is starting. Longer than the time between two heartbeats: it may train by now."""
ACTOR_GRACE_S = 5.0
PATIENCE_S = 5.0
"""Time for a role to get its place on a cluster, before that is reported and actors make room for the learner."""
STARTS_PER_ROUND = 2
"""Roles that are started before signals and requests are read again."""
QUIET_S = 15.0
"""Longest time without an update before the states of roles are reported; where updates take long, three of them."""


class Supervisor:
    """Runs one plan to its end; reads `interrupt` in every round.

    Args:
        resumed: Updates and seconds of training behind the checkpoint that the run goes on from.
    """

    def __init__(
        self,
        config: RunConfig,
        launcher: Launcher,
        backend: Backend,
        monitor: Monitor,
        log_dir: Path,
        interrupt: Interrupt,
        resumed: tuple[int, float] = (0, 0.0),
    ) -> None:
        self._config = config
        self._backend = backend
        self._monitor = monitor
        self._log_dir = log_dir
        self._interrupt = interrupt
        self._awake = AwakeClock()
        self._watch = HangWatch(config, self._awake)
        self._resumed_updates, trained_s = resumed
        self._time_limit = TimeLimit(config.stop.minutes, trained_s, self._awake)
        self._learner_trains = False
        self._is_first_start = True  # no learner has trained yet
        self._target, self._most = config.started_actors, most_actors(config)
        self._autoscaling = Autoscaling(config)
        self._scaling_from: int | None = None
        self._without_actors = False  # as last reported
        self._reported: set[Role] = set()  # roles with a heartbeat
        self._without_place: dict[Role, str] = {}  # and what each needs
        self._places_beats = 0
        self._made_room_at = -PATIENCE_S
        self._registry_at = 0.0
        self._beats = 0
        self._progress = ((0, 0), self._awake.look())  # updates and unrolls used, when they last changed
        self._quiet = False
        self._usual_s = 0.0  # from the last progress but one to the last
        self.fleet = Fleet(launcher, config.actors.restart_budget)

    def run(self) -> Outcome:
        """Start every role and return when all have ended.

        Raises:
            KeyboardInterrupt: At a second Ctrl-C. Roles are not waited for; they end by themselves.
        """
        try:
            outcome = self._until_over()
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._end_roles()
            raise
        failed = self._end_roles()
        if outcome.error is None and failed is not None:
            code, why = failed
            return Outcome(code, outcome.stop_reason, f"learner did not end cleanly: {why}")
        return outcome

    def _until_over(self) -> Outcome:
        try:
            for role in roles_beside_actors(self._config):
                self.fleet.add(role)
            while (outcome := self._round()) is None:
                time.sleep(TICK_S)
        except MemoryBackendError as error:
            return Outcome.of(error)
        if outcome.error is not None and outcome.exit_code != MemoryBackendError.exit_code:
            try:
                self._backend.registry.set_control(stop=outcome.stop_reason)  # for roles that joined by hand
            except MemoryBackendError as error:  # they meet the same, and end by themselves
                self._monitor.event(str(error))
        return outcome

    def _round(self) -> Outcome | None:
        now = self._awake.look()
        if self._interrupt.code is not None:
            return self._asked_to_stop(self._interrupt.name, self._interrupt.code)
        for member in self.fleet.dead():
            outcome = self._bury(member)
            if outcome is not None:
                return outcome
        self._start_some()
        if now - self._registry_at >= REGISTRY_EVERY_S:
            self._registry_at = now
            return self._look_at_registry()
        return None

    def _beat(self) -> None:
        self._beats += 1
        status = SupervisorStatus(
            socket.gethostname(),
            os.getpid(),
            self._beats,
            actors=self._target if self._most else None,
            autoscales=self._autoscaling.enabled,
            actors_wanted=self._autoscaling.wanted,
            wanted_because=self._autoscaling.reason,
        )
        self._backend.registry.beat_supervisor(status)
        if self._config.memory.url is not None:  # a server of the run's own ends with it
            self._backend.keep(self._config.memory.keep_s)

    def _look_at_registry(self) -> Outcome | None:
        self._beat()
        control = self._backend.registry.control()
        self._monitor.report_requests(self._backend)
        if control.stop is not None and not self._learner_decided(control.stop):
            return self._asked_to_stop(control.stop, 0)
        self._obey(control)
        self._look_for_places()
        statuses = [status for status in self._backend.registry.roles() if self._is_up(status)]
        self._reported = {Role.of(status) for status in statuses}
        self._learner_trains = any(map(self._is_training, statuses))
        for status in statuses:
            self._kill_if_hung(status)
        self._autoscale(control, statuses)
        self._monitor.update(self._backend, statuses)
        if (outcome := self._out_of_time()) is not None:
            return outcome
        awaits_actors = control.stop is None and self._awaits_actors(statuses)  # at the end all have left
        awaits_evaluation = any(status.state == AWAITS_EVALUATION for status in statuses)
        return self._check_progress(statuses, paused=control.paused or awaits_actors or awaits_evaluation)

    def _obey(self, control: Control) -> None:
        """Follow requests for another number of actors; an operator's number ends autoscaling."""
        self._autoscaling.obey(control, self._target)
        if self._autoscaling.enabled or control.target_actors is None or control.target_actors == self._target:
            return
        self._scale(control.target_actors, forced=control.target_forced)
        self._autoscaling.restart(self._target)

    def _autoscale(self, control: Control, statuses: Sequence[RoleStatus]) -> None:
        """Bring the wanted number of actors up to date, and follow it where this run starts actors."""
        before = self._target if self._most else self._autoscaling.wanted
        own = [status for status in statuses if status.role != "actor" or self._starts(Role.of(status))]
        self._autoscaling.look(control, own)
        wanted = self._monitor.fleet.actors_wanted = self._autoscaling.wanted
        if wanted is None or wanted == before or not self._autoscaling.enabled:
            return
        self._monitor.event(f"{_actors(wanted)} wanted: {self._autoscaling.reason}")
        if self._most:
            self._scale(wanted, forced=True)

    def _starts(self, role: Role) -> bool:
        """Return whether it is one of the actors that are scaled: the run's own, or all where all join."""
        return role in self.fleet.members or not self._most

    def _is_up(self, status: RoleStatus) -> bool:
        """Return whether the role is up; a member that is down or has no place is not, roles joined by hand are."""
        member = self.fleet.members.get(Role.of(status))
        return member is None or member.is_placed

    def _learner_decided(self, reason: str) -> bool:
        """Return whether the learner has set its own stop condition, after which it ends by itself with 0."""
        return reason in type(self._config.stop).model_fields

    def _asked_to_stop(self, reason: str, code: int) -> Outcome:
        self._interrupt.set(code, reason)  # the next Ctrl-C does not wait
        self._monitor.event(f"stopping: {reason}")
        self._backend.registry.set_control(stop=reason)
        return Outcome(code, reason)

    def _bury(self, member: Member) -> Outcome | None:
        """Handle the end of a role: return the run's outcome if it is over, else schedule another start."""
        role = member.role
        if role.kind == "learner" and (outcome := self._learner_is_done(member)) is not None:
            return outcome
        if (outcome := fatal_end(member)) is not None:
            return outcome
        self._let_go(role)  # raises where Redis cannot be reached from here either
        if member.last_code == 0 and self._backend.registry.control().stop is not None:
            return None
        if role.kind == "learner":
            return restart(self.fleet, member, self._learned(), self._monitor.event)
        # Unrolls are progress for every other role. An environment that has produced some may only be away for a while,
        # such as a simulator on another host.
        produced = self._monitor.ledger.produced
        may_pass = member.last_code == EnvironmentFailedError.exit_code and produced > 0
        return restart(self.fleet, member, (*self._reached, produced), self._monitor.event, may_pass=may_pass)

    def _learner_is_done(self, member: Member) -> Outcome | None:
        """Return the outcome if the learner has ended as asked, or has failed when it had reached its end."""
        code = member.last_code
        if code == 0 and (stop := self._backend.registry.control().stop) is not None:
            return Outcome(0, stop)
        if code is not None and (reached := self._reached_end()) is not None:
            why = self._unsaved() or member.last_error
            if code < 0 and why is None:  # it had saved everything, and its interpreter has crashed at its end
                return Outcome(0, reached)
            return Outcome(max(code, 1), reached, f"learner: {why or f'exit code {code}'}")
        return None

    def _out_of_time(self) -> Outcome | None:
        """Return the outcome if `stop.minutes` are over, and no learner has counted them from the beginning."""
        over, learner = self._time_limit.is_over(trains=self._learner_trains), self.fleet.members[LEARNER]
        if not over or (self._learner_trains and not learner.restarts):
            return None
        outcome = self._asked_to_stop("minutes", 0)
        if learner.last_code and self._learned() == (self._resumed_updates, 0):
            return Outcome(max(learner.last_code, 1), outcome.stop_reason, f"learner: {learner.last_error}")
        return outcome

    def _reached_end(self) -> str | None:
        """Return the stop condition by which the learner has ended the training."""
        stop = self._backend.registry.control().stop
        return stop if stop is not None and self._learner_decided(stop) else None

    def _unsaved(self) -> str | None:
        """Return from the last snapshot why the learner could not save: a full disk may lack its log as well."""
        try:
            snapshots = self._backend.registry.snapshots("0")
        except MemoryBackendError as error:
            self._monitor.event(str(error))
            return None
        last = snapshots[-1][1] if snapshots else {}
        unsaved = last.get("unsaved") if last.get("stop_reason") is not None else None
        return str(unsaved) if unsaved else None

    @property
    def _reached(self) -> tuple[int, int]:
        """Updates and used unrolls, by which a learner is alive: a replay memory is filled before the first update."""
        return self._monitor.updates, self._monitor.ledger.used

    def _learned(self) -> tuple[int, int]:
        """Return the updates behind the published weights, and trained unrolls, neither of which storing changes."""
        return self._backend.weights.progress().updates, self._backend.ledger.counts().trained

    def _let_go(self, role: Role) -> None:
        """Reclaim the tickets of an actor that has ended, and ignore the heartbeat that it left."""
        if role.kind == "learner":
            self._learner_trains = False
        # Read afresh: an incarnation can live and die between two looks.
        for status in self._backend.registry.roles():
            if Role.of(status) == role:
                if role.kind == "actor":
                    self._backend.tickets.reclaim((status.id, status.incarnation))
                self._watch.ended(status)

    def _start_some(self) -> None:
        """Start roles whose back-off is over and actors that are missing, a few of them, the learner first."""
        placed = self.fleet.members[LEARNER].is_placed
        again = self.fleet.start_due(STARTS_PER_ROUND, learner_alone=not placed)
        for member in again:
            self._monitor.fleet.restarts = self.fleet.restarts
            self._monitor.event(f"{member.role.name} started again (restart {member.restarts})")
        if not placed:
            return
        present = [member.role.id for member in self.fleet.actors]
        for _ in range(min(STARTS_PER_ROUND - len(again), self._target - len(present), self._room_to_start())):
            present.append(self._free_id(max(present, default=-1) + 1))
            self.fleet.add(Role("actor", present[-1]))
        if self._scaling_from is not None and len(present) == self._target:
            self._monitor.event(f"scaled from {self._scaling_from} to {self._target} actors")
            self._scaling_from = None

    def _free_id(self, actor: int) -> int:
        """Return the first id from `actor` on that no actor has which has joined by hand."""
        while Role("actor", actor) in self._reported:
            actor += 1
        return actor

    def _room_to_start(self) -> int:
        """Return how many actors may start now: those that import leave no core to the learner and `distrl stop`."""
        if self._config.launch.ray_address is not None:  # the cluster places them
            return self._target
        starting = [member for member in self.fleet.actors if member.handle and member.role not in self._reported]
        return ACTORS_PER_CORE * cores() - len(starting)

    def _look_for_places(self) -> None:
        """Report roles for which a cluster has no place; let an actor make room where the learner is one."""
        waiting: dict[Role, str] = {}
        for role, member in self.fleet.members.items():
            needs = None if member.handle is None else member.handle.waits_for
            if needs is None or self._awake.age_s(member.started_at) < PATIENCE_S:
                continue
            waiting[role] = needs
            self._places_beats += 1
            status = RoleStatus(role.kind, role.id, 0, "-", 0, f"waiting: place, needs {needs}", self._places_beats)
            self._backend.registry.beat(status)
            if role not in self._without_place:
                self._monitor.event(f"no place for {role.name}: needs {needs}")
        for role in self._without_place.keys() - waiting.keys():
            if role in self.fleet.members:
                self._monitor.event(f"{role.name} waits for a place no longer")
        self._without_place = waiting
        if LEARNER in waiting and self._awake.age_s(self._made_room_at) >= PATIENCE_S:
            self._make_room()

    def _make_room(self) -> None:
        """Kill the actor with the highest id that has a place: without a learner it would only wait."""
        for member in reversed(self.fleet.actors):
            if member.handle is not None and member.is_placed:
                self._made_room_at = self._awake.look()
                member.killed_for = "it makes room for the learner"
                member.handle.kill()
                return

    def _scale(self, target: int, *, forced: bool) -> None:
        """Follow an operator's request: retire the highest ids at once; `_start_some` adds actors."""
        if not self._most or target < 1 or (target > self._most and not forced):
            allowed = f"1 to {self._most} are allowed (actors.max_count)" if self._most else "they join by themselves"
            self._monitor.event(f"not scaled to {target} actors: {allowed}")
            self._backend.registry.set_control(target_actors=self._target)  # other readers follow it, too
            return
        if self._scaling_from is None:
            self._scaling_from = self._target
        self._target = target
        self._monitor.fleet.actors = target
        retired = [self.fleet.retire(member.role) for member in self.fleet.actors[target:]]
        end(retired, ACTOR_GRACE_S)
        for member in retired:
            self._let_go(member.role)
            self._backend.registry.forget_actor(member.role.id)

    def _kill_if_hung(self, status: RoleStatus) -> None:
        """Kill an actor or evaluator whose environment step or heartbeat is too old."""
        role = Role.of(status)
        member = self.fleet.members.get(role)
        if role.kind == "learner" or (member is not None and (member.handle is None or member.killed_for)):
            return
        overdue = self._watch.overdue(status)
        if overdue is None:
            return
        if member is None:  # joined by hand: it cannot be ended from here, but its tickets go back
            self._let_go(role)
            if role.kind == "actor":
                self._backend.registry.forget_actor(role.id)
            self._monitor.event(f"{role.name}, joined by hand, has been silent for {overdue.age_s:.0f} s: forgotten")
        elif member.handle is not None:
            member.killed_for = overdue.why
            member.handle.kill()

    def _awaits_actors(self, statuses: Sequence[RoleStatus]) -> bool:
        """Return whether nothing can be learned because no actor of another host is there; report a change."""
        awaits = not self._config.launch.start_actors and not any(status.role == "actor" for status in statuses)
        if awaits != self._without_actors:
            self._without_actors = awaits
            self._monitor.event("no actor is there: waiting until actors join" if awaits else "actors have joined")
        return awaits

    def _check_progress(self, statuses: Sequence[RoleStatus], *, paused: bool) -> Outcome | None:
        before, since = self._progress
        age_s = self._awake.age_s(since)
        ready = self._is_first_start and self._learner_trains  # the start and the first update have a clock each
        if ready or any(self._reached):
            self._is_first_start = False
        if paused or ready or self._reached != before:
            self._progress = (self._reached, self._awake.look())
            if self._quiet and not paused:
                self._monitor.event(f"learning again after {age_s:.0f} s")
            if any(before) and not paused:
                self._usual_s = age_s
            self._quiet = False
            return None
        if age_s > max(QUIET_S, 3.0 * self._usual_s) and self._monitor.updates and not self._quiet:
            self._quiet = True
            self._monitor.event(f"nothing learned for {age_s:.0f} s: {_states(statuses)}")
        if age_s <= self._config.learner.stall_timeout_s:
            return None
        what = f"no update for {age_s:.0f} s (learner.stall_timeout_s)"
        error = StalledError(f"{what}; {self._keep_report(stall_report(self._backend, what))}")
        return Outcome.of(error)

    def _keep_report(self, report: str) -> str:
        """Write the report, or log it where the disk refuses; return where it is."""
        path = self._log_dir / "stall.txt"
        try:
            path.write_text(report, encoding="utf-8")
        except OSError as error:
            for line in report.splitlines():
                self._monitor.event(line)
            return f"the stacks of all roles are above, as they cannot be written: {error}"
        return f"{path} has the stacks of all roles"

    def _end_roles(self) -> tuple[int, str] | None:
        """End the learner first, so that it saves, then all others; return code and reason if it could not save."""
        learner = self.fleet.members.get(LEARNER)
        failure = self._end_learner(learner.handle) if learner is not None and learner.handle is not None else None
        end([member for role, member in self.fleet.members.items() if role != LEARNER], ACTOR_GRACE_S)
        return failure

    def _end_learner(self, handle: Handle) -> tuple[int, str] | None:
        starting = self._learner_is_starting()
        handle.terminate()
        if starting and not have_ended([handle], STARTING_GRACE_S):
            starting = self._learner_is_starting()
        if too_late := not have_ended([handle], 0.0 if starting else self._learner_grace_s):
            handle.kill()
        code = handle.poll() or 0
        if code == 0 or (code < 0 and starting):
            return None
        if code > 0:
            return code, self._unsaved() or handle.error or f"exit code {code}, and no error in its log"
        return 1, f"killed after {self._learner_grace_s:g} s" if too_late else f"signal {-code}"

    @property
    def _learner_grace_s(self) -> float:
        """Seconds that a learner may take to save, and to wait for the data store."""
        checkpoint = self._config.checkpoint
        return LEARNER_GRACE_S + (0.0 if checkpoint.store is None else checkpoint.store_give_up_s)

    def _learner_is_starting(self) -> bool:
        """Return whether the learner imports or builds: before it trains, its heartbeat has incarnation 0, or none."""
        if self._learner_trains:
            return False
        try:
            return not any(map(self._is_training, self._backend.registry.roles()))
        except MemoryBackendError:
            return True  # it did not train when Redis last answered

    def _is_training(self, status: RoleStatus) -> bool:
        return status.role == "learner" and self._watch.is_current(status)


def _actors(count: int) -> str:
    return "1 actor" if count == 1 else f"{count} actors"


def _states(statuses: Sequence[RoleStatus]) -> str:
    no_actor = "" if any(status.role == "actor" for status in statuses) else ", no actor is up"
    return role_states([asdict(status) for status in statuses]) + no_actor
