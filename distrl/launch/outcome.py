"""How a run ends: the table of exit codes, the outcome, and the summary that says so."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from distrl.errors import (
    EXIT_INTERRUPTED,
    ConfigError,
    DistrlError,
    EnvironmentFailedError,
    MemoryBackendError,
    NonFiniteError,
    StalledError,
    failure,
)
from distrl.launch.monitor import Monitor
from distrl.metrics.snapshot import other_evaluation_column
from distrl.roles.description import RunDescription
from distrl.runs.summary import PolicyLag, Summary

COUNTS = ("env_steps", "updates", "episodes", "trained_steps", "weights_version")
RETURNS = (
    "mean_return_100",
    "best_mean_return_100",
    "evaluation_mean_return",
    "evaluation_env_steps",
    "best_evaluation_return",
)


class End(NamedTuple):
    """The meaning of an exit code.

    Attributes:
        reason: As summaries give it.
        fatal_to: Roles for which another start would be in vain; the run ends at the first such end.
        repeats: The same error of one role several times in a row, and no progress in between, ends the run, too.
    """

    reason: str
    fatal_to: Literal["all", "learner", "none"] = "none"
    repeats: bool = False


ENDS: Mapping[int, End] = {
    DistrlError.exit_code: End("failed", repeats=True),
    ConfigError.exit_code: End("configuration", fatal_to="all"),
    EnvironmentFailedError.exit_code: End("environment failed", repeats=True),
    StalledError.exit_code: End("stalled"),
    NonFiniteError.exit_code: End("non-finite training", fatal_to="all"),
    # An actor's host may be the only one that does not reach Redis.
    MemoryBackendError.exit_code: End("memory backend", fatal_to="learner", repeats=True),
}
"""Exit code -> meaning. What is not here, such as a signal, is followed by another start."""
UNKNOWN = End("failed")


@dataclass
class Outcome:
    """The end of a run."""

    exit_code: int
    stop_reason: str
    error: str | None = None

    @staticmethod
    def of(error: BaseException) -> "Outcome":
        """Return the outcome of a run that an exception has ended."""
        code, text = failure(error)
        if code == EXIT_INTERRUPTED:
            return Outcome(code, text)
        reason = ENDS.get(code, UNKNOWN).reason if isinstance(error, DistrlError) else "unexpected error"
        return Outcome(code, reason, text)


def is_accepted(outcome: Outcome, error: BaseException | None, *, has_begun: bool) -> bool:
    """Whether a launch counts. One that is refused leaves the run directory, the data store and trackers as they were.

    It is refused if its learner has learned nothing, and it ends with 2 or raises one of distrl's own errors. After
    a stop, Ctrl-C, a stall or an unexpected error its files stay, as they say what happened.

    Args:
        error: What the training has raised; None if it has returned an outcome.
        has_begun: The learner has taken unrolls in, or learned from data.
    """
    return has_begun or not (outcome.exit_code == ConfigError.exit_code or isinstance(error, DistrlError))


def summarize(
    description: RunDescription,
    monitor: Monitor,
    outcome: Outcome,
    started: float,
    wall_s: float,
    *,
    accepted: bool = True,
) -> Summary:
    """Make the summary from the newest snapshot, the ledger and the outcome.

    Args:
        started: Seconds since 1970, the clock by which the learner reports its first update.
        accepted: See `is_accepted`.
    """
    config = description.config
    latest: Mapping[str, Any] = monitor.totals.latest
    first_update = latest.get("first_update_unix_s")
    start = description.start
    resumed = {"env_steps": start.env_steps, "updates": start.update}
    return Summary(
        run_id=description.run_id,
        launch=description.launch,
        algorithm=config.algorithm.name,
        env=config.environment.id,
        seed=config.seed,
        **{name: max(int(latest.get(name) or 0), resumed.get(name, 0)) for name in COUNTS},
        **{name: latest.get(name) for name in RETURNS},
        other_evaluation_returns={
            name: latest.get(other_evaluation_column(name, "mean_return"))
            for name in config.evaluation.other_environments
        },
        **{name: count for name, count in asdict(monitor.ledger).items() if name in Summary.model_fields},
        wall_s=wall_s,
        time_to_first_update_s=None if first_update is None else float(first_update) - started,
        env_steps_per_s=monitor.totals.rate("env_steps"),
        updates_per_s=monitor.totals.rate("updates"),
        stop_reason=outcome.stop_reason,
        exit_code=outcome.exit_code,
        error=outcome.error,
        policy_lag=PolicyLag(**{name: latest.get(f"policy_lag_{name}") for name in PolicyLag.model_fields}),
        bottleneck=str(latest.get("bottleneck") or "-"),
        peak_rss_mb=monitor.totals.peak_rss_mb,
        restarts=monitor.fleet.restarts,
        learner_idle_share=latest.get("learner_wait_share"),
        actors_blocked_share=latest.get("actors_blocked_share"),
        resumed_env_steps=start.env_steps,
        resumed_updates=start.update,
        resumed_wall_s=start.wall_s,
        accepted=accepted,
    )
