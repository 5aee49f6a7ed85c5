"""Hop 6 with a replay memory: unrolls go from the stream into the memory, and batches are sampled from it.

The receipt of an unroll is settled right before the unroll goes into the memory, and the ledger then counts it as
stored. An unroll whose settlement failed is not in the memory and comes again. With `replay.checkpoint`, a
checkpoint holds the memory and the sequences that went into it. Without it, a resumed learner begins with an empty
memory. Either way no unroll is in it twice.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from distrl.learner.batches import LearnerBatch, Receipt
from distrl.learner.intake import Intake
from distrl.learner.prefetch import Ahead
from distrl.learner.state import LearnerState
from distrl.memory_backend.ledger import EntryOutcome
from distrl.metrics.counters import Waits
from distrl.replay.memory import Replay
from distrl.types import Unroll


class Arrived(NamedTuple):
    """Decoded unrolls on their way into the replay memory."""

    unrolls: tuple[Unroll, ...]
    receipt: Receipt


class Arrivals:
    """Collects `size` unrolls at once.

    Args:
        intake: Judges staleness by the newest version, because unrolls for a memory lead to no version.
        stop: Called whenever no entry arrives.
    """

    def __init__(self, intake: Intake, size: int, stop: Callable[[], bool]) -> None:
        self._intake = intake
        self._size = size
        self._stop = stop

    def collect(self) -> Arrived | None:
        """Block until they are complete; return None if a stop was requested before."""
        taken = self._intake.take_together(self._size, self._stop)
        if taken is None:
            return None
        unrolls = tuple(judged.item for judged in taken if isinstance(judged.item, Unroll))
        return Arrived(unrolls, self._intake.receipt(taken, unrolls))


class ReplayBatches:
    """Samples batches when they are due, and puts unrolls into the memory before.

    If the learner waits for unrolls (`replay.samples_per_insert`), it publishes weights before it waits: actors begin
    no unroll before the stream has room. If it does not wait, it takes an unroll that has already arrived before each
    update, and publishes after those updates.

    Args:
        state: Counts unrolls as soon as they are in the memory, not after the update.
        size: Number of items in one batch.
        ended: Called before another unroll is taken; None: the training goes on.
    """

    measured_as = "replay"  # it also samples, and waits for unrolls

    def __init__(
        self,
        arrivals: Ahead[Arrived],
        replay: Replay,
        *,
        size: int,
        state: LearnerState,
        waits: Waits,
        ended: Callable[[], str | None],
    ) -> None:
        self._arrivals = arrivals
        self._replay = replay
        self._size = size
        self._state = state
        self._waits = waits
        self._ended = ended
        self.progressed_at = 0.0
        self._lags_updates: list[int] = []

    @property
    def activity(self) -> str:
        """Training, or how far the memory has filled."""
        limiter = self._replay.limiter
        return limiter.progress if limiter.filling else "training"

    def collect(self) -> LearnerBatch | None:
        """Return a sampled batch; None if the training ended or a stop was requested before one was due."""
        limiter, wanted = self._replay.limiter, self._replay.steps_of(self._size)
        if not limiter.waits and (ready := self._arrivals.poll()) is not None:
            self._take_in(ready)
        while not (limiter.may_sample(wanted) and not self._replay.is_empty):
            if self._ended() is not None:
                return None
            with self._waits.measure("unrolls"):
                arrived = self._arrivals.collect()
            if arrived is None:
                return None
            self._take_in(arrived)
        with self._waits.measure("sample"):
            sample = self._replay.sample(self._size, self._state.progress)
        lags, self._lags_updates = self._lags_updates, []
        publish = not limiter.may_sample(wanted) if limiter.waits else bool(lags)
        return LearnerBatch(sample.batch, lags, publish=publish, items=sample.items, replay=self._replay)

    def _take_in(self, arrived: Arrived) -> None:
        """Settle the receipt and put the unrolls into the memory."""
        # First: if Redis fails here, the next checkpoint must not hold an unroll that comes again.
        arrived.receipt.settle(EntryOutcome.STORED)
        with self._waits.measure("insert"):
            for unroll in arrived.unrolls:
                self._replay.insert(unroll)
        arrived.receipt.count(self._state)
        # Now, as weights may have been published since they were collected.
        version = self._state.weights_version
        self._lags_updates += [version - unroll.header.weights_version for unroll in arrived.unrolls]
        self.progressed_at = time.monotonic()
