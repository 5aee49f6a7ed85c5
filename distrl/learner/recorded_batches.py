"""Batches of a run that learns from data: the replay memory takes in all of it, and is then sampled from alone."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import LearnerBatch, Trained
from distrl.learner.state import LearnerState
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.registry import Registry
from distrl.metrics.counters import Waits
from distrl.metrics.phrases import READING
from distrl.replay.memory import Replay
from distrl.types import DEMONSTRATIONS, Batch, Unroll

PUBLISH_EVERY_UPDATES = 100
"""Nothing acts with the weights but evaluations, which choose among those that are published."""

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
    """Fills the replay memory with the unrolls of a data set, and samples batches from it: demonstrations, all of them.

    Args:
        unrolls: All of them, in their order.
        count: Their number.
        size: Number of items in one batch.
        stop: Read after each unroll that goes into the memory.
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
    ) -> None:
        self._unrolls, self._count, self._read = unrolls, count, 0
        self._replay, self._size, self._state, self._waits, self._stop = replay, size, state, waits, stop
        self.progressed_at = 0.0

    @property
    def reads(self) -> bool:
        """Whether there is data that has not been read."""
        return self._read < self._count

    @property
    def activity(self) -> str:
        """Reading, with the share that has been read; then training."""
        return f"{READING}: {self._read / self._count:.0%}" if self.reads else "training"

    def collect(self, items: int | None = None) -> LearnerBatch | None:
        """Return a sampled batch; None if a stop was requested while the data was read.

        Args:
            items: Their number; None: `size`.
        """
        if self.reads:
            with self._waits.measure("insert"):
                for unroll in self._unrolls:
                    self._replay.insert(unroll)
                    self._read += 1
                    self.progressed_at = time.monotonic()
                    if self._stop():
                        return None
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


class Pausing(Attendant):
    """Waits while operators have paused the run; elsewhere its actors do.

    Args:
        stop: Ends the wait.
    """

    def __init__(self, registry: Registry, stop: Callable[[], bool]) -> None:
        self._registry, self._stop = registry, stop
        self._look_at = 0.0

    def attend(self, trained: Trained | None) -> None:
        if time.monotonic() < self._look_at:
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
