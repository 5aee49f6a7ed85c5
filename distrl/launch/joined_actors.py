"""Actors that join a run from this host: started a few at a time, restarted within the budget, and ended in order.

With `actors.inference: host` they have an inference server of this host beside them.

The supervisor of the run does not know them as its members. Their parent here does what it would do: it ends actors
that hang, gives back their tickets, and follows the run to its end.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from distrl.errors import FencedError, MemoryBackendError, MissingRunError, OutageError, RunKeyError
from distrl.interrupt import Interrupt
from distrl.launch.fleet import Fleet, FleetMember, HangWatch, Launcher, end
from distrl.launch.outcome import Outcome
from distrl.launch.processes import ProcessLauncher
from distrl.launch.restarts import fatal_end, restart
from distrl.launch.run_to_join import KEYS_REMOVED, RunToJoin
from distrl.machine import cores
from distrl.memory_backend.backend import Backend, connect
from distrl.memory_backend.records import RoleStatus
from distrl.metrics.phrases import role_states
from distrl.roles.description import LaunchedRun, RunAddress
from distrl.roles.join import join
from distrl.roles.plan import Role
from distrl.roles.suspend_clock import AwakeClock

TICK_S = 0.05
LOOK_EVERY_S = 0.5
WAIT_S = 1.0
"""Time between two looks for a run that does not exist yet."""
REPORT_EVERY_S = 60.0
LEAVE_GRACE_S = 25.0
"""Time for actors to finish their unrolls; cluster managers often kill 30 s after they have asked."""
PIECE_S = 3.0
"""Longest time that one operation waits for Redis, so that signals are seen meanwhile."""

Report = Callable[[str], None]


def join_actors(
    to_join: RunToJoin, count: int, *, wait: bool, log_dir: Path, report: Report, interrupt: Interrupt
) -> Outcome:
    """Run `count` actors on this host until the run ends, `interrupt` is set, or they fail for good.

    Args:
        to_join: Looked at for each launch of the run: its key, and the address of its Redis, may be new.
        wait: Wait for a run that does not exist yet, for the next launch of one that is gone without having ended, and
            for the file with its key; wait through outages of Redis of any length.
        log_dir: Folder of the actors' logs, made if missing.

    Raises:
        ConfigError: The run's description is not signed by its key, or names code that must not be imported.
        MemoryBackendError: There is no such run, Redis cannot be reached for `memory.give_up_s`, or refuses for good.
    """
    told = ""
    while interrupt.code is None:
        if (ended := to_join.ended()) is not None:
            report(f"the run has ended: {ended}")
            return Outcome(0, ended)
        try:
            run, told = _found(to_join), ""
            outcome = _stay(run, count, interrupt, report, log_dir, to_join, patient=wait)
            if interrupt.code is not None or not (wait and to_join.leave_launch(outcome.stop_reason)):
                return outcome
        except (MissingRunError, FencedError, OutageError, RunKeyError) as error:
            if not wait or (isinstance(error, RunKeyError) and not to_join.may_change):
                raise
            again = isinstance(error, FencedError)
            line = f"run {to_join.name} was launched again: joining the new launch" if again else f"waiting: {error}"
            if line != told:
                told = line
                report(told)
            time.sleep(WAIT_S)
    return Outcome(interrupt.code, interrupt.name)


def _found(to_join: RunToJoin) -> LaunchedRun:
    redis_url, run_id = to_join.address()
    with closing(connect(redis_url, run_id, name="actors", give_up_s=PIECE_S)) as backend:
        backend.config_json()  # raises if there is no such run, before the key is read
    backend, run = join(RunAddress(redis_url, run_id, to_join.trust()), Role("actor"))
    backend.close()
    return run


def _stay(
    run: LaunchedRun,
    count: int,
    interrupt: Interrupt,
    report: Report,
    log_dir: Path,
    to_join: RunToJoin,
    *,
    patient: bool,
) -> Outcome:
    with suppress(OSError):  # the launcher says which logs it cannot open
        log_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as cleanup:
        backend = run.open_backend("actors", give_up_s=PIECE_S)
        cleanup.callback(backend.close)
        launcher = ProcessLauncher(run, report=report, log_dir=log_dir)
        cleanup.callback(launcher.close)
        report(f"joined run {run.address.run_id} at {backend.engine.url} with {_actors(count)}; logs in {log_dir}")
        return JoinedActors(run, backend, launcher, count, interrupt, report, to_join, patient=patient).run()


class JoinedActors:
    """The parent of this host's actors; reads `interrupt` in every round.

    Args:
        backend: Gives up after a few seconds, see `PIECE_S`.
        to_join: Says in an outage whether the run has ended, or was launched again elsewhere.
        patient: Wait through outages of any length.
    """

    def __init__(
        self,
        run: LaunchedRun,
        backend: Backend,
        launcher: Launcher,
        count: int,
        interrupt: Interrupt,
        report: Report,
        to_join: RunToJoin,
        *,
        patient: bool,
    ) -> None:
        self._to_join = to_join
        self._run, self._backend, self._registry = run, backend, backend.registry
        self._count, self._interrupt, self._report, self._patient = count, interrupt, report, patient
        self._awake = AwakeClock()
        self._watch = self._new_watch()
        self._statuses: list[RoleStatus] = []
        self._looked_at = self._reported_at = float("-inf")
        self._acted = False
        self._away_since: float | None = None  # since when Redis has not answered
        self._fleet = Fleet(launcher, run.config.actors.restart_budget)

    def run(self) -> Outcome:
        """Return when all actors have ended.

        Raises:
            KeyboardInterrupt: At a second signal. Actors are not waited for; they end by themselves.
            MemoryBackendError: See `join_actors`.
        """
        try:
            while (outcome := self._round()) is None:
                time.sleep(TICK_S)
        except Exception:
            self._leave()
            raise
        self._leave()
        return outcome

    def _round(self) -> Outcome | None:
        now = self._awake.look()
        if self._interrupt.code is not None:
            self._report(f"leaving ({self._interrupt.name}): every actor delivers the unroll that it has begun")
            return Outcome(self._interrupt.code, self._interrupt.name)
        dead = self._fleet.dead()
        if dead or now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            if (outcome := self._look()) is not None:
                return outcome
        for member in dead:
            if (outcome := self._bury(member)) is not None:
                return outcome
        if self._away_since is None:
            self._start_some()
        return None

    def _look(self) -> Outcome | None:
        """Read the run's state and the actors' heartbeats; return the outcome if the run is over."""
        began = time.monotonic()  # the clock of suspended time takes the waits for Redis for naps
        try:
            stop = self._registry.control().stop
            self._backend.check_launch()
            self._statuses = self._registry.heartbeats([role.key for role in self._fleet.members])
        except OutageError as error:
            return self._wait_for_redis(error, began)
        except MissingRunError as error:
            if not error.ended:
                raise
            stop = stop or KEYS_REMOVED
        if self._away_since is not None:
            self._report(f"Redis answers again after {time.monotonic() - self._away_since:.0f} s")
            self._away_since, self._watch = None, self._new_watch()
        if stop is not None:
            self._report(f"the run ends: {stop}")
            return Outcome(0, stop)
        for status in self._statuses:
            self._kill_if_hung(status)
        self._report_states()
        return None

    def _wait_for_redis(self, error: OutageError, began: float) -> Outcome | None:
        """Wait for `memory.give_up_s`, or longer if this host is patient; return the outcome if the run is over.

        Args:
            began: When the operation began that Redis has not answered.

        Raises:
            OutageError: The time is over.
            FencedError: The run was launched again, and this Redis will not come back.
        """
        if self._to_join.moved():
            raise FencedError(f"run {self._run.address.run_id} was launched again")
        if (stop := self._to_join.launch_ended()) is not None:
            self._report(f"the launch has ended: {stop}")
            return Outcome(0, stop)
        if self._away_since is None:
            self._away_since = began
            self._report(f"{error}; waiting")
        elif not self._patient and time.monotonic() - self._away_since > self._run.config.memory.give_up_s:
            raise error
        return None

    def _bury(self, member: FleetMember) -> Outcome | None:
        """Handle the end of an actor: schedule another start, or return the outcome if it failed for good."""
        if (outcome := fatal_end(member)) is not None:
            return outcome
        self._let_go(member.role)
        progress = sum(status.env_steps for status in self._statuses)
        return restart(self._fleet, member, (progress,), self._report)

    def _let_go(self, role: Role) -> None:
        """Give back the ticket of an actor that has ended, and ignore the heartbeat that a role has left."""
        with suppress(OutageError):  # then the supervisor does so, once it misses the heartbeat
            for status in self._registry.heartbeats([role.key]):
                if role.kind == "actor":
                    self._backend.tickets.reclaim((status.id, status.incarnation))
                self._watch.ended(status)

    def _start_some(self) -> None:
        """Start actors that are due or missing, not more at a time than there are cores: each imports for seconds.

        Before the first one comes the inference server of this host, with its number, if the run has such servers.
        """
        reported = {Role.of(status) for status in self._statuses if self._watch.is_current(status)}
        starting = sum(m.handle is not None and m.role not in reported for m in self._fleet.actors)
        room = max(cores() - starting, 0)
        room -= len(self._fleet.start_due(room))
        with suppress(OutageError, MissingRunError, FencedError):  # the next look judges it
            for _ in range(min(room, self._count - len(self._fleet.actors))):
                actor = self._registry.claim_actor()
                if self._run.config.actors.inference == "host" and not self._fleet.members:
                    self._fleet.add(Role("inference", actor))
                self._fleet.add(Role("actor", actor))

    def _kill_if_hung(self, status: RoleStatus) -> None:
        member = self._fleet.members[Role.of(status)]
        if member.handle is None or member.killed_for or (overdue := self._watch.overdue(status)) is None:
            return
        member.killed_for = overdue.why
        member.handle.kill()

    def _report_states(self) -> None:
        """Report once when all actors act, and then once a minute."""
        now, up = self._awake.look(), [status for status in self._statuses if self._watch.is_current(status)]
        acting = sum(status.state == "acting" for status in up)
        all_act_now = acting == self._count and not self._acted
        if not up or not (all_act_now or now - self._reported_at >= REPORT_EVERY_S):
            return
        self._acted, self._reported_at = self._acted or all_act_now, now
        rate = sum(status.env_steps_per_s for status in up)
        states = role_states([{"role": status.role, "state": status.state} for status in up])
        self._report(f"{states}; {rate:,.0f} steps/s" if rate else states)  # the first heartbeats have no rate

    def _leave(self) -> None:
        """End all actors, which deliver their unrolls, and remove their heartbeats from the run."""
        members = [*self._fleet.members.values()]
        end(members, LEAVE_GRACE_S)  # an inference server serves until the last actor has left
        with suppress(MemoryBackendError):  # the supervisor forgets them, once it misses their heartbeats
            for member in members:
                self._let_go(member.role)
                self._registry.forget(member.role.key)
        if count := len(self._fleet.actors):
            self._report(f"{_actors(count)} of this host {'has' if count == 1 else 'have'} left")

    def _new_watch(self) -> HangWatch:
        return HangWatch(self._run.config, self._awake)


def _actors(count: int) -> str:
    return "1 actor" if count == 1 else f"{count} actors"
