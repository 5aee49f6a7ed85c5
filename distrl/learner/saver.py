"""Saving while the training goes on: checkpoints and the policy, and what becomes of it where the disk refuses."""

import logging
from collections.abc import Callable
from pathlib import Path

from distrl.learner.checkpointer import RETRY_S, Checkpointer
from distrl.learner.learner import Learner
from distrl.learner.policy_files import write_rewards, write_weights
from distrl.learner.reporter import Reporter
from distrl.networks.network_wrapper import NetworkWrapper
from distrl.types import Weights

log = logging.getLogger(__name__)
SLOW_S = 60.0
"""For one checkpoint: from here on the user is told."""


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

    def save_what_is_left(self) -> None:
        """Waits for the checkpoint that is being written; if there are later updates, or it failed, writes another.

        Raises:
            OSError: The disk is full or refuses.
        """
        try:
            self._note(self._checkpointer.finish())
        except OSError as error:
            log.error("no checkpoint: %s; tried again", error)
        if self._checkpointer.behind:
            self._begin()
            self._note(self._checkpointer.finish())

    def close(self, *, abandon: bool = False) -> None:
        """Waits for what is being written, whatever comes of it; with `abandon` it is kept as short as can be."""
        self._checkpointer.close(abandon=abandon)

    def _begin(self) -> None:
        weights = Weights(self._learner.state.weights_version, self._network.online.policy_weights())
        rewards = None if self._network.rewards is None else self._network.rewards.described()

        def write_policy() -> None:
            write_weights(self._policy_dir, weights)
            if rewards is not None:
                write_rewards(self._policy_dir, rewards)

        self._checkpointer.begin(write_policy)

    def _note(self, updates: int | None) -> None:
        if updates is None:
            return
        self._reporter.unsaved = None
        self._reporter.saved_at = self._checkpointer.saved_at
        if self._after_save is not None:
            self._after_save(updates)
