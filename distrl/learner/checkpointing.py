"""Writes checkpoints of the run: says when one is due, and writes it beside the training.

A checkpoint holds every copy of every network, the optimizers and `LearnerState`. Because a disk may be slow, the data
is copied at once and written beside the training.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from distrl.algorithms.algorithm import Networks
from distrl.config import RunConfig
from distrl.data_store.checkpoints import save
from distrl.learner.replay_set_up import remove_older, save_replay
from distrl.learner.state import LearnerState
from distrl.replay.memory import Replay
from distrl.types import Array

log = logging.getLogger(__name__)
RETRY_S = 10.0
"""Time until the next attempt after a disk error."""


class Checkpointer:
    """Saves by the clock (`checkpoint.every_s`), by updates (`checkpoint.every_updates`), or whichever comes first.

    Args:
        directory: The directory checkpoints/ of the run.
        replays: The memories that belong to checkpoints, by name.
        saved: Whether the newest checkpoint in `directory` holds `state`.

    Attributes:
        wanted: Least number of updates in a requested checkpoint; None: no request.
        saved_at: Start of the newest checkpoint, or of the one being written, in monotonic seconds.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        networks: Networks,
        state: LearnerState,
        *,
        replays: Mapping[str, Replay] = MappingProxyType({}),
        saved: bool = True,
    ) -> None:
        self.wanted: int | None = None
        self.saved_at = time.monotonic()
        self._config, self._directory = config.checkpoint, directory
        self._networks, self._state, self._replays = networks, state, replays
        self._by_evaluation = config.evaluation.every_env_steps is not None
        # Updates of the newest checkpoint that is complete or being written; -1: none.
        self._held = state.updates if saved and state.updates else -1
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

        The checkpoint becomes the best if no saved one had as high a mean return or evaluation. Replay memories are too
        large to copy and are written before this returns.

        Args:
            and_then: Called by the writing thread once the checkpoint is complete; may raise OSError.

        Raises:
            OSError: A replay memory cannot be written.
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
            save(self._directory, updates, arrays, meta, keep=keep, best=best, replays=saved_replays)
            if saved_replays:
                remove_older(self._directory, updates)
            if not self._abandoned:
                and_then()
            return updates

        self._undo = undo
        self.saved_at, self._held = time.monotonic(), updates
        try:
            saved_replays = {
                name: save_replay(self._directory, replay, state, name) for name, replay in self._replays.items()
            }
        except OSError:
            self._failed()
            raise
        self._writing = _written(write) if self._thread is None else self._thread.submit(write)

    def save_in(self, directory: Path) -> None:
        """Write one more checkpoint, to another directory and without replay memories.

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
