"""Saves checkpoints and the policy, during training and at its end, and retries if the disk fails."""

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from distrl.data_store.saved_elsewhere import new_folder, places
from distrl.errors import FencedError, MemoryBackendError, NonFiniteError, StoreError, UnsavedError, failure
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.attendants.reporter import Reporter
from distrl.learner.batches import Trained
from distrl.learner.checkpointing import RETRY_S, Checkpointer
from distrl.learner.learner import Learner
from distrl.learner.mirror import Mirror
from distrl.learner.policy_files import write_rewards, write_weights
from distrl.learner.stop_conditions import ASKED
from distrl.memory_backend.records import Demand
from distrl.memory_backend.registry import Registry
from distrl.networks.copies import Copies
from distrl.types import Weights

log = logging.getLogger(__name__)
SLOW_S = 60.0
"""Duration of writing a checkpoint beyond which the user gets a message."""
LAST_RETRIES_S = (1.0, 3.0, 6.0)
"""Waits before further attempts to save the last updates."""
LAST_RETRY_BY_S = 12.0
"""No retry later than this, if each save takes long: a supervisor waits 30 s for a learner that it has asked to end."""


@dataclass(kw_only=True, eq=False)
class Saver(Attendant):
    """Saves when a checkpoint is due or requested, and at the end.

    Attributes:
        network: Network of the policy.
        reporter: Reports errors that keep checkpoints from being written.
        tell: Called after each checkpoint with its number of updates.
        strict: Wait for every save, and raise its error, so that a resumed run repeats.
        mirror: Stores checkpoints and policy in the data store as well; None without one.
    """

    checkpointer: Checkpointer
    learner: Learner
    network: Copies
    run_dir: Path
    registry: Registry
    reporter: Reporter
    tell: Callable[[int], None]
    strict: bool
    mirror: Mirror | None
    _request: tuple[int, int] | None = field(init=False, default=None)  # updates that it must hold, number of it

    def want(self, demand: Demand) -> None:
        """Have a requested checkpoint of the updates so far written, then mark the request as done."""
        checkpointer = self.checkpointer
        if self._request is None and demand.pending:
            self._request = (self.learner.state.updates, demand.asked)
            checkpointer.wanted = self.learner.state.updates
        if self._request is not None and checkpointer.holds(self._request[0]):
            self.registry.fulfil("checkpoint", self._request[1])
            self._request = checkpointer.wanted = None

    def attend(self, trained: Trained | None) -> None:
        """Save if due. A full, failing or slow disk does not stop the training: it is reported and tried again.

        Raises:
            OSError: Saving is strict and failed.
            FencedError: Another learner has taken over the run in the data store.
        """
        if self.mirror is not None:
            self.mirror.check()
            self.reporter.unstored = self.mirror.trouble
        try:
            self._note(self.checkpointer.finish(at_once=not self.strict))
            if self.checkpointer.writing_s > SLOW_S:
                self.reporter.unsaved = f"one is being written for more than {SLOW_S:g} s"
            if self.checkpointer.due:
                # Actors of a learner that continues, and of one that resumes here, then have the same weights.
                self.learner.publish_newest()
                self._begin()
                if self.strict:
                    self._note(self.checkpointer.finish())
        except OSError as error:
            if self.strict:
                raise
            self.reporter.unsaved = str(error)
            log.error("no checkpoint: %s; tried again in %g s", error, RETRY_S)

    def end(self, reason: str) -> None:
        """Save the last updates, and mark requested checkpoints as written, as the last one was."""
        self.save_last(reason)
        demand = self.registry.control().checkpoint
        if demand.pending:
            self.registry.fulfil("checkpoint", demand.asked)

    def save_last(self, reason: str) -> None:
        """Save what is left at the end. A failure is in the last snapshot, as the log may be on the same full disk.

        Raises:
            UnsavedError, StoreError: See `save_what_is_left`.
        """
        try:
            self.save_what_is_left(self.reporter.report, counts=reason != ASKED)
        except (UnsavedError, StoreError) as error:
            self.reporter.unsaved = str(error)
            self.reporter.report(reason)
            raise

    def save_what_is_left(self, report: Callable[[], None], *, counts: bool = False) -> None:
        """Wait for the checkpoint that is being written; write another if there are later updates, or if it failed.

        A failing disk is tried again for some seconds. Then the updates are saved in another directory.

        Args:
            report: Called before each wait, to publish the error.
            counts: Whether the launch counts although it has taken no unrolls in. One that is refused leaves the data
                store as it was; to the learner, its end looks like a requested stop.

        Raises:
            UnsavedError: The run's directory cannot be written; the message names the other directory.
            StoreError: The directory is complete, and the data store does not take the newest checkpoint.
            FencedError: As in `attend`.
        """
        self._save_in_some_directory(report)
        if self.mirror is not None and (counts or self.mirror.begun()):
            self.mirror.finish(report)
            self.reporter.unstored = None

    def _save_in_some_directory(self, report: Callable[[], None]) -> None:
        waits, enough_at = iter((0.0, *LAST_RETRIES_S)), time.monotonic() + LAST_RETRY_BY_S
        while True:
            try:
                self._note(self.checkpointer.finish())
                if self.checkpointer.behind:
                    self._begin()
                    self._note(self.checkpointer.finish())
            except OSError as error:
                wait_s = next(waits, None)
                if wait_s is None or time.monotonic() > enough_at:
                    raise self._unsaved(error) from error
                log.error("no checkpoint: %s; tried again in %g s", error, wait_s)
                if wait_s:
                    self.reporter.unsaved = f"{error}; tried again in {wait_s:g} s"
                    report()
                time.sleep(wait_s)
            else:
                return

    def _unsaved(self, error: OSError) -> UnsavedError:
        """Save the last updates in another directory, if possible; return the error to raise."""
        updates, refused = self.learner.state.updates, []
        for place in places():
            folder = None
            try:
                folder = new_folder(place, self.run_dir)
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
        self.checkpointer.save_in(folder / "checkpoints")
        unfinished_and_older = shutil.ignore_patterns(".*", "weights.msgpack")
        shutil.copytree(self.run_dir / "policy", folder / "policy", ignore=unfinished_and_older)
        self._policy_writer(folder / "policy")()
        for name in ("config.yaml", "manifest.json"):
            if (self.run_dir / name).is_file():
                shutil.copy(self.run_dir / name, folder / name)

    def close(self, error: BaseException | None) -> None:
        """Save what an error lets be saved, and wait for the checkpoint that is being written."""
        try:
            if error is not None:
                self._save_despite(error)
        finally:
            if self.mirror is not None:
                self.mirror.close()
            self.checkpointer.close(abandon=isinstance(error, FencedError))

    def _save_despite(self, error: BaseException) -> None:
        match error:
            case FencedError():  # the checkpoints are another learner's now
                return
            case MemoryBackendError():  # saving needs no Redis
                try:
                    self.save_what_is_left(lambda: None)
                except (UnsavedError, StoreError) as unsaved:
                    error.args = (f"{error}; {unsaved}",)
            case NonFiniteError() | UnsavedError() | StoreError():
                return
            case Exception():
                self._save_before_failure()

    def _save_before_failure(self) -> None:
        """Publish and save the updates before one that has failed, so that the next learner goes on behind them.

        What fails here is logged, because the error that is under way ends the learner. An update that fails halfway
        may have changed some of the weights already; they are saved as they are, unless they are not finite.
        """
        if not self.learner.state.updates:
            return
        try:
            self.learner.publish_newest()
        except (FencedError, NonFiniteError) as error:  # of another learner, or of no use
            log.error("the updates before it are not saved: %s", error)
            return
        except Exception as error:  # saving needs no Redis
            log.error("the updates before it are not published: %s", failure(error)[1])
        try:
            self.save_what_is_left(lambda: None)
        except Exception as error:  # any, as what has broken the update may break this too
            log.error("the updates before it are not saved: %s", failure(error)[1])

    def _begin(self) -> None:
        self.checkpointer.begin(self._policy_writer(self.run_dir / "policy"))

    def _policy_writer(self, directory: Path) -> Callable[[], None]:
        """Return a function that writes the current policy beside the bundle in `directory`."""
        weights = Weights(self.learner.state.weights_version, self.network.online.policy_weights())
        rewards = None if self.network.rewards is None else self.network.rewards.described()

        def write_policy() -> None:
            write_weights(directory, weights)
            if rewards is not None:
                write_rewards(directory, rewards)

        return write_policy

    def _note(self, updates: int | None) -> None:
        if updates is None:
            return
        self.reporter.unsaved = None
        self.reporter.saved_at = self.checkpointer.saved_at
        if self.mirror is not None:
            self.mirror.request()
        self.tell(updates)
