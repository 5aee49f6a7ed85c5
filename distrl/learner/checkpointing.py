"""Saves checkpoints and the policy, during training and at its end, and retries if the disk fails.

A checkpoint holds every copy of every network, the optimizers and `LearnerState`. Because a disk may be slow, the data
is copied at once and written beside the training.
"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from distrl.data_store.checkpoints import save
from distrl.data_store.saved_elsewhere import new_folder, places
from distrl.errors import FencedError, NonFiniteError, UnsavedError, failure
from distrl.learner.learner import Learner
from distrl.learner.policy_files import write_rewards, write_weights
from distrl.learner.preparation import Prepared
from distrl.learner.replay_set_up import is_saved, remove_older, save_replay
from distrl.learner.reporter import Reporter
from distrl.types import Array, Weights

log = logging.getLogger(__name__)
RETRY_S = 10.0
"""Time until the next attempt after a disk error."""


class Checkpointer:
    """Saves by the clock (`checkpoint.every_s`), by updates (`checkpoint.every_updates`), or whichever comes first.

    Attributes:
        wanted: Least number of updates in a requested checkpoint; None: no request.
        saved_at: Start of the newest checkpoint, or of the one being written, in monotonic seconds.
    """

    def __init__(self, prepared: Prepared) -> None:
        config = prepared.config
        self.wanted: int | None = None
        self.saved_at = time.monotonic()
        self._config = config.checkpoint
        self._directory = prepared.run_dir / "checkpoints"
        self._networks, self._state = prepared.networks, prepared.state
        self._replay = prepared.replay if is_saved(config) else None
        self._by_evaluation = config.evaluation.every_env_steps is not None
        # Updates of the newest checkpoint that is complete or being written; -1: none.
        self._held = self._state.updates if prepared.origin.saved and self._state.updates else -1
        self._retry_at = 0.0
        self._thread = None if config.deterministic else ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[int] | None = None
        self._undo: Callable[[], None] = lambda: None
        self._abandoned = False

    @property
    def due(self) -> bool:
        """Whether to save now: on request, or after enough time or updates; never while a save runs."""
        since = self._state.updates - max(self._held, 0)
        if self._writing is not None or time.monotonic() < self._retry_at:
            return False
        if self.wanted is not None and self._held < self.wanted:
            return True
        if since == 0:
            return False
        by_updates = self._config.every_updates is not None and since >= self._config.every_updates
        by_time = self._config.every_s is not None and time.monotonic() - self.saved_at >= self._config.every_s
        return by_updates or by_time

    @property
    def behind(self) -> bool:
        """Whether there are updates that no checkpoint holds, not even one that is being written."""
        return self._state.updates > self._held

    def outdate(self) -> None:
        """Let the newest checkpoint count as behind: more is known of its weights."""
        self._held = min(self._held, self._state.updates - 1)

    def holds(self, updates: int) -> bool:
        """Return whether a complete checkpoint has at least this number of updates."""
        return self._writing is None and self._held >= updates

    def begin(self, and_then: Callable[[], None] = lambda: None) -> None:
        """Copy everything and begin to write; `finish` returns the result.

        The checkpoint becomes the best if no saved one had as high a mean return or evaluation. A replay memory is too
        large to copy and is written before this returns.

        Args:
            and_then: Called by the writing thread once the checkpoint is complete; may raise OSError.

        Raises:
            OSError: The replay memory cannot be written.
        """
        assert self._writing is None  # one at a time
        state, saved = self._state, (self.saved_at, self._held)
        best_before = state.best_saved_return, state.best_saved_evaluation

        def undo() -> None:
            self.saved_at, self._held = saved
            state.best_saved_return, state.best_saved_evaluation = best_before

        best = state.take_best(by_evaluation=self._by_evaluation)
        arrays = self._arrays()
        updates, meta, keep = state.updates, state.to_meta(), self._config.keep

        def write() -> int:
            if self._abandoned:
                return updates
            save(self._directory, updates, arrays, meta, keep=keep, best=best, replay=recorded)
            if self._replay is not None:
                remove_older(self._directory, updates)
            if not self._abandoned:
                and_then()
            return updates

        self._undo = undo
        self.saved_at, self._held = time.monotonic(), updates
        try:
            recorded = None if self._replay is None else save_replay(self._directory, self._replay, state)
        except OSError:
            self._failed()
            raise
        self._writing = _written(write) if self._thread is None else self._thread.submit(write)

    def save_in(self, directory: Path) -> None:
        """Write one more checkpoint, to another directory and without the replay memory.

        Raises:
            OSError: It cannot be written there either.
        """
        save(directory, self._state.updates, self._arrays(), self._state.to_meta(), keep=1)

    def _arrays(self) -> dict[str, Mapping[str, Array]]:
        return {
            f"{name}.{group}": values
            for name, network in self._networks.items()
            for group, values in network.state_arrays().items()
        }

    def finish(self, *, at_once: bool = False) -> int | None:
        """Return the number of updates in the checkpoint that has just been completed, or None.

        Args:
            at_once: Do not wait for completion.

        Raises:
            OSError: The disk is full or fails. Earlier checkpoints are intact; none is due for `RETRY_S`.
        """
        if self._writing is None or (at_once and not self._writing.done()):
            return None
        writing, self._writing = self._writing, None
        try:
            return writing.result()
        except OSError:
            self._failed()
            raise

    @property
    def writing_s(self) -> float:
        """Seconds that the current checkpoint has been written for; 0 if none is."""
        return 0.0 if self._writing is None else time.monotonic() - self.saved_at

    def close(self, *, abandon: bool = False) -> None:
        """Wait for the checkpoint being written, without raising its errors.

        Args:
            abandon: Write no more: the directory now belongs to another learner.
        """
        self._abandoned = abandon
        if self._thread is not None:
            self._thread.shutdown()
        if self._writing is not None and (error := self._writing.exception()) is not None:
            log.error("no checkpoint: %s", error)

    def _failed(self) -> None:
        self._undo()
        self._retry_at = time.monotonic() + RETRY_S


def _written(write: Callable[[], int]) -> Future[int]:
    """Return the future of a task that is done at once, without a thread."""
    done: Future[int] = Future()
    try:
        done.set_result(write())
    except OSError as error:
        done.set_exception(error)
    return done


SLOW_S = 60.0
"""Duration of writing a checkpoint beyond which the user gets a message."""
LAST_RETRIES_S = (1.0, 3.0, 6.0)
"""Waits before further attempts to save the last updates."""
LAST_RETRY_BY_S = 12.0
"""No retry later than this, if each save takes long: a supervisor waits 30 s for a learner that it has asked to end."""


class Saver:
    """Saves when a checkpoint is due, and at the end.

    Args:
        reporter: Reports errors that keep checkpoints from being written.
        after_save: Called after each checkpoint with its number of updates.
    """

    def __init__(
        self,
        prepared: Prepared,
        checkpointer: Checkpointer,
        learner: Learner,
        reporter: Reporter,
        after_save: Callable[[int], None] | None = None,
    ) -> None:
        self._checkpointer = checkpointer
        self._learner = learner
        self._reporter = reporter
        self._after_save = after_save
        self._network = prepared.networks["main"]
        self._run_dir = prepared.run_dir
        self._mirror = prepared.mirror
        # Deterministic mode waits for every save, and raises its error, so that a resumed run repeats.
        self._strict = prepared.config.deterministic

    def save_if_due(self) -> None:
        """Save if due. A full, failing or slow disk does not stop the training: it is reported and tried again.

        Raises:
            OSError: Saving is strict and failed.
            FencedError: Another learner has taken over the run in the data store.
        """
        if self._mirror is not None:
            self._mirror.check()
            self._reporter.unstored = self._mirror.trouble
        try:
            self._note(self._checkpointer.finish(at_once=not self._strict))
            if self._checkpointer.writing_s > SLOW_S:
                self._reporter.unsaved = f"one is being written for more than {SLOW_S:g} s"
            if self._checkpointer.due:
                # Actors of a learner that continues, and of one that resumes here, then have the same weights.
                self._learner.publish_newest()
                self._begin()
                if self._strict:
                    self._note(self._checkpointer.finish())
        except OSError as error:
            if self._strict:
                raise
            self._reporter.unsaved = str(error)
            log.error("no checkpoint: %s; tried again in %g s", error, RETRY_S)

    def outdate(self) -> None:
        """Let `save_what_is_left` write the last checkpoint again, in the place of the one of the same updates."""
        self._checkpointer.outdate()

    def save_what_is_left(self, report: Callable[[], None]) -> None:
        """Wait for the checkpoint that is being written; write another if there are later updates, or if it failed.

        A failing disk is tried again for some seconds. Then the updates are saved in another directory.

        Args:
            report: Called before each wait, to publish the error.

        Raises:
            UnsavedError: The run's directory cannot be written; the message names the other directory.
            StoreError: The directory is complete, and the data store does not take the newest checkpoint.
            FencedError: As in `save_if_due`.
        """
        self._save_what_is_left(report)
        if self._mirror is not None:
            self._mirror.finish(report)
            self._reporter.unstored = None

    def _save_what_is_left(self, report: Callable[[], None]) -> None:
        waits, enough_at = iter((0.0, *LAST_RETRIES_S)), time.monotonic() + LAST_RETRY_BY_S
        while True:
            try:
                self._note(self._checkpointer.finish())
                if self._checkpointer.behind:
                    self._begin()
                    self._note(self._checkpointer.finish())
            except OSError as error:
                wait_s = next(waits, None)
                if wait_s is None or time.monotonic() > enough_at:
                    raise self._unsaved(error) from error
                log.error("no checkpoint: %s; tried again in %g s", error, wait_s)
                if wait_s:
                    self._reporter.unsaved = f"{error}; tried again in {wait_s:g} s"
                    report()
                time.sleep(wait_s)
            else:
                return

    def _unsaved(self, error: OSError) -> UnsavedError:
        """Save the last updates in another directory, if possible; return the error to raise."""
        updates, refused = self._learner.state.updates, []
        for place in places():
            folder = None
            try:
                folder = new_folder(place, self._run_dir)
                self._save_in(folder)
            except OSError as trouble:
                refused.append(str(trouble))
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
            else:
                return UnsavedError(
                    f"the run's directory does not take update {updates:,}: {error}; it is saved in {folder} instead: "
                    f"distrl train --resume {folder} goes on"
                )
        also = "".join(f"; {trouble}" for trouble in refused)
        return UnsavedError(f"update {updates:,} cannot be saved: {error}{also}; earlier checkpoints are as they were")

    def _save_in(self, folder: Path) -> None:
        """Turn `folder` into a run's directory that can be resumed, evaluated and exported."""
        self._checkpointer.save_in(folder / "checkpoints")
        unfinished_and_older = shutil.ignore_patterns(".*", "weights.msgpack")
        shutil.copytree(self._run_dir / "policy", folder / "policy", ignore=unfinished_and_older)
        self._policy_writer(folder / "policy")()
        for name in ("config.yaml", "manifest.json"):
            if (self._run_dir / name).is_file():
                shutil.copy(self._run_dir / name, folder / name)

    def save_before_failure(self) -> None:
        """Publish and save the updates before one that has failed, so that the next learner goes on behind them.

        What fails here is logged, because the error that is under way ends the learner. An update that fails halfway
        may have changed some of the weights already; they are saved as they are, unless they are not finite.
        """
        if not self._learner.state.updates:
            return
        try:
            self._learner.publish_newest()
        except (FencedError, NonFiniteError) as error:  # of another learner, or of no use
            log.error("the updates before it are not saved: %s", error)
            return
        except Exception as error:  # saving needs no Redis
            log.error("the updates before it are not published: %s", failure(error)[1])
        try:
            self.save_what_is_left(lambda: None)
        except Exception as error:  # any, as what has broken the update may break this too
            log.error("the updates before it are not saved: %s", failure(error)[1])

    def close(self, *, abandon: bool = False) -> None:
        """Wait for the checkpoint being written, without raising its errors; with `abandon` as briefly as possible."""
        if self._mirror is not None:
            self._mirror.close()
        self._checkpointer.close(abandon=abandon)

    def _begin(self) -> None:
        self._checkpointer.begin(self._policy_writer(self._run_dir / "policy"))

    def _policy_writer(self, directory: Path) -> Callable[[], None]:
        """Return a function that writes the current policy beside the bundle in `directory`."""
        weights = Weights(self._learner.state.weights_version, self._network.online.policy_weights())
        rewards = None if self._network.rewards is None else self._network.rewards.described()

        def write_policy() -> None:
            write_weights(directory, weights)
            if rewards is not None:
                write_rewards(directory, rewards)

        return write_policy

    def _note(self, updates: int | None) -> None:
        if updates is None:
            return
        self._reporter.unsaved = None
        self._reporter.saved_at = self._checkpointer.saved_at
        if self._mirror is not None:
            self._mirror.request()
        if self._after_save is not None:
            self._after_save(updates)
