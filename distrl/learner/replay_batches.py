"""Hop 6 with a replay memory: unrolls go from the stream into the memory, and batches come out of it.

The receipt of an unroll is settled right before the unroll goes into the memory, its last place, and the ledger counts
it as trained: one that Redis did not acknowledge is in no memory, and comes again. With `replay.checkpoint`, a
checkpoint holds the memory together with the sequences that went into it; without, a resumed learner fills an empty one
with what comes after. Either way nothing is in it twice.
"""

from collections.abc import Callable
from typing import NamedTuple

from distrl.learner.batches import LearnerBatch, take_together
from distrl.learner.intake import Intake, Receipt
from distrl.learner.prefetch import Ahead
from distrl.learner.publisher import Tickets
from distrl.learner.state import LearnerState
from distrl.metrics.counters import Waits
from distrl.replay.memory import Replay
from distrl.types import Unroll


class Arrived(NamedTuple):
    """Unrolls on their way into the replay memory, as they travelled."""

    unrolls: tuple[Unroll, ...]
    receipt: Receipt


class Arrivals:
    """Collects `size` unrolls at once.

    Args:
        intake: Compares with the newest version: taking unrolls in makes no new one.
        stop: Called whenever no entry arrives.
    """

    def __init__(self, intake: Intake, tickets: Tickets, size: int, stop: Callable[[], bool]) -> None:
        self._intake = intake
        self._tickets = tickets
        self._size = size
        self._stop = stop

    def collect(self) -> Arrived | None:
        """Blocks until they are there; None when asked to stop before that."""
        taken = take_together(self._intake, self._tickets, self._size, self._stop)
        if taken is None:
            return None
        unrolls = tuple(judged.item for judged in taken if isinstance(judged.item, Unroll))
        return Arrived(unrolls, self._intake.receipt(taken, unrolls))


class ReplayBatches:
    """Samples batches when they are due, and takes unrolls in before.

    Where the learner waits for unrolls (`replay.samples_per_insert`), weights are published before it does: actors do
    not begin another unroll before there is room for it. Where it does not, an unroll that is there already is taken in
    before each update, and weights are published after those updates.

    Args:
        state: Counts what is taken in: here, not after the update, as it is in the memory for good.
        size: Items sampled for one update.
        done: Called whenever another unroll is wanted: the training is over, and nothing is taken in any more.
        taken_in: Called after each unroll.
    """

    def __init__(
        self,
        arrivals: Ahead[Arrived],
        replay: Replay,
        *,
        size: int,
        state: LearnerState,
        waits: Waits,
        done: Callable[[], bool],
        taken_in: Callable[[], None] = lambda: None,
    ) -> None:
        self._arrivals = arrivals
        self._replay = replay
        self._size = size
        self._state = state
        self._waits = waits
        self._done = done
        self._taken_in = taken_in
        self._lags_updates: list[int] = []

    def collect(self) -> LearnerBatch | None:
        """A sampled batch; None when the training was over, or asked to stop, before one was due."""
        limiter, wanted = self._replay.limiter, self._replay.steps_of(self._size)
        if not limiter.waits and (ready := self._arrivals.poll()) is not None:
            self._take_in(ready)
        while not (limiter.may_sample(wanted) and self._replay.size_steps):
            if self._done():
                return None
            with self._waits.measure("unrolls"):
                arrived = self._arrivals.collect()
            if arrived is None:
                return None
            self._take_in(arrived)
        with self._waits.measure("sample"):
            sample = self._replay.sample(self._size, self._state.env_steps)
        lags, self._lags_updates = self._lags_updates, []
        publish = not limiter.may_sample(wanted) if limiter.waits else bool(lags)
        return LearnerBatch(sample.batch, lags, publish=publish, items=sample.items, replay=self._replay)

    def _take_in(self, arrived: Arrived) -> None:
        """Settle the receipt and put the unrolls into the memory."""
        # First: where Redis fails, a checkpoint is saved, and it must not hold what comes again.
        arrived.receipt.settle()
        with self._waits.measure("insert"):
            for unroll in arrived.unrolls:
                self._replay.insert(unroll, unroll.priorities)
        arrived.receipt.count(self._state)
        # Now, as weights may have been published since they were collected.
        version = self._state.weights_version
        self._lags_updates += [version - unroll.header.weights_version for unroll in arrived.unrolls]
        self._taken_in()
