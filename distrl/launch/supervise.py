"""The supervise loop, for processes and Ray alike: watch, restart, scale, time out, and end the run in order."""

import os
import socket
import time
from pathlib import Path

from distrl.config import RunConfig
from distrl.errors import EnvironmentFailedError, MemoryBackendError
from distrl.interrupt import Interrupt
from distrl.launch.fleet import Fleet, FleetMember, Handle, HangWatch, Launcher, end, have_ended
from distrl.launch.monitor import Monitor
from distrl.launch.outcome import Outcome
from distrl.launch.places import Places
from distrl.launch.restarts import fatal_end, restart
from distrl.launch.scaling import ACTOR_GRACE_S, Scaling
from distrl.launch.stall_watch import StallWatch
from distrl.launch.time_limit import TimeLimit
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import AWAITS_EVALUATION, RoleStatus
from distrl.metrics.phrases import COMPILING
from distrl.roles.plan import LEARNER, Role, roles_beside_actors
from distrl.roles.suspend_clock import AwakeClock

TICK_S = 0.05
REGISTRY_EVERY_S = 0.5
LEARNER_GRACE_S = 30.0
STARTING_GRACE_S = 2.0
"""Grace for a learner that starts or compiles. Longer than the time between two heartbeats: it may train by now."""
STARTS_PER_ROUND = 2
"""Roles that are started before signals and requests are read again."""


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
        self._config, self._backend, self._monitor, self._interrupt = config, backend, monitor, interrupt
        self._awake = AwakeClock()
        self._watch = HangWatch(config, self._awake)
        updates, trained_s = resumed
        self._time_limit = TimeLimit(config.stop.minutes, trained_s, self._awake)
        timeout_s = config.learner.stall_timeout_s
        self._stall_watch = StallWatch(
            *(backend, monitor, self._awake), resumed_updates=updates, timeout_s=timeout_s, log_dir=log_dir
        )
        self.fleet = Fleet(launcher, config.actors.restart_budget)
        self._scaling = Scaling(config, self.fleet, monitor, backend.registry, self._let_go)
        self._places = Places(self.fleet, self._awake, backend.registry, monitor.event)
        self._learner_trains = False
        self._registry_at = 0.0
        self._beats = 0

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
        self._backend.registry.beat_supervisor(self._scaling.described(socket.gethostname(), os.getpid(), self._beats))
        if self._config.memory.url is not None:  # a server of the run's own ends with it
            self._backend.keep(self._config.memory.keep_s)

    def _look_at_registry(self) -> Outcome | None:
        self._beat()
        control = self._backend.registry.control()
        self._monitor.report_requests(self._backend)
        if control.stop is not None and not self._learner_decided(control.stop):
            return self._asked_to_stop(control.stop, 0)
        self._scaling.obey(control)
        self._places.look()
        statuses = [status for status in self._backend.registry.roles() if self._is_up(status)]
        self._learner_trains = any(map(self._is_training, statuses))
        for status in statuses:
            self._kill_if_hung(status)
        self._scaling.autoscale(control, statuses)
        self._monitor.update(self._backend, statuses)
        if (outcome := self._out_of_time()) is not None:
            return outcome
        awaits_actors = control.stop is None and self._scaling.awaits_actors(statuses)  # at the end all have left
        awaits_evaluation = any(status.state == AWAITS_EVALUATION for status in statuses)
        paused = control.paused or awaits_actors or awaits_evaluation
        return self._stall_watch.check(statuses, learner_trains=self._learner_trains, paused=paused)

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

    def _bury(self, member: FleetMember) -> Outcome | None:
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
            return restart(self.fleet, member, self._stall_watch.learned(), self._monitor.event)
        # Unrolls are progress for every other role. An environment that has produced some may only be away for a while,
        # such as a simulator on another host.
        produced = self._monitor.ledger.produced
        may_pass = member.last_code == EnvironmentFailedError.exit_code and produced > 0
        return restart(
            self.fleet, member, (*self._stall_watch.reached, produced), self._monitor.event, may_pass=may_pass
        )

    def _learner_is_done(self, member: FleetMember) -> Outcome | None:
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
        if learner.last_code and not self._stall_watch.has_learned():
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
        self._scaling.start_missing(STARTS_PER_ROUND - len(again))

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
            if role.kind != "evaluator":  # the next one has its heartbeat
                self._backend.registry.forget(role.key)
            self._monitor.event(f"{role.name}, joined by hand, has been silent for {overdue.age_s:.0f} s: forgotten")
        elif member.handle is not None:
            member.killed_for = overdue.why
            member.handle.kill()

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
            starting = starting or self._learner_is_starting()  # a compilation shows after a second
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
        """Return whether the learner has nothing to save yet, and cannot end by itself: it imports, builds or compiles.

        Before it compiles, its heartbeat has incarnation 0, or there is none.
        """
        try:
            states = [status.state for status in self._backend.registry.roles() if self._is_training(status)]
        except MemoryBackendError:
            states = []  # as when Redis last answered
        return states[-1].startswith(COMPILING) if states else not self._learner_trains

    def _is_training(self, status: RoleStatus) -> bool:
        return status.role == "learner" and self._watch.is_current(status)
