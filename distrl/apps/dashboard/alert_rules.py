"""Rules of alerts and their state machine, pure functions of what is seen of the runs and of the time.

An alert is of one run and one rule. It fires once, is cleared after `CLEAR_S` without its reason, and is opened again,
silently, if the reason comes back within `AGAIN_S`. Runs that had ended before the first look cause no alert.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from distrl.apps.dashboard.alert_settings import RULES, AlertSettings
from distrl.apps.dashboard.severities import Severity
from distrl.errors import NonFiniteError
from distrl.metrics.snapshot import Snapshot, amount, number
from distrl.runs.summary import REASONS, duration, end_of

CLEAR_S = 30.0
AGAIN_S = 600.0
LATELY_S = 600.0
"""The end of a run that was not seen running is an alert if it is at most so long ago: other runs are copies."""
MOST_ALERTS = 200
"""The newest ones are kept."""
FIRST_STEPS = 5.0
"""Factor of `no_steps_s` before the first steps: a framework is imported, and hosts are waited for."""
LONGEST_TEXT = 300
MOST_ROLES = 3
"""Most silent roles that are named."""


@dataclass(frozen=True)
class RunReading:
    """One look at one run.

    Attributes:
        id: Id of the run in addresses.
        state: As `dashboard.index.IndexedRun.state`.
        started: Launch, in seconds since 1970.
        ended: End of a run that has ended, in seconds since 1970; the launch of other runs.
        snapshot: Newest numbers of a running run; those of the summary of one that has ended.
        paused: Also while it stops, and while it pretrains.
        ages_s: Name of a role -> age of its newest heartbeat in seconds.
        restarts: Number of restarts of roles.
        problem: Why the numbers are out of date, or the damage.
    """

    id: str
    name: str
    state: str
    started: float = 0.0
    ended: float = 0.0
    snapshot: Snapshot = field(default_factory=dict)
    paused: bool = False
    ages_s: Mapping[str, float] = field(default_factory=dict)
    restarts: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class Alert:
    """One alert; `at` and `cleared` are seconds since 1970, `cleared` is None while its reason lasts."""

    id: int
    rule: str
    severity: Severity
    run: str
    name: str
    text: str
    at: float
    cleared: float | None = None


class Change(NamedTuple):
    """An alert that has fired, or has been cleared."""

    event: Literal["fired", "cleared"]
    alert: Alert


@dataclass
class _Progress:
    """Memory of one running launch; times are of a monotonic clock."""

    started: float
    steps: float | None
    steps_at: float
    best: float | None = None
    best_steps: float = 0.0
    starved_at: float | None = None
    answered_at: float = 0.0

    def note(self, seen: RunReading, settings: AlertSettings, now: float) -> None:
        steps = number(seen.snapshot.get("env_steps"))
        if steps != self.steps or seen.paused:
            self.steps, self.steps_at = steps, now
        best = number(seen.snapshot.get("best_mean_return_100"))
        if best is not None and (self.best is None or best > self.best):
            self.best, self.best_steps = best, steps or 0.0
        starved = amount(seen.snapshot, "learner_wait_share") >= settings.starved_share and not seen.paused
        self.starved_at = (self.starved_at if self.starved_at is not None else now) if starved else None
        if seen.problem is None:
            self.answered_at = now


@dataclass
class _Standing:
    """State of one rule of one launch. `absent_at`: since when the reason is absent, by a monotonic clock."""

    alert: Alert
    started: float
    absent_at: float | None = None
    cleared_at: float | None = None


class Alerts:
    """The alerts of a dashboard; everything is bounded by the number of runs and `MOST_ALERTS`."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings
        self._count = 0
        self._first = True
        self._progress: dict[str, _Progress] = {}
        self._ends: dict[str, tuple[float, bool]] = {}  # runs that do not run -> their launch, whether its end is told
        self._standing: dict[tuple[str, str], _Standing] = {}
        self._alerts: dict[int, Alert] = {}  # oldest first

    @property
    def newest_first(self) -> list[Alert]:
        """All alerts that are kept."""
        return [*reversed(self._alerts.values())]

    def look(self, runs: Sequence[RunReading], now: float, at: float) -> list[Change]:
        """Take a look at all runs and return the changes.

        Args:
            now: Monotonic time in seconds.
            at: The same moment in seconds since 1970.
        """
        known = {seen.id for seen in runs}
        for memory in (self._progress, self._ends):
            for one in memory.keys() - known:
                del memory[one]
        changes: list[Change] = []
        for seen in runs:
            reasons = {
                rule: text for rule, text in self._reasons(seen, now, at).items() if rule not in self._settings.without
            }
            for rule, text in reasons.items():
                changes += self._fire(seen, rule, text, at)
            changes += self._clear(seen.id, reasons, now, at)
        for one in {run for run, _ in self._standing} - known:  # the run was removed
            changes += self._clear(one, {}, now, at)
        self._first = False
        return changes

    def _reasons(self, seen: RunReading, now: float, at: float) -> dict[str, str]:
        if seen.state == "running":
            progress = self._progress.get(seen.id)
            if progress is None or progress.started != seen.started:
                steps = number(seen.snapshot.get("env_steps"))
                progress = self._progress[seen.id] = _Progress(seen.started, steps, now, answered_at=now)
            progress.note(seen, self._settings, now)
            return running_reasons(seen, progress, self._settings, now)
        ran = self._progress.pop(seen.id, None) is not None
        launch, is_told = self._ends.get(seen.id, (None, False))
        if ran or launch != seen.started:
            is_told = ran or (not self._first and at - seen.ended <= LATELY_S)
            self._ends[seen.id] = (seen.started, is_told)
        return final_reasons(seen) if is_told else {}

    def _fire(self, seen: RunReading, rule: str, text: str, at: float) -> list[Change]:
        key, changes = (seen.id, rule), []
        standing = self._standing.get(key)
        if standing is not None and standing.started == seen.started:
            standing.absent_at = None
            if standing.cleared_at is not None:  # came back soon
                standing.cleared_at = None
                self._keep(standing, replace(standing.alert, cleared=None))
            return []
        if standing is not None and standing.cleared_at is None:  # of an earlier launch
            self._keep(standing, replace(standing.alert, cleared=at))
            changes.append(Change("cleared", standing.alert))
        self._count += 1
        shown = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
        alert = Alert(self._count, rule, RULES[rule], seen.id, seen.name, shown, at)
        self._standing[key] = _Standing(alert, seen.started)
        self._alerts[alert.id] = alert
        while len(self._alerts) > MOST_ALERTS:
            del self._alerts[next(iter(self._alerts))]
        return [*changes, Change("fired", alert)]

    def _clear(self, run: str, reasons: Mapping[str, str], now: float, at: float) -> list[Change]:
        changes = []
        for key in [key for key in self._standing if key[0] == run and key[1] not in reasons]:
            standing = self._standing[key]
            if standing.cleared_at is not None:
                if now - standing.cleared_at >= AGAIN_S:
                    del self._standing[key]
                continue
            standing.absent_at = now if standing.absent_at is None else standing.absent_at
            if now - standing.absent_at >= CLEAR_S:
                standing.cleared_at = now
                self._keep(standing, replace(standing.alert, cleared=at))
                changes.append(Change("cleared", standing.alert))
        return changes

    def _keep(self, standing: _Standing, alert: Alert) -> None:
        standing.alert = alert
        if alert.id in self._alerts:
            self._alerts[alert.id] = alert


