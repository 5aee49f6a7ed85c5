"""The records of a run, compared with those before them: what is new, as lines for the user."""

from collections import Counter
from collections.abc import Mapping, Sequence

from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.records import Estimate, Evaluation, RoleStatus
from distrl.metrics.phrases import return_words
from distrl.metrics.snapshot import Snapshot


class Changes:
    """Remembers what was reported last. Each method takes the newest records of one kind, and returns new lines."""

    def __init__(self) -> None:
        self._snapshot: Snapshot = {}
        self._unsaved: object = None  # why the newest checkpoint could not be written
        self._notices: dict[str, str] = {}  # name of a role -> its notice
        self._counts = LedgerCounts()
        self._ignored: Counter[str] = Counter()

    def of_snapshot(self, snapshot: Snapshot) -> list[str]:
        """Return lines on rounds, the learner's origin, missing metrics, checkpoints and the data store."""
        before, self._snapshot = self._snapshot, snapshot
        lines = []
        missing = snapshot.get("missing_workers")
        if missing != before.get("missing_workers"):
            lines.append(f"rounds go on without {missing}" if missing else "rounds have every worker again")
        if origin := _changed("origin", before, snapshot):
            lines.append(f"the learner {origin}")
        if unreported := _changed("unreported", before, snapshot):
            lines.append(f"environment.metrics: info of the last 100 episodes does not have {unreported}")
        return [*lines, *self._of_saving(before, snapshot)]

    def _of_saving(self, before: Snapshot, snapshot: Snapshot) -> list[str]:
        lines = []
        unsaved = snapshot.get("unsaved")
        if unsaved and snapshot.get("stop_reason") is None and unsaved != self._unsaved:
            lines.append(f"no checkpoint can be written: {unsaved}")
        saved = unsaved is None and snapshot.get("checkpoint_age_s") is not None  # by this learner, not the one before
        if saved and self._unsaved:
            lines.append("checkpoints are written again")
        self._unsaved = None if saved else unsaved or self._unsaved
        unstored = snapshot.get("unstored")
        if unstored and not before.get("unstored"):  # each attempt may fail in other words
            lines.append(f"the data store lacks the newest checkpoint: {unstored}; it is tried again")
        elif before.get("unstored") and not unstored and saved:
            lines.append("checkpoints are stored again")
        return lines

    def of_roles(self, roles: Sequence[RoleStatus]) -> list[str]:
        """Return lines with the notices of roles."""
        before = dict(self._notices)
        self._notices |= {role.name: role.notice for role in roles}
        return [f"{name}: {notice}" for name, notice in self._notices.items() if notice and notice != before.get(name)]

    def of_counts(self, counts: LedgerCounts) -> list[str]:
        """Return lines on fail-overs of Redis."""
        before, self._counts = self._counts, counts
        lines = []
        if counts.failovers > before.failovers:
            lines.append(
                f"Redis has failed over or was restarted ({counts.failovers:,} so far), and may have lost its "
                "last writes; repeat requests of the moments before"
            )
        if (lost := counts.lost_to_failover - before.lost_to_failover) > 0:
            lines.append(f"{lost:,} unrolls were lost to a fail-over of Redis")
        return lines

    def of_ignored(self, ignored: Mapping[str, int]) -> list[str]:
        """Return lines, one per kind, on records in Redis that another program has written to the run's keys."""
        new = ignored.keys() - self._ignored.keys()
        self._ignored |= Counter(ignored)
        return [
            f"ignored {what} in Redis that distrl has not written: another program writes to this run's keys"
            for what in new
        ]

    def at_end(self) -> list[str]:
        """Return a line on all that was ignored."""
        if not self._ignored:
            return []
        counts = ", ".join(f"{what} ({count})" for what, count in sorted(self._ignored.items()))
        return [f"ignored in all, of what distrl has not written: {counts}"]


def _changed(name: str, before: Snapshot, snapshot: Snapshot) -> object:
    """Return the value if there is one, and another one than before."""
    value = snapshot.get(name)
    return value if value != before.get(name) else None


def evaluation_text(found: Evaluation) -> str:
    """Return one line on an evaluation, with its results in other environments."""
    others = "".join(f"; in {name}: {_result_text(other)}" for name, other in found.others.items())
    unknown = "" if found.score is not None else f"; not the best, as {found.best_by} is unknown (evaluation.best_by)"
    estimates = ", ".join(map(_estimate_text, found.estimates))
    if estimates and found.mean_discounted_return is not None:
        estimates = f"; discounted {return_words(found.mean_discounted_return)}, estimated by {estimates}"
    return f"evaluation at {found.env_steps:,} steps: {_result_text(found)}{others}{estimates}{unknown}"


def _estimate_text(found: Estimate) -> str:
    if found.value is None:
        return f"{found.estimator}: unknown ({found.problem})"
    bounds = "" if found.low is None or found.high is None else f" ({found.low:.4g} … {found.high:.4g})"
    return f"{found.estimator} {found.value:.4g}{bounds}"


def _result_text(found: Evaluation) -> str:
    success = "" if found.success_rate is None else f", {found.success_rate:.1%} of them successful"
    known = {key: value for key, value in found.metrics.items() if value is not None}
    metrics = "".join(f", {key} {return_words(value)}" for key, value in known.items())
    cut = f", {found.cut_episodes} of them cut short at evaluation.max_episode_steps" if found.cut_episodes else ""
    return (
        f"return {return_words(found.mean_return)} ± {return_words(found.std_return)} over {found.episodes} "
        f"episodes{success}{metrics}{cut}"
    )
