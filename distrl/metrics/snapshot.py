"""The table of metrics, from which the CSV header, TensorBoard's tags and the terminal derive their names.

A snapshot maps names of this table to values; an unknown value is absent or None, never NaN. A name with a slash is a
TensorBoard tag that depends on the network: it is not in the table and has no column.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from distrl.config.environment import info_word
from distrl.metrics.titles import ALGORITHMS

Value = float | int | str | None
Snapshot = Mapping[str, Value]


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
        group: First part of the TensorBoard tag; "" for values that are kept out of CSV and TensorBoard.
        unit: Unit of the value; "" for a plain number.
        meaning: One line.
        timed: Whether it depends on the clock or on scheduling, so that two deterministic runs may differ in it.
    """

    name: str
    group: str
    unit: str
    meaning: str
    timed: bool = False

    @property
    def tag(self) -> str:
        """TensorBoard's name for it."""
        return f"{self.group}/{self.name}"


METRICS = (
    Metric("updates", "progress", "updates", "updates of the online network"),
    Metric("env_steps", "progress", "steps", "valid environment steps that the feed has seen, stale ones included"),
    Metric(
        "trained_steps", "progress", "steps", "valid environment steps that entered an update, or the replay memory"
    ),
    Metric("sampled_steps", "progress", "steps", "steps sampled from the replay memory since it was empty"),
    Metric("replay_steps", "progress", "steps", "valid environment steps in the replay memory"),
    Metric("replay_episodes", "progress", "episodes", "ends of episodes in the replay memory"),
    Metric("episodes", "progress", "episodes", "episodes that ended"),
    Metric("mean_return_100", "return", "", "mean undiscounted return of the last 100 episodes"),
    Metric("min_return_100", "return", "", "lowest return of the last 100 episodes"),
    Metric("max_return_100", "return", "", "highest return of the last 100 episodes"),
    Metric("std_return_100", "return", "", "standard deviation of the returns of the last 100 episodes"),
    Metric("mean_discounted_return_100", "return", "", "mean discounted return of the last 100 episodes"),
    Metric(
        "success_rate_100",
        "return",
        "share",
        "share of the last 100 episodes that succeeded, where the environment says it",
    ),
    Metric("best_mean_return_100", "return", "", "highest mean return over a full window of 100 episodes"),
    Metric("evaluation_mean_return", "evaluation", "", "mean undiscounted return of the newest evaluation's episodes"),
    Metric("evaluation_env_steps", "evaluation", "steps", "steps of training behind that evaluation's weights"),
    Metric(
        "evaluation_success_rate",
        "evaluation",
        "share",
        "share of that evaluation's episodes that succeeded, where the environment says it",
    ),
    Metric("best_evaluation_return", "evaluation", "", "best mean return of an evaluation"),
    Metric("mean_length_100_steps", "return", "steps", "mean length of the last 100 episodes"),
    Metric("loss", "loss", "", "total loss"),
    Metric("policy_loss", "loss", "", "policy gradient's part of the loss"),
    Metric("value_loss", "loss", "", "critic's part of the loss, unweighted"),
    Metric("entropy", "loss", "nats", "mean entropy of the policy"),
    Metric("gradient_norm", "loss", "", "global norm of the gradients before clipping"),
    Metric("learning_rate", "loss", "", "learning rate of the last update"),
    Metric("mean_value", "loss", "", "mean value estimate"),
    Metric(
        "mean_rho", "loss", "", "mean importance weight, truncated at 1; the lower, the more the policy has changed"
    ),
    Metric("kl", "loss", "nats", "KL divergence between the acting and the learning policy, where it is known"),
    Metric("explained_variance", "loss", "", "share of the value targets' variance that the critic explains"),
    Metric("mean_advantage", "loss", "", "mean advantage of the actions taken, by which the policy moves"),
    Metric("std_advantage", "loss", "", "standard deviation of these advantages"),
    Metric(
        "exploration_strength",
        "exploration",
        "",
        "present epsilon, temperature or size of the noise, where it is one number for all actors",
    ),
    Metric("relu_zeros_max", "network", "share", "highest share of zeros in the output of a relu layer: 0 to 1"),
    Metric("policy_lag_mean", "lag", "updates", "mean age of the trained unrolls' weights", timed=True),
    Metric("policy_lag_p95", "lag", "updates", "95th percentile of the age of these weights", timed=True),
    Metric("policy_lag_max", "lag", "updates", "highest age of the trained unrolls' weights", timed=True),
    Metric("weights_version", "progress", "", "newest version of the weights"),
    Metric("queue_entries", "queue", "unrolls", "unrolls waiting for the learner", timed=True),
    Metric("queue_bytes", "queue", "bytes", "payload of the queued unrolls", timed=True),
    Metric("queue_fill", "queue", "share", "fill of the queue, by the nearer of its bounds: 0 to 1", timed=True),
    Metric("dropped", "queue", "unrolls", "unrolls dropped, for all reasons", timed=True),
    Metric("dropped_stale", "dropped", "unrolls", "unrolls dropped as their weights were too old", timed=True),
    Metric("dropped_duplicate", "dropped", "unrolls", "unrolls dropped as duplicates", timed=True),
    Metric("dropped_decode", "dropped", "unrolls", "unrolls dropped as they could not be decoded", timed=True),
    Metric("dropped_schema", "dropped", "unrolls", "unrolls dropped for another shape, type or space", timed=True),
    Metric("dropped_nonfinite", "dropped", "unrolls", "unrolls dropped for NaN or infinity", timed=True),
    Metric("dropped_poison", "dropped", "unrolls", "unrolls dropped as they crashed the learner", timed=True),
    Metric(
        "incomplete_rounds", "fleet", "rounds", "rounds that were completed without a worker's gradient", timed=True
    ),
    Metric("missing_workers", "", "", "workers whose gradients the last round lacked", timed=True),
    Metric("unsaved", "", "", "reason why the last checkpoint could not be written", timed=True),
    Metric("unstored", "", "", "reason why the data store lacks the last checkpoint", timed=True),
    Metric("unreported", "", "", "metrics of the environment that the last 100 episodes do not have"),
    Metric("origin", "", "", "unusual start of the learner, for operators"),
    Metric("env_steps_per_s", "speed", "steps/s", "environment steps per second of all actors", timed=True),
    Metric("updates_per_s", "speed", "updates/s", "updates per second", timed=True),
    Metric("episodes_per_s", "speed", "episodes/s", "episodes that ended per second", timed=True),
    Metric("wire_bytes_per_s", "speed", "bytes/s", "payload that actors pushed per second", timed=True),
    Metric("learner_wait_share", "speed", "share", "share of the learner's time spent waiting for unrolls", timed=True),
    Metric(
        "actors_blocked_share",
        "speed",
        "share",
        "share of the actors' time spent waiting for the learner: for room, a ticket or a round",
        timed=True,
    ),
    Metric("actors_up", "fleet", "actors", "actors with a heartbeat", timed=True),
    Metric(
        "actors_wanted",
        "fleet",
        "actors",
        "number of actors with which neither learner nor actors wait for long",
        timed=True,
    ),
    Metric("rss_mb", "fleet", "MB", "resident memory of all roles", timed=True),
    Metric("cpu_cores", "fleet", "cores", "processor time of all roles", timed=True),
    Metric("checkpoint_age_s", "fleet", "s", "age of the newest checkpoint of this learner", timed=True),
    Metric("restarts", "fleet", "restarts", "roles that were started again", timed=True),
    Metric("bottleneck", "fleet", "", "bottleneck: actors, learner, environment, or - for none", timed=True),
    Metric("wall_s", "progress", "s", "time of training, over all resumptions", timed=True),
    Metric("first_update_unix_s", "", "s", "time of this launch's first update, since 1970", timed=True),
    Metric("stop_reason", "", "", "stop reason; in the last snapshot"),
)
COLUMNS = tuple(metric.name for metric in METRICS if metric.group)
REPORTED_ONCE = frozenset(metric.name for metric in METRICS if not metric.group)
TEXTS = frozenset({"bottleneck"})
"""Columns of text."""
TIMED = frozenset(metric.name for metric in METRICS if metric.timed)
TAGS = {metric.name: metric.tag for metric in METRICS if metric.group}
MEANINGS = {metric.name: metric.meaning for metric in METRICS}
X_AXES: Mapping[str, str] = {"steps": "env_steps", "updates": "updates", "episodes": "episodes", "time": "wall_s"}
"""X axis of curves -> its column."""
RELU_ZEROS = "network/relu_zeros"
"""First part of the tags of single relu layers, ``network/relu_zeros/<layer>``."""

