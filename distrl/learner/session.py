"""The session around the learner's loop: train, report, save and apply operators' requests until a stop condition."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from distrl import nest
from distrl.config import RunConfig
from distrl.errors import FencedError, MemoryBackendError, UnsavedError
from distrl.learner.checkpointing import Checkpointer, Saver
from distrl.learner.diagnostics import Diagnostics
from distrl.learner.evaluations import EvaluationReader
from distrl.learner.learner import Learner, NonFiniteBatchError
from distrl.learner.operator_requests import OperatorRequests
from distrl.learner.prefetch import Ahead
from distrl.learner.preparation import Prepared, outliving
from distrl.learner.replay_batches import Arrived, ReplayBatches
from distrl.learner.reporter import Reporter, Snapshot
from distrl.learner.stopping import ASKED, stop_reason
from distrl.metrics.counters import Waits
from distrl.replay.memory import Replay
from distrl.types import Batch, Contributions

log = logging.getLogger(__name__)


class Session:
    """Runs the learner until a stop condition of the configuration holds or a stop is requested.

    Args:
        source: Makes batches, or with a replay memory arrivals.
        report: Publishes metrics snapshots.
        after_save: Called after each checkpoint with the number of updates (deterministic mode reseeds its actor).
        evaluate: Called after each update, before evaluations are looked for (deterministic mode has no evaluator).

    Attributes:
        reached: The stop condition that ended the training; set before the last save.
    """

    reached: str | None = None
    _best_unkept = False

    def __init__(
        self,
        prepared: Prepared,
        source: Ahead[Any],
        report: Callable[[Snapshot], None],
        stop: Callable[[], bool],
        after_save: Callable[[int], None] | None = None,
        evaluate: Callable[[], None] | None = None,
    ) -> None:
        config, state = prepared.config, prepared.state
        self._config = config
        self._report = report
        self._stop = stop
        self._evaluate = evaluate
        self._evaluations = EvaluationReader.of(config, prepared.backend.registry)
        self._networks = prepared.networks
        self._log_dir = prepared.run_dir / "logs"
        self._policy_dir = prepared.run_dir / "policy"
        waits = self._waits = Waits()
        replay = self._replay = prepared.replay
        self.fence = prepared.backend.fence
        self.learner = Learner(
            prepared.algorithm,
            prepared.networks,
            state,
            source if replay is None else self._sampling(prepared, source, replay),
            prepared.make_publisher(),
            waits,
            wait="unrolls" if replay is None else "replay",
            acts_with_noise=config.exploring is not None and config.exploring.kind == "noisy_network",
        )
        self._reporter = Reporter(config, state, prepared.backend, waits, replay, prepared.origin.note)
        checkpointer = Checkpointer(
            prepared.run_dir / "checkpoints",
            config.checkpoint,
            prepared.networks,
            state,
            replay=outliving(replay, config),
            by_evaluation=self._evaluations is not None,
            on_thread=not config.deterministic,
            saved=prepared.origin.saved,
        )
        self._saver = Saver(
            checkpointer,
            self.learner,
            prepared.networks["main"],
            self._policy_dir,
            self._reporter,
            strict=config.deterministic,
            after_save=after_save,
        )
        self._prepared = prepared
        self._steered = OperatorRequests(config, state, prepared.backend.registry, self._take_over, checkpointer)
        self._diagnostics = Diagnostics(
            config, prepared.algorithm, prepared.networks, prepared.run_dir, self._reporter, self._waits
        )
        self._began = time.monotonic() - state.wall_s
        self.activity = "starting"

    def _sampling(self, prepared: Prepared, arrivals: Ahead[Arrived], replay: Replay) -> ReplayBatches:
        return ReplayBatches(
            arrivals,
            replay,
            size=prepared.config.batch_size,
            state=prepared.state,
            waits=self._waits,
            done=lambda: self._ended() is not None,
            taken_in=self._taken_in,
        )

    def _taken_in(self) -> None:
        """Report progress: an unroll came into the replay memory."""
        self.learner.progressed()
        self.activity = self._doing()

    def _doing(self) -> str:
        limiter = None if self._replay is None else self._replay.limiter
        return "training" if limiter is None or not limiter.filling else limiter.progress

    @property
    def waits_for_unrolls_s(self) -> float:
        """Seconds that the learner has been waiting for unrolls; 0 while it works."""
        return self._waits.under_way_s("unrolls")

    @property
    def time_shares(self) -> Mapping[str, float]:
        """Name -> share of the learner's time in the last snapshot's interval."""
        return self._reporter.time_shares

    @property
    def env_steps_per_s(self) -> float:
        return self._reporter.env_steps_per_s

    def run(self) -> str:
        """Train; return the stop reason: a field of `stop`, or 'asked'.

        Raises:
            NonFiniteError: The update was not applied or published, and no checkpoint was written after it.
            UnsavedError: The training has ended, and its last updates could not be saved in the run's directory.
        """
        self._steered.begin()
        self.learner.start()
        self.activity = self._doing()
        try:
            reason = self._train()
            self.reached = None if reason == ASKED else reason
            self.activity = "stopping"
            self._look_at_evaluations(at_once=True)
            self.learner.publish_newest()
            self._save_what_is_left(reason)
            self._steered.end()
        except FencedError:
            self._saver.close(abandon=True)  # the checkpoints are another learner's now
            raise
        except MemoryBackendError as error:
            try:
                self._saver.save_what_is_left(lambda: None)  # saving needs no Redis
            except UnsavedError as unsaved:
                error.args = (f"{error}; {unsaved}",)
            raise
        finally:
            self._diagnostics.close()
            self._saver.close()
        self._report(self._reporter.snapshot(stop_reason=reason))
        return reason

    def _save_what_is_left(self, reason: str) -> None:
        """Save at the end. A failure is in the last snapshot, as the log may be on the same full disk."""
        try:
            self._saver.save_what_is_left(lambda: self._report(self._reporter.snapshot()))
        except UnsavedError as error:
            self._reporter.unsaved = str(error)
            self._report(self._reporter.snapshot(stop_reason=reason))
            raise

    def _train(self) -> str:
        state = self.learner.state
        while (reason := self._ended()) is None and not self._stop():
            try:
                outcome = self.learner.step()
            except NonFiniteBatchError as error:
                self._dump(error)
                raise
            if outcome is None:
                return self._ended() or ASKED
            state.wall_s = time.monotonic() - self._began
            self._reporter.record(*outcome)
            self._look_at_evaluations()
            self.attend()
            if self._reporter.due:
                self._diagnostics.record(outcome[0].batch, state.env_steps)
                self._report(self._reporter.snapshot())
        return reason or ASKED

    def attend(self) -> None:
        """Apply requests and save if due; called between updates, and while the learner waits for unrolls."""
        self._steered.attend()
        self._saver.save_if_due()

    def _take_over(self, config: RunConfig) -> None:
        """Apply changed settings."""
        self._prepared.algorithm.steer(self._networks, config)
        self._prepared.staleness.updates = config.algorithm.max_staleness_updates

    def _ended(self) -> str | None:
        """Return the stop condition that holds, or None."""
        state = self.learner.state
        state.wall_s = time.monotonic() - self._began
        return stop_reason(self._config.stop, state)

    def _look_at_evaluations(self, *, at_once: bool = False) -> None:
        """Record new evaluations, and keep the weights of the best one."""
        if self._evaluations is None:
            return
        if self._evaluate is not None and not at_once:
            with self._waits.measure("evaluation"):
                self._evaluate()
        found = self._evaluations.new(at_once=at_once)
        is_best = [self.learner.state.observe_evaluation(one.mean_return, one.env_steps) for one in found]
        self._best_unkept |= any(is_best)
        if found and self._best_unkept:
            try:
                self._evaluations.keep_best(self._policy_dir)
                self._best_unkept = False
            except OSError as error:  # tried again with the next evaluation
                log.error("the weights of the best evaluation cannot be kept: %s", error)
                self._reporter.unsaved = str(error)

    def _dump(self, error: NonFiniteBatchError) -> None:
        """Save the batch that was not finite beside the log."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        path = self._log_dir / f"nonfinite-batch-{error.number}.npz"
        arrays = {name.replace("/", "."): array for name, array in nest.leaves(_tree(error.batch))}
        rewards = self._networks["main"].rewards
        if rewards is not None:  # the scale that the update saw
            arrays |= {name.replace("/", "."): array for name, array in rewards.published().items()}
        np.savez(path, allow_pickle=False, **arrays)
        error.args = (f"{error}; the batch is in {path}",)


def _tree(batch: Batch | Contributions) -> nest.Tree:
    """Return a batch, or gradients, as a tree of arrays."""
    if isinstance(batch, Batch):
        return batch._asdict()
    return {f"actor-{given.header.actor}-{i}": given.differentiated.gradients for i, given in enumerate(batch)}
