"""Batches of recorded and of live items, from a memory each, after updates on recorded items alone."""

from dataclasses import dataclass, replace

from distrl import nest
from distrl.learner.batches import Batches, LearnerBatch
from distrl.learner.recorded_batches import RecordedBatches, marked
from distrl.learner.state import LearnerState
from distrl.metrics.phrases import PRETRAINING
from distrl.types import Batch, FloatArray

_BY_ITEM = ("recurrent_state", "importance_weights")
"""Arrays [N, ...]; all others are [T, N, ...]."""


@dataclass(kw_only=True)
class MixedBatch(LearnerBatch):
    """A batch whose first items are live ones, of `replay`.

    Attributes:
        recorded: The batch of its last items, of the memory of recorded items.
    """

    recorded: LearnerBatch

    def reprioritise(self, priorities: FloatArray | None) -> None:
        """Hand each memory the priorities of its own items."""
        if priorities is not None and self.items is not None:
            live = len(self.items)
            super().reprioritise(priorities[:live])
            self.recorded.reprioritise(priorities[live:])


def joined(live: Batch, recorded: Batch) -> Batch:
    """Return one batch of live items, marked as no demonstrations, and after them the recorded ones."""
    pairs = zip(Batch._fields, marked(live, 0.0), recorded, strict=True)
    return Batch(**{name: nest.concatenate(both, int(name not in _BY_ITEM)) for name, *both in pairs})


class MixedBatches:
    """Adds recorded items to each live batch; the first updates are of recorded items alone.

    The receipts of recorded items are not counted: environment steps of the run are those of its actors. The updates of
    the state say how far the first updates have come, so that a resumed run does not repeat them.

    Args:
        recorded: Its batches have the size of a mixed one.
        live: Samples the memory of the actors' unrolls.
        items: Recorded items of a mixed batch.
        pretrain_updates: Number of the first updates.
    """

    measured_as = "replay"

    def __init__(
        self, recorded: RecordedBatches, live: Batches, *, items: int, pretrain_updates: int, state: LearnerState
    ) -> None:
        self._recorded, self._live, self._items, self._state = recorded, live, items, state
        self._pretrain_updates = pretrain_updates

    @property
    def activity(self) -> str:
        """Reading, then how far the first updates have come, then the activity of live batches."""
        if self._recorded.reads:
            return self._recorded.activity
        if self.pretrains:
            return f"{PRETRAINING}: {self._state.updates:,} of {self._pretrain_updates:,} updates"
        return self._live.activity

    @property
    def progressed_at(self) -> float:
        return max(self._recorded.progressed_at, self._live.progressed_at)

    @property
    def pretrains(self) -> bool:
        """Whether the next update is one of the first."""
        return self._state.updates < self._pretrain_updates

    def collect(self) -> LearnerBatch | None:
        """Return the next batch; None if there is no live one, or a stop was requested while the data was read."""
        if self.pretrains:
            return self._of_recorded_alone()
        recorded = self._recorded.collect(self._items)  # first: it reads the data, while actors act
        live = None if recorded is None else self._live.collect()
        if recorded is None or live is None:
            return None
        assert isinstance(live.batch, Batch)  # as both are of a replay memory
        assert isinstance(recorded.batch, Batch)
        return MixedBatch(
            joined(live.batch, recorded.batch),
            lags_updates=live.lags_updates,
            receipts=live.receipts,
            publish=live.publish,
            items=live.items,
            replay=live.replay,
            recorded=recorded,
        )

    def _of_recorded_alone(self) -> LearnerBatch | None:
        made = self._recorded.collect()
        if made is None:
            return None
        is_last = self._state.updates + 1 == self._pretrain_updates  # actors go on with these weights
        return replace(made, receipts=(), publish=made.publish or is_last)