INTERVAL = "interval"
"""First part of the tags of an update's metrics over the last interval: ``interval/<metric>/mean``, std, min, max."""
TIME = "learner_time"
"""First part of the tags of shares of the learner's time in the last interval, ``learner_time/<name>``."""


def info_column(key: str) -> str:
    """Return the name of the mean of one of `environment.metrics` over the last 100 episodes."""
    return f"info_{info_word(key)}_100"


def evaluation_info_column(key: str) -> str:
    """Return the name of its mean over the newest evaluation's episodes."""
    return f"evaluation_info_{info_word(key)}"


def curriculum_column(name: str) -> str:
    """Return the name of the present value of a keyword argument of the environment that a curriculum changes."""
    return f"curriculum_{info_word(name)}"


def other_evaluation_column(name: str, result: str) -> str:
    """Return the name of a result of the newest evaluation in one of `evaluation.other_environments`.

    Args:
        result: "mean_return", "success_rate", or "info_" and the `info_word` of one of `environment.metrics`.
    """
    return f"evaluation_in_{name}_{result}"


DISCOUNTED = "evaluation_mean_discounted_return"
"""Column beside estimates of `evaluation.off_policy`, which are of the discounted return."""


def estimate_columns(estimator: str) -> tuple[str, str, str]:
    """Return the names of an estimate at the newest evaluation, and of the bounds of its 95 % interval."""
    name = f"evaluation_off_policy_{estimator}"
    return name, f"{name}_low", f"{name}_high"


