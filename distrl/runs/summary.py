"""summary.json: the outcome of a run, and the closing lines that a training prints."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, computed_field

from distrl.config.stop import BUDGETS
from distrl.data_store.atomic import put_file
from distrl.data_store.saved_elsewhere import newest_resumable
from distrl.errors import EXIT_INTERRUPTED, EXIT_OK, printable
from distrl.files import read_model
from distrl.metrics.phrases import lost_words, return_words, used_words, waiting_words
from distrl.metrics.snapshot import COLUMNS, Snapshot, other_evaluation_column

RunEnd = Literal["solved", "ended", "stopped", "interrupted", "failed"]
"""How a run has ended: at its goal, at the limit of a budget, as asked, from outside, or with an error."""
RECLAIMED = "SIGTERM"
"""Stop reason of a run whose host was wanted back."""


class Reason(NamedTuple):
    """A stop reason as lists show it, as the sentence of the closing lines, and as an end."""

    short: str
    sentence: str
    end: RunEnd


REASONS: Mapping[str, Reason] = {
    "mean_return": Reason("solved", "solved: the mean return asked for is reached", "solved"),
    "evaluation_return": Reason("solved", "solved: an evaluation reached the mean return asked for", "solved"),
    "metrics": Reason("solved", "solved: a metric of the environment reached the mean asked for", "solved"),
    **{
        field: Reason(f"{short} spent", f"the budget of {counted} is spent", "ended")
        for field, short, counted in BUDGETS
    },
    "minutes": Reason("time up", "the time is up", "ended"),
    "asked": Reason("stopped", "stopped as asked", "stopped"),
    "callback": Reason("stopped", "stopped by the callback", "stopped"),
}
"""The stop reasons of a run that ended as configured or as asked; others are short sentences already."""


def end_of(exit_code: float, stop_reason: str, error: object = None) -> RunEnd:
    """Return how a run has ended, by its summary.

    A host that was wanted back interrupts a run with whatever exit code `launch.sigterm_exit_code` asks for.
    """
    if exit_code == EXIT_INTERRUPTED or (stop_reason == RECLAIMED and not error):
        return "interrupted"
    if exit_code:
        return "failed"
    return REASONS[stop_reason].end if stop_reason in REASONS else "interrupted"


class PolicyLag(BaseModel):
    """Age in updates of the weights that made the trained unrolls; None before the first."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    mean: float | None = None
    p95: float | None = None
    max: float | None = None


