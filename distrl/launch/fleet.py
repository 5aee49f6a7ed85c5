"""The roles that are up: started, restarted with back-off within a budget, watched for hangs, and ended in order."""

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, Protocol

from distrl.config import RunConfig
from distrl.inference.states import SERVING
from distrl.learner.intake import DEATHS
from distrl.memory_backend.records import RoleStatus
from distrl.role_kinds import KINDS
from distrl.roles.join import MAKING
from distrl.roles.plan import Role
from distrl.roles.suspend_clock import AwakeClock

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 5.0
LONGEST_OUTAGE_BACKOFF_S = 30.0
HEALTHY_S = 30.0
"""A role that lived so long did not fail at its start, so that its back-off begins anew."""
BUDGET_WINDOW_S = 600.0
LOG_TAIL_BYTES = 65536


class Handle(Protocol):
    """One started role, wherever it runs."""

    role: Role

    @property
    def error(self) -> str | None:
        """Last error that the role logged, once it has ended."""

    @property
    def waits_for(self) -> str | None:
        """Resources without which a cluster cannot start the role; None once it has its place."""

    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Launcher(Protocol):
    """Starts roles; `close` after the last one has ended."""

    def start(self, role: Role) -> Handle: ...
    def close(self) -> None: ...


SAME_ERROR = DEATHS + 1
"""Equal errors in a row that are hopeless: once more than learners may die of one unroll, which the next one drops."""
BUSY = (MAKING, "starting", "acting", "evaluating", SERVING)
"""States in which a role runs its environment or computes; in all others it waits for another role."""


@dataclass
class FleetMember:
    """One role of the plan over all its incarnations."""

    role: Role
    handle: Handle | None = None
    start_at: float = 0.0  # monotonic seconds; when it is down, the time of the next start
    deaths: deque[float] = field(default_factory=deque)
    started_at: float = 0.0
    short_lives: int = 0  # in a row
    restarts: int = 0
    last_code: int | None = None
    last_error: str | None = None
    killed_for: str | None = None  # until it is found dead
    was_killed: bool = False  # whether its parent ended it so
    errors: deque[tuple[str, tuple[int, ...]]] = field(default_factory=lambda: deque(maxlen=SAME_ERROR))

    @property
    def is_placed(self) -> bool:
        """Whether the role runs, and not only waits for its place on a cluster."""
        return self.handle is not None and self.handle.waits_for is None

    def repeats(self, error: str | None, reached: tuple[int, ...]) -> bool:
        """Record an end; return whether the last ends had one error, numbers apart, and no progress in between.

        Args:
            error: None: the end was of another kind, and the count begins anew.
            reached: Progress of the run.
        """
        if error is None:
            self.errors.clear()
            return False
        self.errors.append((re.sub(r"\d+", "#", error), reached))
        return len(self.errors) == SAME_ERROR and len(set(self.errors)) == 1