def is_other_return(column: str) -> bool:
    """Whether a column is the mean return in one of `evaluation.other_environments`."""
    return column.startswith("evaluation_in_") and column.endswith("_mean_return") and "_info_" not in column


def meaning_of(name: str) -> str:
    """Return the meaning of a column; a name outside the table is of the environment or of the algorithm."""
    if name in MEANINGS:
        return MEANINGS[name]
    if name == DISCOUNTED:
        return "mean discounted return of the newest evaluation's episodes"
    if name.startswith("evaluation_off_policy_"):
        return "estimate of the discounted return from recorded episodes, at the newest evaluation"
    if name.startswith("evaluation_in_"):
        return "mean over the newest evaluation's episodes in one of evaluation.other_environments"
    if name.startswith("evaluation_info_"):
        return "mean of a metric of the environment over the newest evaluation's episodes"
    if name.startswith("info_") and name.endswith("_100"):
        return "mean of a metric of the environment over the last 100 episodes"
    if name.startswith("curriculum_"):
        return "present value of a keyword argument of the environment"
    return ALGORITHMS[name][1] if name in ALGORITHMS else "of the algorithm"


def columns_of(snapshot: Snapshot) -> set[str]:
    """Return the names in it that are columns."""
    return {name for name in snapshot if name not in REPORTED_ONCE and "/" not in name}


def tag_of(name: str) -> str:
    """Return TensorBoard's tag of a number; a name outside the table is of the environment or the algorithm."""
    if "/" in name:
        return name
    if name.startswith("info_") and name.endswith("_100"):
        return f"info/{name}"
    if name.startswith("curriculum_"):
        return f"curriculum/{name}"
    group = "evaluation" if name.startswith("evaluation_") else "algorithm"
    return TAGS.get(name, f"{group}/{name}")


def number(value: Value) -> float | None:
    """Return a snapshot's value as a number; None if it is unknown or text."""
    return None if value is None or isinstance(value, str) else float(value)


def amount(snapshot: Snapshot, name: str) -> float:
    """Return a number of a snapshot, 0 while it is unknown."""
    return number(snapshot.get(name)) or 0.0
