"""Saving checkpoints and the policy, during the training and at its end, also where the disk refuses."""

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from distrl.errors import UnsavedError
from distrl.learner.checkpointer import RETRY_S, Checkpointer
from distrl.learner.learner import Learner
from distrl.learner.policy_files import write_rewards, write_weights
from distrl.learner.reporter import Reporter
from distrl.networks.network_wrapper import NetworkWrapper
from distrl.types import Weights

log = logging.getLogger(__name__)
SLOW_S = 60.0
"""For one checkpoint: from here on the user is told."""
LAST_RETRIES_S = (1.0, 3.0, 6.0)
"""Waits before the last updates are saved again."""
LAST_RETRY_BY_S = 12.0
"""No retry later than this, if each save takes long: a supervisor waits 30 s for a learner that it has asked to end."""


class Saver:
    """Saves when a checkpoint is due, and at the end.

    Args:
        network: Whose policy is written with every checkpoint, into `policy_dir`.
        reporter: Is told what keeps checkpoints from being written.
        strict: Every save ends before the training goes on, and one that fails is an error: deterministic mode, where a
            resumption could not repeat anything else.
        after_save: Called after each checkpoint with its number of updates.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        learner: Learner,
        network: NetworkWrapper,
        policy_dir: Path,
        reporter: Reporter,
        *,
        strict: bool,
        after_save: Callable[[int], None] | None = None,
    ) -> None:
        self._checkpointer = checkpointer
        self._learner = learner
        self._network = network
        self._policy_dir = policy_dir
        self._reporter = reporter
        self._strict = strict
        self._after_save = after_save

    def save_if_due(self) -> None:
        """A disk that is full or refuses costs no training: it is told of and tried again. Nor does one that is slow.

        Raises:
            OSError: It refuses, and saving is strict.
        """
        try:
            self._note(self._checkpointer.finish(at_once=not self._strict))
            if self._checkpointer.writing_s > SLOW_S:
                self._reporter.unsaved = f"one is being written for more than {SLOW_S:g} s"
            if self._checkpointer.due:
                # So that actors of a learner that goes on and of one that resumes here have the same weights.
                self._learner.publish_newest()
                self._begin()
                if self._strict:
                    self._note(self._checkpointer.finish())
        except OSError as error:
            if self._strict:
                raise
            self._reporter.unsaved = str(error)
            log.error("no checkpoint: %s; tried again in %g s", error, RETRY_S)

    def save_what_is_left(self, report: Callable[[], None]) -> None:
        """Wait for the checkpoint that is being written; write another if there are later updates, or if it failed.

        A disk that refuses is tried again for some seconds. Then the updates are saved in another directory.

        Args:
            report: Called before each wait, to publish what keeps the checkpoint from being written.

        Raises:
            UnsavedError: The run's directory does not take them; the message names the other directory.
        """
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
        """Save elsewhere, if possible, what the run's directory does not take; return the error that says so."""
        updates, refused = self._learner.state.updates, []
        for parent in _other_places():
            folder = None
            try:
                folder = Path(tempfile.mkdtemp(prefix=f"saved-by-distrl-{self._policy_dir.parent.name}-", dir=parent))
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
        """Make a run's directory of `folder`, which can be resumed, evaluated and exported."""
        run_dir = self._policy_dir.parent
        self._checkpointer.save_in(folder / "checkpoints")
        shutil.copytree(self._policy_dir, folder / "policy", ignore=shutil.ignore_patterns(".*", "weights.msgpack"))
        self._policy_writer(folder / "policy")()
        for name in ("config.yaml", "manifest.json"):
            if (run_dir / name).is_file():
                shutil.copy(run_dir / name, folder / name)

    def close(self, *, abandon: bool = False) -> None:
        """Waits for what is being written, whatever comes of it; with `abandon` it is kept as short as can be."""
        self._checkpointer.close(abandon=abandon)

    def _begin(self) -> None:
        self._checkpointer.begin(self._policy_writer(self._policy_dir))

    def _policy_writer(self, directory: Path) -> Callable[[], None]:
        """Return what writes the policy as it is now, beside a bundle that is in `directory`."""
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
        if self._after_save is not None:
            self._after_save(updates)


def _other_places() -> Iterator[Path]:
    """Yield the directories that may take what the run's own does not."""
    try:
        yield Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        log.error("no temporary directory: %s", error)
    try:
        yield Path.home()
    except RuntimeError as error:
        log.error("no home directory: %s", error)
