"""What is measured while a run lasts: one table, which the CSV header, TensorBoard's tags and the terminal are made of.

A snapshot is a mapping from names of this table to values; what is not known yet is absent or None, never NaN. A name
with a slash in it is not in the table, since every network has others: it is a TensorBoard tag, and has no column.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Value = float | int | str | None
Snapshot = Mapping[str, Value]


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
        group: First part of the TensorBoard tag; "" for what is told once and kept out of CSV and TensorBoard.
        unit: Of the value; "" for a plain number.
        meaning: One line.
        source: Who knows it: "learner" or "supervisor".
        timed: It depends on the clock or on scheduling: two deterministic runs may differ in it.
    """

    name: str
    group: str
    unit: str
    meaning: str
    source: str = "learner"
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
    Metric("episodes", "progress", "episodes", "episodes that ended"),
    Metric("mean_return_100", "return", "", "mean undiscounted return of the last 100 episodes"),
    Metric("min_return_100", "return", "", "least return of these episodes"),
    Metric("max_return_100", "return", "", "greatest return of these episodes"),
    Metric("best_mean_return_100", "return", "", "best of it over full windows of 100 episodes"),
    Metric("evaluation_mean_return", "evaluation", "", "mean undiscounted return of the newest evaluation's episodes"),
    Metric("evaluation_env_steps", "evaluation", "steps", "steps of training behind that evaluation's weights"),
    Metric("best_evaluation_return", "evaluation", "", "best mean return of an evaluation"),
    Metric("mean_length_100_steps", "return", "steps", "mean length of the last 100 episodes"),
    Metric("loss", "loss", "", "total loss"),
    Metric("policy_loss", "loss", "", "policy gradient's part of the loss"),
    Metric("value_loss", "loss", "", "critic's part of the loss, unweighted"),
    Metric("entropy", "loss", "nats", "mean entropy of the policy"),
    Metric("gradient_norm", "loss", "", "global norm of the gradients before clipping"),
    Metric("learning_rate", "loss", "", "learning rate of the last update"),
    Metric("mean_value", "loss", "", "mean value estimate"),
    Metric("mean_rho", "loss", "", "mean importance weight, truncated at 1; below 1 as far as the policy has moved on"),
    Metric("kl", "loss", "nats", "KL divergence of the policy that acted from the one that learns, where it is known"),
    Metric("explained_variance", "loss", "", "share of the value targets' variance that the critic explains"),
    Metric("relu_zeros_max", "network", "share", "greatest share of zeros in what a relu layer puts out: 0 to 1"),
    Metric("policy_lag_mean", "lag", "updates", "mean age of the trained unrolls' weights", timed=True),
    Metric("policy_lag_p95", "lag", "updates", "95th percentile of it", timed=True),
    Metric("policy_lag_max", "lag", "updates", "greatest of it", timed=True),
    Metric("weights_version", "progress", "", "newest version of the weights"),
    Metric("queue_entries", "queue", "unrolls", "unrolls waiting for the learner", timed=True),
    Metric("queue_bytes", "queue", "bytes", "their payload", timed=True),
    Metric("queue_fill", "queue", "share", "fill of the queue, by the bound that is nearer: 0 to 1", timed=True),
    Metric("dropped", "queue", "unrolls", "unrolls dropped, for whatever reason", timed=True),
    Metric("dropped_stale", "dropped", "unrolls", "of these: weights too old", timed=True),
    Metric("dropped_duplicate", "dropped", "unrolls", "of these: there before", timed=True),
    Metric("dropped_decode", "dropped", "unrolls", "of these: no unroll at all", timed=True),
    Metric("dropped_schema", "dropped", "unrolls", "of these: of another shape, type or space", timed=True),
    Metric("dropped_nonfinite", "dropped", "unrolls", "of these: NaN or infinity in it", timed=True),
    Metric("dropped_poison", "dropped", "unrolls", "of these: learners died of it", timed=True),
    Metric("incomplete_rounds", "fleet", "rounds", "rounds that went on without a worker's gradient", timed=True),
    Metric("missing_workers", "", "", "whose gradient the last round went on without", timed=True),
    Metric("unsaved", "", "", "why the last checkpoint could not be written; none where it was", timed=True),
    Metric("origin", "", "", "how the learner began, where operators must know"),
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
        "supervisor",
        timed=True,
    ),
    Metric("actors_up", "fleet", "actors", "actors with a heartbeat", "supervisor", timed=True),
    Metric("rss_mb", "fleet", "MB", "resident memory of all roles", "supervisor", timed=True),
    Metric("cpu_cores", "fleet", "cores", "processor time that all roles take", "supervisor", timed=True),
    Metric("checkpoint_age_s", "fleet", "s", "age of the newest checkpoint of this learner", timed=True),
    Metric("restarts", "fleet", "restarts", "roles that were started again", "supervisor", timed=True),
    Metric("bottleneck", "fleet", "", "what limits the speed: actors, learner, environment, or - for none", timed=True),
    Metric("wall_s", "progress", "s", "time of training, over all resumptions", timed=True),
    Metric("first_update_unix_s", "", "s", "when this launch made its first update, since 1970", timed=True),
    Metric("stop_reason", "", "", "why training ended; in the last snapshot"),
)
COLUMNS = tuple(metric.name for metric in METRICS if metric.group)
TOLD_ONCE = frozenset(metric.name for metric in METRICS if not metric.group)
TEXTS = frozenset({"bottleneck"})
"""Columns of words."""
TIMED = frozenset(metric.name for metric in METRICS if metric.timed)
TAGS = {metric.name: metric.tag for metric in METRICS if metric.group}
RELU_ZEROS = "network/relu_zeros"
"""First part of the tags of single relu layers, ``network/relu_zeros/<layer>``."""

TIME = "learner_time"
"""First part of the tags of where the learner's time goes, ``learner_time/<name>``, shares of the last interval."""


def columns_of(snapshot: Snapshot) -> set[str]:
    """The names in it that are columns."""
    return {name for name in snapshot if name not in TOLD_ONCE and "/" not in name}


def tag_of(name: str) -> str:
    """TensorBoard's name for a number of a snapshot; what is not in the table is an algorithm's own."""
    return name if "/" in name else TAGS.get(name, f"algorithm/{name}")
