"""Batches of a run that learns from data: the replay memory takes in all of it, or a part after the other."""

import math
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import LearnerBatch, Trained
from distrl.learner.prefetch import Prefetch
from distrl.learner.state import LearnerState
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.registry import Registry
from distrl.metrics.counters import Waits
from distrl.metrics.phrases import READING
from distrl.replay.memory import Replay
from distrl.types import DEMONSTRATIONS, Batch, Unroll

PUBLISH_EVERY_UPDATES = 100
"""Nothing acts with the weights but evaluations, which choose among those that are published."""

AHEAD_UNROLLS = 8
"""Unrolls that a thread reads ahead: enough for the next block of episodes to be opened meanwhile."""

LOOK_EVERY_S, POLL_S = 0.5, 0.1
"""Seconds between two looks whether the run is paused: while it trains, and while it is."""


def marked(batch: Batch, mark: float) -> Batch:
    """Return the batch with `DEMONSTRATIONS`, 1 or 0 of all steps."""
    return batch._replace(extras={**batch.extras, DEMONSTRATIONS: np.full_like(batch.rewards, mark)})


class Used:
    """The receipt of recorded steps, of which no account is kept: an update has used them.

    Args:
        steps: Valid steps of its batch.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def settle(self, outcome: EntryOutcome = EntryOutcome.TRAINED) -> None:
        """Do nothing."""

    def count(self, state: LearnerState) -> None:
        state.env_steps += self._steps
        state.trained_steps += self._steps


class RecordedBatches:
    """Fills the replay memory with unrolls of a data set, and samples batches from it: demonstrations, all of them.

    If it does not hold all, updates go on with the next unrolls, which replace the oldest. How many have been replaced
    follows from the steps that updates have used: so a checkpoint holds the place in the data, and a resumed run has
    the unrolls in memory that it had.

    Args:
        unrolls: Those that the memory is to hold, in their order, and what replaces them; it ends when the run stops.
        count: Number of those that are in memory before an update.
        size: Number of items in one batch.
        stop: Read before each unroll that goes into the memory.
        steps_each: Steps that updates use for each unroll that is replaced.
        first: Number of the first of `unrolls`: as many before it have been replaced.
    """

    measured_as = "replay"

    def __init__(
        self,
        unrolls: Iterator[Unroll],
        count: int,
        replay: Replay,
        *,
        size: int,
        state: LearnerState,
        waits: Waits,
        stop: Callable[[], bool],
        steps_each: float = math.inf,
        first: int = 0,
    ) -> None:
        self._unrolls, self._count, self._steps_each = unrolls, count, steps_each
        self._replay, self._size, self._state, self._waits, self._stop = replay, size, state, waits, stop
        self._first = self._read = first
        self.progressed_at = 0.0

    @property
    def reads(self) -> bool:
        """Whether there is data that has not been read."""
        return self._read < self._first + self._count

    @property
    def activity(self) -> str:
        """Reading, with the share that has been read; then training."""
        return f"{READING}: {(self._read - self._first) / self._count:.0%}" if self.reads else "training"

    def collect(self, items: int | None = None) -> LearnerBatch | None:
        """Return a sampled batch; None if a stop was requested while the data was read.

        Args:
            items: Their number; None: `size`.

        Raises:
            DataError: The data cannot be read any more.
        """
        due = self._count + replaced(self._state, self._steps_each)
        with self._waits.measure("insert"):
            while self._read < due:
                if self._stop() or (unroll := next(self._unrolls, None)) is None:
                    return None
                self._replay.insert(unroll)
                self._read += 1
                self.progressed_at = time.monotonic()
        with self._waits.measure("sample"):
            sample = self._replay.sample(items or self._size, self._state.progress)
        publish = (self._state.updates + 1) % PUBLISH_EVERY_UPDATES == 0
        return LearnerBatch(
            marked(sample.batch, 1.0),
            lags_updates=[],
            receipts=(Used(sample.steps),),
            publish=publish,
            items=sample.items,
            replay=self._replay,
        )


def replaced(state: LearnerState, steps_each: float) -> int:
    """Return how many unrolls have made room in a memory that replaces one for each so many steps of updates."""
    return int(state.trained_steps / steps_each)


class ReadingAhead(Attendant):
    """Reads unrolls on a thread, so that updates do not wait for the disk. Iterate over it; it ends with the run.

    Args:
        unrolls: Without an end.
    """

    def __init__(self, unrolls: Iterator[Unroll], stop: Callable[[], bool]) -> None:
        self._over = threading.Event()
        self._unrolls = unrolls
        self._feed = Prefetch(self, lambda: self._over.is_set() or stop(), AHEAD_UNROLLS)

    def __iter__(self) -> Iterator[Unroll]:
        return iter(self._feed.collect, None)

    def collect(self) -> Unroll:
        """Read the next one, on the thread."""
        return next(self._unrolls)

    def close(self, error: BaseException | None) -> None:
        self._over.set()
        self._feed.close()


class Pausing(Attendant):
    """Waits while operators have paused the run; elsewhere its actors do.

    Args:
        is_alone: Whether updates are of recorded items alone.
        stop: Ends the wait.
    """

    def __init__(self, registry: Registry, is_alone: Callable[[], bool], stop: Callable[[], bool]) -> None:
        self._registry, self._is_alone, self._stop = registry, is_alone, stop
        self._look_at = 0.0

    def attend(self, trained: Trained | None) -> None:
        if not self._is_alone() or time.monotonic() < self._look_at:
            return
        while self._registry.control().paused and not self._stop():
            time.sleep(POLL_S)
        self._look_at = time.monotonic() + LOOK_EVERY_S


class Reseeding(Attendant):
    """Seeds the memory's draws anew after each checkpoint, so that a resumed run draws what this one does.

    Args:
        seeds: Returns those of a learner that begins after so many updates.
    """

    def __init__(self, replay: Replay, seeds: Callable[[int], np.random.SeedSequence]) -> None:
        self._replay, self._seeds = replay, seeds

    def saved(self, updates: int) -> None:
        self._replay.reseed(self._seeds(updates))