class Summary(BaseModel):
    """One run, at its end. Returns are None before the first finished episode; counts of unrolls are the ledger's.

    Attributes:
        mean_return_100: Mean undiscounted return of the last 100 episodes.
        best_mean_return_100: Greatest mean over a full window of 100 episodes.
        evaluation_mean_return: Mean return of the newest evaluation; None before the first, and without `evaluation`.
        evaluation_env_steps: Environment steps of training behind that evaluation's weights.
        best_evaluation_return: Best mean return of an evaluation.
        other_evaluation_returns: Name of `evaluation.other_environments` -> mean return there of the newest evaluation.
        env_steps, updates, episodes, trained_steps: Totals of all launches, where this one resumed the run.
        wall_s: Time from launch to end.
        resumed_env_steps, resumed_updates, resumed_wall_s: Totals in the checkpoint that this launch resumed.
        time_to_first_update_s: Time from launch to the first update; None if there was none.
        produced, foreign, trained, stored, queued, in_flight, dropped, lost, rolled_back: Unrolls, see `imbalance`.
        lost_to_failover: Unrolls of `lost` whose loss was noticed after a fail-over of Redis.
        failovers: Fail-overs of Redis that the learner has seen.
        peak_rss_mb: Role name -> highest resident memory, MB (10^6 bytes).
        restarts: Restarts of roles.
        learner_idle_share: Share of the learner's time since its first update spent waiting for unrolls.
        actors_blocked_share: Share of the actors' time since then spent waiting for the learner.
        untracked: Tracker -> what it lacks, of those that have failed or were too slow.
        error: The cause of a failure, in one line; None for a run that ended as requested.
        accepted: Whether the launch has left files; not in summary.json, which a refused launch does not leave.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    run_id: str
    launch: str = ""
    algorithm: str
    env: str
    seed: int
    env_steps: int
    updates: int
    episodes: int
    mean_return_100: float | None
    best_mean_return_100: float | None
    wall_s: float
    time_to_first_update_s: float | None
    env_steps_per_s: float
    updates_per_s: float
    trained_steps: int
    stop_reason: str
    exit_code: int
    weights_version: int
    produced: int
    foreign: int
    trained: int
    queued: int
    in_flight: int
    dropped: dict[str, int]
    lost: int
    rolled_back: int
    policy_lag: PolicyLag
    bottleneck: str
    peak_rss_mb: dict[str, float]
    restarts: int
    evaluation_mean_return: float | None = None
    evaluation_env_steps: int | None = None
    best_evaluation_return: float | None = None
    learner_idle_share: float | None = None
    actors_blocked_share: float | None = None
    error: str | None = None
    accepted: bool = Field(default=True, exclude=True)
    lost_to_failover: int = 0
    failovers: int = 0
    resumed_env_steps: int = 0
    resumed_updates: int = 0
    resumed_wall_s: float = 0.0
    untracked: dict[str, str] = {}
    other_evaluation_returns: dict[str, float | None] = {}
    stored: int = 0

    @property
    def end(self) -> RunEnd:
        """How the run has ended."""
        return end_of(self.exit_code, self.stop_reason, self.error)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def imbalance(self) -> int:
        """Unrolls that nothing accounts for: those that arrived, less all that are counted elsewhere."""
        accounted = self.trained + self.stored + self.queued + self.in_flight + sum(self.dropped.values()) + self.lost
        return self.produced + self.foreign - accounted

    def snapshot(self) -> Snapshot:
        """Return its known numbers by their names in metrics/snapshot.py."""
        found = {name: getattr(self, name) for name in COLUMNS if name in type(self).model_fields and name != "dropped"}
        found |= {f"policy_lag_{name}": value for name, value in self.policy_lag.model_dump().items()}
        found["learner_wait_share"] = self.learner_idle_share
        for name, mean_return in self.other_evaluation_returns.items():
            found[other_evaluation_column(name, "mean_return")] = mean_return
        return {name: value for name, value in found.items() if value is not None}

    def write(self, path: Path) -> None:
        """Write JSON atomically: readers see the old file or the whole new one."""
        put_file(path, self.model_dump_json(indent=2).encode() + b"\n")

    @classmethod
    def read(cls, path: Path) -> "Summary":
        """Read the summary that `write` wrote."""
        return read_model(cls, path)


def closing_text(summary: Summary, run_dir: Path | None) -> str:
    """Return the closing lines: outcome, return, speed, where every unroll went, and the files of a `run_dir`."""
    acted = summary.produced + summary.foreign > 0 or not summary.updates  # otherwise it has learned from data
    lines = [outcome(summary), *([f"  return   {_returns(summary)}"] if acted else [])]
    if summary.evaluation_mean_return is not None:
        lines.append(f"  greedy   {_evaluation(summary)}")
    known = {name: value for name, value in summary.other_evaluation_returns.items() if value is not None}
    if known:
        told = " · ".join(f"{name} {return_words(value)}" for name, value in known.items())
        lines.append(f"  others   {told}, means of that evaluation in other environments")
    lines.append(f"  speed    {_speed(summary)}")
    if waits := waiting_words(summary.learner_idle_share, summary.actors_blocked_share):
        lines.append(f"  waits    {waits}")
    if acted:
        lines.append(f"  lag      {_lag(summary.policy_lag)}")
        lines.append(f"  unrolls  {conservation(summary)}")
    lines += [f"  tracker  {name}: {lack}" for name, lack in summary.untracked.items()]
    newest = None if run_dir is None else newest_resumable(run_dir)
    if run_dir is not None and (summary.accepted or newest is not None):
        lines.append(f"  files    {run_dir}: {', '.join(_results(run_dir))}")
    if newest is not None and not (_at_goal(summary) and summary.exit_code == EXIT_OK):
        lines.append(f"  go on    distrl train --resume {shlex.quote(str(newest))}")
    return "\n".join(map(printable, lines))


def outcome(summary: Summary) -> str:
    """Return how the run ended, and its exit code."""
    known = REASONS.get(summary.stop_reason)
    reason = summary.stop_reason if known is None else known.sentence
    if summary.exit_code != EXIT_OK:
        reason = f"{reason}, but the run failed" if _at_goal(summary) else f"ended early: {reason}"
    return f"{reason} (exit code {summary.exit_code})"


def _at_goal(summary: Summary) -> bool:
    """Whether the training has reached its end, whatever failed after it."""
    return end_of(EXIT_OK, summary.stop_reason) in ("solved", "ended")


def _results(run_dir: Path) -> list[str]:
    """Return the results that are there: a full disk may have refused some, and tensorboard/ may be elsewhere."""
    files = [
        name for name in ("summary.json", "metrics.csv", "evaluations.jsonl", "roles.csv") if (run_dir / name).is_file()
    ]
    folders = ("tensorboard", "checkpoints", "policy", "films", "logs")
    return files + [f"{name}/" for name in folders if (run_dir / name).is_dir()]


def _speed(summary: Summary) -> str:
    """Speed of this launch by its own steps and updates, and the totals of a resumed run."""
    steps, updates = summary.env_steps - summary.resumed_env_steps, summary.updates - summary.resumed_updates
    told = f"{steps:,} steps and {updates:,} updates in {duration(summary.wall_s)}; "
    told += f"{summary.env_steps_per_s:,.0f} steps/s while training"
    if not summary.resumed_updates:
        return told
    return f"{told}; with the earlier launches {summary.env_steps:,} steps and {summary.updates:,} updates"


def conservation(summary: Summary) -> str:
    """Return the conservation law with this run's numbers, without the faults that did not happen."""
    arrived = f"{summary.produced:,} produced" + (f" + {summary.foreign:,} foreign" if summary.foreign else "")
    parts = [
        used_words(summary.trained, summary.stored),
        f"{summary.queued:,} queued",
        f"{summary.in_flight:,} in flight",
    ]
    reasons = ", ".join(f"{name} {count:,}" for name, count in summary.dropped.items() if count)
    parts.append(f"{sum(summary.dropped.values()):,} dropped" + (f" ({reasons})" if reasons else ""))
    if summary.lost:
        parts.append(lost_words(summary.lost, summary.lost_to_failover))
    verdict = "exact" if summary.imbalance == 0 else f"{summary.imbalance:+,} unaccounted for"
    rolled_back = f"; {summary.rolled_back:,} rolled back" if summary.rolled_back else ""
    failovers = f"; fail-overs of Redis: {summary.failovers:,}" if summary.failovers else ""
    return f"{arrived} = {' + '.join(parts)} · {verdict}{rolled_back}{failovers}"


def duration(seconds: float) -> str:
    """'9.8 s', '2:05' (minutes and seconds), '1:02:05', '3 d 4 h'."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _returns(summary: Summary) -> str:
    if summary.mean_return_100 is None:
        return "no episode finished"
    best = "" if summary.best_mean_return_100 is None else f", best {return_words(summary.best_mean_return_100)}"
    window = min(summary.episodes, 100)
    return f"{return_words(summary.mean_return_100)} mean of the last {window} of {summary.episodes:,} episodes{best}"


def _evaluation(summary: Summary) -> str:
    assert summary.evaluation_mean_return is not None
    best = summary.best_evaluation_return
    told = "" if best is None else f", best {return_words(best)}"
    steps = f"{summary.evaluation_env_steps or 0:,}"
    return f"{return_words(summary.evaluation_mean_return)} mean of the evaluation at {steps} steps{told}"


def _lag(lag: PolicyLag) -> str:
    if lag.mean is None or lag.max is None:
        return "no unroll trained"
    return f"{lag.mean:.1f} updates mean, {lag.max:,.0f} max"
