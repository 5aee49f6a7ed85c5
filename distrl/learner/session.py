"""The session around the learner's loop: train, report, save and apply operators' requests until a stop condition."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from distrl import nest
from distrl.config import RunConfig
from distrl.config.run import StopConfig
from distrl.errors import FencedError, MemoryBackendError, NonFiniteError, StoreError, UnsavedError
from distrl.learner.checkpointing import Checkpointer, Saver
from distrl.learner.diagnostics import Diagnostics
from distrl.learner.evaluations import Evaluations
from distrl.learner.learner import Learner
from distrl.learner.nonfinite import NonFiniteBatchError
from distrl.learner.operator_requests import OperatorRequests
from distrl.learner.prefetch import Ahead
from distrl.learner.preparation import Prepared
from distrl.learner.recovery import Recovery
from distrl.learner.replay_batches import Arrived, ReplayBatches
from distrl.learner.reporter import Reporter, Snapshot
from distrl.learner.state import WINDOW_EPISODES, LearnerState
from distrl.memory_backend.records import AWAITS_EVALUATION
from distrl.metrics.counters import Waits
from distrl.types import Batch, Contributions

ASKED = "asked"
"""Stop reason of a requested stop."""


class Session:
    """Runs the learner until a stop condition of the configuration holds or a stop is requested.

    Args:
        source: Makes batches, or with a replay memory arrivals.
        report: Publishes metrics snapshots.
        after_save: Called after each checkpoint with the number of updates (deterministic mode reseeds its actor).
        evaluate: Called after each update, before evaluations are looked for (deterministic mode has no evaluator).
        steer: Called with the configuration in force, at the beginning and after changes (deterministic mode has no
            roles that read it).

    Attributes:
        reached: The stop condition that ended the training; set before the last save.
    """

    reached: str | None = None
    activity = "starting"

    def __init__(
        self,
        prepared: Prepared,
        source: Ahead[Any],
        report: Callable[[Snapshot], None],
        stop: Callable[[], bool],
        after_save: Callable[[int], None] | None = None,
        evaluate: Callable[[], None] | None = None,
        steer: Callable[[RunConfig], None] = lambda _: None,
    ) -> None:
        waits = self._waits = Waits()
        self.fence = prepared.backend.fence.number
        self._prepared, self._report, self._stop, self._evaluate = prepared, report, stop, evaluate
        self.learner = Learner(prepared, source if prepared.replay is None else self._sampling(source), waits)
        self._reporter = Reporter(prepared, waits)
        evaluates = prepared.config.evaluation.every_env_steps is not None
        self._evaluations = Evaluations(prepared, self._reporter) if evaluates else None
        checkpointer = Checkpointer(prepared)
        self._saver = Saver(prepared, checkpointer, self.learner, self._reporter, after_save)
        self._roles = steer
        self._steered = OperatorRequests(prepared, checkpointer, self._steer)
        self._recovery = Recovery(prepared, self.learner)
        self._diagnostics = Diagnostics(prepared, self._reporter, waits)
        self._began = time.monotonic() - prepared.state.wall_s

    def _steer(self, config: RunConfig) -> None:
        self._reporter.environment = config.environment
        self._roles(config)

    def _sampling(self, arrivals: Ahead[Arrived]) -> ReplayBatches:
        prepared = self._prepared
        assert prepared.replay is not None
        return ReplayBatches(
            arrivals,
            prepared.replay,
            size=prepared.config.batch_size,
            state=prepared.state,
            waits=self._waits,
            done=lambda: self._ended() is not None,
            taken_in=self._taken_in,
        )

    def _taken_in(self) -> None:
        """Report progress: an unroll came into the replay memory."""
        self.learner.last_update_at = time.monotonic()
        self.activity = self._doing()

    def _doing(self) -> str:
        replay = self._prepared.replay
        return "training" if replay is None or not replay.limiter.filling else replay.limiter.progress

    @property
    def waits_for_unrolls_s(self) -> float:
        """Seconds that the learner has been waiting for unrolls; 0 while it works."""
        return self._waits.under_way_s("unrolls")

    @property
    def waited_for_unrolls_s(self) -> float:
        """Seconds that the learner has waited for unrolls, of all the training."""
        return self._waits.total_s("unrolls")

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
            StoreError: They are saved there, and the data store does not take them.
        """
        self._steered.begin()
        self.learner.start()
        self.activity = self._doing()
        try:
            reason = self._train()
            self.reached = None if reason == ASKED else reason
            self.activity = "stopping"
            self.learner.publish_newest()
            if self._evaluations is not None:
                self._evaluations.look(at_once=True)
            self._save_what_is_left(reason)
            if self._have_last_evaluation(reason):
                self._saver.outdate()
                self._save_what_is_left(reason)
            self._steered.end()
        except FencedError:
            self._saver.close(abandon=True)  # the checkpoints are another learner's now
            raise
        except MemoryBackendError as error:
            try:
                self._saver.save_what_is_left(lambda: None)  # saving needs no Redis
            except (UnsavedError, StoreError) as unsaved:
                error.args = (f"{error}; {unsaved}",)
            raise
        except (NonFiniteError, UnsavedError, StoreError):
            raise
        except Exception:
            self._saver.save_before_failure()
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
        except (UnsavedError, StoreError) as error:
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
            self._steered.advance()
            self._look_at_evaluations()
            self.attend()
            if self._reporter.due:
                self._diagnostics.record(outcome[0].batch, state.env_steps)
                self._report(self._reporter.snapshot())
        return reason or ASKED

    def waits_on(self) -> bool:
        """Attend while the learner waits for unrolls; return whether it is to wait on: minutes pass meanwhile."""
        self.attend()
        return self._ended() is None

    def attend(self) -> None:
        """Recover, apply requests, save if due; called between updates, and while the learner waits."""
        self._recovery.attend()
        self._steered.attend()
        self._saver.save_if_due()

    def _ended(self) -> str | None:
        """Return the stop condition that holds, or None."""
        state = self.learner.state
        state.wall_s = time.monotonic() - self._began
        return stop_reason(self._prepared.config.stop, state)

    def _look_at_evaluations(self) -> None:
        if self._evaluations is None:
            return
        if self._evaluate is not None:
            with self._waits.measure("evaluation"):
                self._evaluate()
        self._evaluations.look()

    def _have_last_evaluation(self, reason: str) -> bool:
        """Wait for the evaluation of the last weights, unless it was asked to stop, or an evaluation has ended it.

        Returns:
            Whether there is one that the last checkpoint does not have.
        """
        if self._evaluations is None or reason in (ASKED, "evaluation_return") or not self._evaluations.lacks_last:
            return False
        self.activity = AWAITS_EVALUATION
        self._report(self._reporter.snapshot())
        found = self._evaluations.have_last(self.attend if self._evaluate is None else self._evaluate, self._stop)
        self.activity = "stopping"
        return found

    def _dump(self, error: NonFiniteBatchError) -> None:
        """Save the batch that was not finite beside the log."""
        folder = self._prepared.run_dir / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"nonfinite-batch-{error.number}.npz"
        arrays = {name.replace("/", "."): array for name, array in nest.leaves(_tree(error.batch))}
        rewards = self._prepared.networks["main"].rewards
        if rewards is not None:  # the scale that the update saw
            arrays |= {name.replace("/", "."): array for name, array in rewards.published().items()}
        np.savez(path, allow_pickle=False, **arrays)
        error.args = (f"{error}; the batch is in {path}",)