def running_reasons(seen: RunReading, progress: _Progress, settings: AlertSettings, now: float) -> dict[str, str]:
    """Return rule -> reason, of a run that runs."""
    if now - progress.answered_at >= settings.silent_s:
        return {"unreachable": seen.problem or "its Redis does not answer"}
    if seen.problem is not None:  # the numbers are old
        return {}
    found = _roles_and_files(seen, settings)
    return found if seen.paused else found | _stillness(seen.snapshot, progress, settings, now)


def _roles_and_files(seen: RunReading, settings: AlertSettings) -> dict[str, str]:
    found = {}
    silent = [name for name, age_s in seen.ages_s.items() if age_s >= settings.silent_s]
    if silent:
        more = f" and {len(silent) - MOST_ROLES} more" if len(silent) > MOST_ROLES else ""
        found["silent"] = f"no heartbeat for {duration(settings.silent_s)}: {', '.join(silent[:MOST_ROLES])}{more}"
    for rule, told in (("unsaved", "no checkpoint can be written"), ("unstored", "the data store lacks checkpoints")):
        if seen.snapshot.get(rule):
            found[rule] = f"{told}: {seen.snapshot[rule]}"
    if seen.restarts > settings.restarts:
        found["restarts"] = f"roles were started again {seen.restarts} times"
    return found


def _stillness(snapshot: Snapshot, progress: _Progress, settings: AlertSettings, now: float) -> dict[str, str]:
    found = {}
    limit_s = settings.no_steps_s * (1.0 if progress.steps else FIRST_STEPS)
    if now - progress.steps_at >= limit_s:
        new = "new" if progress.steps else "first"
        found["no_steps"] = f"no {new} environment steps for {duration(limit_s)}"
    elif progress.starved_at is not None and now - progress.starved_at >= settings.starved_s:
        waits = 100.0 * amount(snapshot, "learner_wait_share")
        found["starved"] = f"the learner waits for unrolls {waits:.0f}% of its time"
    since = (progress.steps or 0.0) - progress.best_steps
    if settings.no_better_steps is not None and progress.best is not None and since >= settings.no_better_steps:
        found["no_better_return"] = f"no better return than {progress.best:.5g} for {since:,.0f} steps"
    return found


def final_reasons(seen: RunReading) -> dict[str, str]:
    """Return rule -> reason, of a run that does not run."""
    if seen.state == "damaged":
        return {"damaged": f"its files are damaged: {seen.problem or 'they cannot be read'}"}
    if seen.state == "gone":
        return {"gone": "its process is gone; it can be resumed"}
    code, reason = amount(seen.snapshot, "exit_code"), str(seen.snapshot.get("stop_reason") or "")
    told = str(seen.snapshot.get("error") or reason or "it left no reason")
    if code == NonFiniteError.exit_code:
        return {"non_finite": f"numbers that are not finite: {told}"}
    end = end_of(code, reason, seen.snapshot.get("error"))
    if end == "failed":
        return {"failed": f"failed: {told}"}
    if end == "solved":
        return {"solved": REASONS[reason].sentence}
    if end == "interrupted" or reason == "asked":
        return {}  # an operator ended it
    return {"ended": f"ended: {REASONS[reason].sentence}"}