class Fleet:
    """Members by role; each may be restarted `restart_budget` times within ten minutes."""

    def __init__(self, launcher: Launcher, restart_budget: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._launcher = launcher
        self.budget = restart_budget
        self._clock = clock
        self.members: dict[Role, FleetMember] = {}
        self.restarts = 0  # of all roles, retired ones included

    def add(self, role: Role) -> None:
        self.members[role] = FleetMember(role, self._launcher.start(role), started_at=self._clock())

    @property
    def actors(self) -> list[FleetMember]:
        return [member for role, member in sorted(self.members.items()) if role.kind == "actor"]

    def dead(self) -> list[FleetMember]:
        """Return members that have ended since the last call; they stay down until `restart_later`."""
        found = []
        for member in self.members.values():
            if member.handle is not None and (code := member.handle.poll()) is not None:
                logged = member.handle.error if code > 0 else None  # a role that a signal ends logs no error
                member.last_code, member.last_error = code, member.killed_for or logged
                member.was_killed, member.killed_for = member.killed_for is not None, None
                member.handle, member.start_at = None, float("inf")
                found.append(member)
        return found

    def restart_later(self, member: FleetMember, *, outage: bool = False) -> float | None:
        """Schedule a restart; return the delay in seconds, None when the budget is spent.

        Args:
            outage: The role's host does not reach Redis, which may last long. The role waits longer and spends
                nothing of the budget, unless the budget is 0.
        """
        now = self._clock()
        while member.deaths and now - member.deaths[0] > BUDGET_WINDOW_S:
            member.deaths.popleft()
        if len(member.deaths) >= self.budget and not (outage and self.budget):
            return None
        if now - member.started_at >= HEALTHY_S:
            member.short_lives = 0
        longest_s = LONGEST_OUTAGE_BACKOFF_S if outage else LONGEST_BACKOFF_S
        delay = min(FIRST_BACKOFF_S * 2.0 ** min(member.short_lives, 10), longest_s)
        member.short_lives += 1
        if not outage:
            member.deaths.append(now)
        member.start_at = now + delay
        return delay

    def start_due(self, most: int, *, learner_alone: bool = False) -> list[FleetMember]:
        """Start at most `most` members whose back-off is over; with `learner_alone` only the learner."""
        may = [m for role, m in self.members.items() if role.kind == "learner" or not learner_alone]
        due = [m for m in may if m.handle is None and self._clock() >= m.start_at][:most]
        for member in due:
            member.handle, member.started_at = self._launcher.start(member.role), self._clock()
            member.restarts += 1
            self.restarts += 1
        return due

    def retire(self, role: Role) -> FleetMember:
        """Ask a role to end and forget it; the caller waits with `end`."""
        member = self.members.pop(role)
        if member.handle is not None:
            member.handle.terminate()
        return member


class Overdue(NamedTuple):
    """A role that hangs: seconds without a sign of work, and the reason to kill it."""

    age_s: float
    why: str


class HangWatch:
    """Remembers when each role's newest heartbeat was first seen."""

    def __init__(self, config: RunConfig, awake: AwakeClock) -> None:
        self._step_s = config.environment.step_timeout_s
        self._making_s = config.making_timeout_s
        self._awake = awake
        self._seen: dict[Role, tuple[int, int, float]] = {}  # incarnation, beat, when it was first seen
        self._ended: dict[Role, RoleStatus] = {}

    def overdue(self, status: RoleStatus) -> Overdue | None:
        """Return how long the role has done no work or sent no heartbeat if that is too long, else None."""
        role, now = Role.of(status), self._awake.look()
        if not self.is_current(status):
            return None
        incarnation, beat, since = self._seen.get(role, (0, 0, now))
        if (incarnation, beat) != (status.incarnation, status.beat):
            since = now
            self._seen[role] = (status.incarnation, status.beat, since)
        busy = status.state in BUSY
        age_s = self._awake.age_s(since) + busy * status.last_step_age_s
        if status.state == MAKING:
            why = f"no environment was made in {age_s:.0f} s (half of learner.stall_timeout_s)"
            return Overdue(age_s, why) if age_s > self._making_s else None
        work = "environment step" if KINDS[role.kind].steps_environments else "answer"
        why = f"no {work if busy else 'heartbeat'} for {age_s:.0f} s (environment.step_timeout_s)"
        return Overdue(age_s, why) if age_s > self._step_s else None

    def is_current(self, status: RoleStatus) -> bool:
        """Return whether the heartbeat's incarnation is not known to have ended.

        After a fail-over that forgot an incarnation, another process may have the same number.
        """
        ended = self._ended.get(Role.of(status))
        if ended is None or status.incarnation != ended.incarnation:
            return status.incarnation > (0 if ended is None else ended.incarnation)
        return status.incarnation > 0 and (status.host, status.pid) != (ended.host, ended.pid)

    def ended(self, status: RoleStatus) -> None:
        """Ignore that incarnation from now on: its heartbeat stays until the next one's."""
        role = Role.of(status)
        before = self._ended.get(role)
        if before is None or status.incarnation >= before.incarnation:
            self._ended[role] = status


def end(members: Iterable[FleetMember], grace_s: float) -> None:
    """Ask members to end, wait up to `grace_s` seconds for all of them together, then kill."""
    up = [member.handle for member in members if member.handle is not None]
    for handle in up:
        handle.terminate()
    if not have_ended(up, grace_s):
        for handle in up:
            if handle.poll() is None:
                handle.kill()


def how_it_ended(code: int, error: str | None) -> str:
    """Return 'exit code 3: what was wrong', 'signal 9', or that it ended in order though it was not asked to."""
    if code == 0:
        return "exit code 0, though the run goes on"
    return f"{f'signal {-code}' if code < 0 else f'exit code {code}'}{f': {error}' if error else ''}"


def have_ended(handles: Sequence[Handle], within_s: float) -> bool:
    """Wait until all have ended, for `within_s` seconds at most; return whether they have."""
    deadline = time.monotonic() + within_s
    while running := any(handle.poll() is None for handle in handles):
        if time.monotonic() >= deadline:
            break
        time.sleep(0.02)
    return not running


def last_error(log: IO[Any], start: int = 0) -> str | None:
    """Return the last one-line error in a log; bytes before `start` are of an earlier incarnation."""
    size = os.fstat(log.fileno()).st_size
    tail = os.pread(log.fileno(), LOG_TAIL_BYTES, max(start, size - LOG_TAIL_BYTES))  # the role shares the position
    lines = tail.decode(errors="replace").splitlines()
    marked = [line.split("distrl: error: ", 1)[1] for line in lines if "distrl: error: " in line]
    return marked[-1] if marked else None