def _tree(batch: Batch | Contributions) -> nest.Tree:
    """Return a batch, or gradients, as a tree of arrays."""
    if isinstance(batch, Batch):
        return batch._asdict()
    return {f"actor-{given.header.actor}-{i}": given.differentiated.gradients for i, given in enumerate(batch)}


def stop_reason(stop: StopConfig, state: LearnerState) -> str | None:
    """Return the name of the first stop condition that holds, or None."""
    mean = state.mean_return_100
    full = len(state.recent_returns) == WINDOW_EPISODES
    conditions: Mapping[str, bool] = {
        "mean_return": stop.mean_return is not None and full and mean is not None and mean >= stop.mean_return,
        "evaluation_return": _reached(stop.evaluation_return, state.best_evaluation_return),
        "metrics": any(_reached(wanted, state.full_window_metric(key)) for key, wanted in stop.metrics.items()),
        "env_steps": stop.env_steps is not None and state.env_steps >= stop.env_steps,
        "episodes": stop.episodes is not None and state.episodes >= stop.episodes,
        "updates": stop.updates is not None and state.updates >= stop.updates,
        "minutes": stop.minutes is not None and state.wall_s >= 60.0 * stop.minutes,
    }
    return next((name for name, holds in conditions.items() if holds), None)


def _reached(wanted: float | None, value: float | None) -> bool:
    return wanted is not None and value is not None and value >= wanted
