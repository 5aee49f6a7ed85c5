"""Snapshots of the learner: one flat mapping a second, or every few updates in deterministic mode."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from distrl.config import RunConfig
from distrl.config.live_settings import exploration_strength
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import Trained
from distrl.learner.rounds import names
from distrl.learner.state import LearnerState
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.stream import QueueCaps
from distrl.metrics.counters import IntervalStatistics, LagHistogram, Waits
from distrl.metrics.phrases import COMPILING
from distrl.metrics.snapshot import RELU_ZEROS, TIME, curriculum_column, evaluation_info_column, info_column
from distrl.replay.memory import Replay

Snapshot = dict[str, float | int | str | None]
EVERY_S = 1.0
EVERY_UPDATES = 10  # deterministic mode: by updates, so that two runs report at the same moments
COMPILES_FROM_S = 1.0
"""Seconds from which on the first update is reported as one that is compiled."""
IDLE = 0.2  # of the learner's time waiting for unrolls, from here on: faster or more actors would pay
BUSY = 0.05  # up to here it always finds the next batch ready, so that actors wait for room


class Reporter(Attendant):
    """Collects metrics of updates and publishes snapshots of them.

    Args:
        publish: Takes each snapshot.
        origin: `Origin.note`.

    Attributes:
        activity: The learner's activity, for heartbeats; "": it trains.
        env_steps_per_s: Rate over the last snapshot's interval.
        time_shares: Name -> share of the learner's time in that interval.
        relu_zeros: Name of a relu layer -> share of zeros in its output, when last inspected.
        saved_at: Start of the newest checkpoint in monotonic seconds; None before the first.
        unsaved: Error that keeps checkpoints from being written; None: there is none.
        unstored: Error that keeps them from the data store; None: there is none.
        environment: The environment's configuration in force.
    """

    activity = "starting"
    env_steps_per_s = 0.0
    saved_at: float | None = None
    unsaved: str | None = None
    unstored: str | None = None

    def __init__(
        self,
        config: RunConfig,
        state: LearnerState,
        backend: Backend,
        waits: Waits,
        publish: Callable[[Snapshot], None],
        replay: Replay | None = None,
        origin: str | None = None,
    ) -> None:
        self.time_shares: Mapping[str, float] = {}
        self.relu_zeros: Mapping[str, float] = {}
        self._config, self._state, self._backend, self._waits = config, state, backend, waits
        self._publish, self._replay, self._origin = publish, replay, origin
        self.environment = config.environment
        self._lags = LagHistogram()
        self._metrics: Mapping[str, float] = {}
        self._statistics = IntervalStatistics()
        self._incomplete_rounds = 0
        self._missing: str | None = None
        self._began = time.monotonic()
        pushed_bytes = self._backend.ledger.counts().pushed_bytes
        self._last = (self._began, state.env_steps, state.updates, state.episodes, pushed_bytes)
        self._first_update_unix_s: float | None = None
        self._waited_s = self._waits_since_s = 0.0

    def steer(self, config: RunConfig) -> None:
        self.environment = config.environment

    def attend(self, trained: Trained | None) -> None:
        if trained is not None and self.due:
            self.report()

    def report(self, stop_reason: str | None = None) -> None:
        """Publish a snapshot.

        Args:
            stop_reason: Given for the last one.
        """
        self._publish(self.snapshot(stop_reason))

    def record(self, trained: Trained) -> None:
        """Record one update."""
        made, update = trained
        for lag in made.lags_updates:
            self._lags.add(lag)
        self._metrics = update.metrics
        self._statistics.add(update.metrics)
        if made.missing:
            self._incomplete_rounds += 1
        self._missing = names(made.missing) if made.missing else None
        if self._first_update_unix_s is None:
            self._first_update_unix_s = time.time()

    @property
    def compiling(self) -> str:
        """The activity of a learner whose first update takes long; "" later."""
        since_s = 0.0 if self._first_update_unix_s is not None else self._waits.under_way_s("update")
        return f"{COMPILING}, {since_s:.0f} s" if since_s >= COMPILES_FROM_S else ""

    @property
    def due(self) -> bool:
        """Whether a snapshot is due; the first one follows the first update."""
        since_s = self._last[0]
        if self._config.deterministic:
            return self._state.updates % EVERY_UPDATES == 0  # at the same updates after a resumption
        return since_s == self._began or time.monotonic() - since_s >= EVERY_S

    def snapshot(self, stop_reason: str | None = None) -> Snapshot:
        """Return all metrics by their names in metrics/snapshot.py."""
        state, now = self._state, time.monotonic()
        since, steps, updates, episodes, pushed = self._last
        ledger = self._backend.ledger.counts()
        elapsed = max(now - since, 1e-9)
        self._last = (now, state.env_steps, state.updates, state.episodes, ledger.pushed_bytes)
        self.env_steps_per_s = (state.env_steps - steps) / elapsed
        self.time_shares = self._waits.shares()
        wait_share = self.time_shares.get("unrolls", 0.0)
        if since > self._began:  # the time to the first update went into starting actors
            self._waited_s += wait_share * elapsed
            self._waits_since_s += elapsed
        if stop_reason is not None and self._waits_since_s > 0:  # the last word is on the whole run
            wait_share = self._waited_s / self._waits_since_s
        return {
            "updates": state.updates,
            "env_steps": state.env_steps,
            "trained_steps": state.trained_steps,
            **self._of_replay(),
            "episodes": state.episodes,
            **self._of_episodes(),
            **{name: value for name, value in self._metrics.items() if name != "finite"},
            **self._statistics.snapshot(),
            "exploration_strength": self._exploration_strength(),
            **self._of_curriculum(),
            "relu_zeros_max": max(self.relu_zeros.values(), default=None),
            **{f"{RELU_ZEROS}/{layer}": share for layer, share in self.relu_zeros.items()},
            **{f"{TIME}/{name}": share for name, share in self.time_shares.items()},
            **self._lags.snapshot(),
            "weights_version": state.weights_version,
            "queue_entries": ledger.queued + ledger.in_flight,
            "queue_bytes": ledger.stream_bytes,
            "queue_fill": queue_fill(ledger, self._config),
            "incomplete_rounds": self._incomplete_rounds if self._config.algorithm.rounds else None,
            "missing_workers": self._missing,
            "unsaved": self.unsaved,
            "unstored": self.unstored,
            "unreported": ", ".join(state.unreported_metrics) or None,
            "origin": self._origin,
            "dropped": sum(ledger.dropped.values()),
            **{f"dropped_{reason}": count for reason, count in ledger.dropped.items()},
            "checkpoint_age_s": None if self.saved_at is None else now - self.saved_at,
            "env_steps_per_s": self.env_steps_per_s,
            "updates_per_s": (state.updates - updates) / elapsed,
            "episodes_per_s": (state.episodes - episodes) / elapsed,
            "wire_bytes_per_s": (ledger.pushed_bytes - pushed) / elapsed,
            "learner_wait_share": wait_share,
            "bottleneck": bottleneck(wait_share),
            "wall_s": state.wall_s,
            "first_update_unix_s": self._first_update_unix_s,
            "stop_reason": stop_reason,
        }

    def _of_episodes(self) -> Snapshot:
        state = self._state
        lengths, returns = state.recent_lengths_steps, state.recent_returns
        return {
            "mean_return_100": state.mean_return_100,
            "min_return_100": min(returns, default=None),
            "max_return_100": max(returns, default=None),
            "std_return_100": float(np.std(returns)) if returns else None,
            "mean_discounted_return_100": state.mean_discounted_return_100,
            "success_rate_100": state.success_rate_100,
            "best_mean_return_100": state.best_mean_return_100,
            "evaluation_mean_return": state.evaluation_mean_return,
            "evaluation_env_steps": state.evaluation_env_steps,
            "evaluation_success_rate": state.evaluation_success_rate,
            "best_evaluation_return": state.best_evaluation_return,
            "mean_length_100_steps": sum(lengths) / len(lengths) if lengths else None,
            **{info_column(key): state.metric_100(key) for key in state.recent_metrics},
            **self._of_evaluations(),
        }

    def _of_evaluations(self) -> Snapshot:
        """Return the columns that only a run with evaluations has."""
        if self._config.evaluation.every_env_steps is None:
            return {}
        metrics = {evaluation_info_column(key): value for key, value in self._state.evaluation_metrics.items()}
        return {**metrics, **self._state.other_evaluations}

    def _exploration_strength(self) -> float | None:
        changed = {path: now for path, (_, now) in self._state.settings.items()}
        return exploration_strength(self._config, changed, self._state.progress)

    def _of_curriculum(self) -> Snapshot:
        """Return the parameters in force of the launch's curriculum that are numbers."""
        if not self._config.environment.curriculum:
            return {}
        now = self.environment.parameters_at(self._state.progress)
        return {
            curriculum_column(name): float(value)
            for name in self._config.environment.curriculum
            if not isinstance(value := now[name], str)
        }

    def _of_replay(self) -> Snapshot:
        if self._replay is None:
            return {}
        return {
            "sampled_steps": self._replay.limiter.sampled_steps,
            "replay_steps": self._replay.size_steps,
            "replay_episodes": self._replay.size_episodes,
        }


def bottleneck(wait_share: float) -> str:
    """Return the bottleneck: 'actors', 'learner', or '-' if both keep pace.

    Args:
        wait_share: Share of the learner's time spent waiting for unrolls, over an interval. The fill of the queue would
            not do, as it changes with every batch.
    """
    if wait_share >= IDLE:
        return "actors"
    return "learner" if wait_share <= BUSY else "-"


def queue_fill(ledger: LedgerCounts, config: RunConfig) -> float:
    """Return the fill of the stream by its nearer bound, 0 to 1; in rounds, the share of actors that have pushed."""
    waiting = ledger.queued + ledger.in_flight
    if config.algorithm.rounds:
        return min(waiting / max(config.actors.count, 1), 1.0)
    share = max(waiting / QueueCaps.of(config).entries, ledger.stream_bytes / config.memory.queue_bytes)
    return min(share, 1.0)  # each actor may go beyond the bound by one unroll
