"""The watch over a run's progress: that nothing is learned is reported, and ends the run at the time-out."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from distrl.errors import StalledError
from distrl.launch.monitor import Monitor
from distrl.launch.outcome import Outcome
from distrl.launch.stall_report import stall_report
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import RoleStatus
from distrl.metrics.phrases import COMPILING, READING, role_states
from distrl.roles.suspend_clock import AwakeClock

QUIET_S = 15.0
"""Longest time without an update before the states of roles are reported; where updates take long, three of them."""

COMPILING_TIMEOUTS = 10


class StallWatch:
    """Watches updates and unrolls of a run over its launch.

    Args:
        resumed_updates: Updates behind the checkpoint that the run goes on from.
        timeout_s: `learner.stall_timeout_s`.
        log_dir: Where the stacks of all roles are written when the run stalls.
    """

    def __init__(
        self,
        backend: Backend,
        monitor: Monitor,
        awake: AwakeClock,
        *,
        resumed_updates: int,
        timeout_s: float,
        log_dir: Path,
    ) -> None:
        self._backend, self._monitor, self._awake = backend, monitor, awake
        self._resumed_updates, self._timeout_s, self._log_dir = resumed_updates, timeout_s, log_dir
        self._is_first_start = True  # no learner has trained yet
        self._newest = ((0, 0), awake.look())  # `reached`, and when it last changed
        self._quiet = False
        self._compiling = False
        self._usual_s = 0.0  # from the last progress but one to the last

    @property
    def reached(self) -> tuple[int, int]:
        """Updates and used unrolls, by which a learner is alive: a replay memory is filled before the first update."""
        return self._monitor.updates, self._monitor.ledger.used

    def learned(self) -> tuple[int, int]:
        """Return the updates behind the published weights, and trained unrolls, neither of which storing changes."""
        return self._backend.weights.progress().updates, self._backend.ledger.counts().trained

    def has_learned(self) -> bool:
        """Return whether this launch has trained on anything."""
        return self.learned() != (self._resumed_updates, 0)

    def check(self, statuses: Sequence[RoleStatus], *, learner_trains: bool, paused: bool) -> Outcome | None:
        """Report that nothing is learned, and that it is again; return the outcome at the time-out.

        A compilation does not count. It has a time-out of its own, `COMPILING_TIMEOUTS` times as long.

        Args:
            statuses: Heartbeats of the roles that are up.
            paused: Whether nothing is to be learned now.
        """
        compiling = any(status.state.startswith(COMPILING) for status in statuses)
        if compiling != self._compiling:
            self._compiling, self._newest = compiling, (self._newest[0], self._awake.look())
        before, since = self._newest
        age_s = self._awake.age_s(since)
        ready = self._is_first_start and learner_trains  # the start and the first update have a clock each
        if ready or any(self.reached):
            self._is_first_start = False
        if paused or ready or self._reads(statuses) or self.reached != before:
            self._newest = (self.reached, self._awake.look())
            if self._quiet and not paused:
                self._monitor.event(f"learning again after {age_s:.0f} s")
            if any(before) and not paused:
                self._usual_s = age_s
            self._quiet = False
            return None
        usual_s = max(QUIET_S, 3.0 * self._usual_s)
        if age_s > usual_s and self._monitor.updates and not (self._quiet or compiling):
            self._quiet = True
            self._monitor.event(f"nothing learned for {age_s:.0f} s: {_states(statuses)}")
        if age_s <= self._timeout_s * (COMPILING_TIMEOUTS if compiling else 1):
            return None
        what = f"no update for {age_s:.0f} s (learner.stall_timeout_s)"
        return Outcome.of(StalledError(f"{what}; {self._keep(stall_report(self._backend, what))}"))

    def _reads(self, statuses: Sequence[RoleStatus]) -> bool:
        """Return whether the learner reads data, and goes on with that."""
        return any(status.state.startswith(READING) and status.last_step_age_s < self._timeout_s for status in statuses)

    def _keep(self, report: str) -> str:
        """Write the report, or log it where the disk refuses; return where it is."""
        path = self._log_dir / "stall.txt"
        try:
            path.write_text(report, encoding="utf-8")
        except OSError as error:
            for line in report.splitlines():
                self._monitor.event(line)
            return f"the stacks of all roles are above, as they cannot be written: {error}"
        return f"{path} has the stacks of all roles"


def _states(statuses: Sequence[RoleStatus]) -> str:
    no_actor = "" if any(status.role == "actor" for status in statuses) else ", no actor is up"
    return role_states([asdict(status) for status in statuses]) + no_actor
