"""Hop 6 with a replay memory: unrolls go from the stream into the memory, and batches come out of it.

An unroll is acknowledged right before it goes into the memory, its last place, and the ledger counts it as trained: one
that Redis did not acknowledge is in no memory, and comes again. With `replay.checkpoint`, a checkpoint holds the memory
together with the sequences that went into it; without, a resumed learner fills an empty one with what comes after.
Either way nothing is in it twice.
"""

from collections.abc import Callable
from typing import Protocol

from distrl.learner.feed import Parcel
from distrl.learner.state import LearnerState
from distrl.memory_backend.backend import Backend
from distrl.metrics.counters import Waits
from distrl.replay.memory import Replay


class UnrollSource(Protocol):
    """Where unrolls come from, one per parcel: `PrefetchingFeed`, or deterministic mode's `InlineFeed`."""

    def collect(self) -> Parcel | None: ...

    def poll(self) -> Parcel | None:
        """A parcel that is there already; None: none is. Raises what `collect` raises."""


class ReplayFeed:
    """Gives sampled batches when they are due, and takes unrolls in before.

    Where the learner waits for unrolls (`replay.samples_per_insert`), weights are published before it does: actors do
    not begin another unroll before there is room for it. Where it does not, an unroll that is there already is taken in
    before each update, and weights are published after those updates.

    Args:
        state: Counts what is taken in: here, not after the update, as it is in the memory for good.
        backend: Of the learner's thread.
        batch_size: Items sampled for one update.
        done: Asked whenever another unroll is wanted: the training is over, and nothing is taken in any more.
        taken_in: Called after each unroll.
    """

    def __init__(
        self,
        source: UnrollSource,
        replay: Replay,
        *,
        batch_size: int,
        state: LearnerState,
        backend: Backend,
        fence: int,
        waits: Waits,
        done: Callable[[], bool],
        taken_in: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._replay = replay
        self._batch_size = batch_size
        self._state = state
        self._backend = backend
        self._fence = fence
        self._waits = waits
        self._done = done
        self._taken_in = taken_in
        self._lags_updates: list[int] = []

    def collect(self) -> Parcel | None:
        """A sampled batch; None when the training was over, or the source asked to stop, before one was due."""
        limiter, wanted = self._replay.limiter, self._replay.steps_of(self._batch_size)
        if not limiter.waits and (ready := self._source.poll()) is not None:
            self._take_in(ready)
        while not (limiter.may_sample(wanted) and self._replay.size_steps):
            if self._done():
                return None
            with self._waits.measure("unrolls"):
                parcel = self._source.collect()
            if parcel is None:
                return None
            self._take_in(parcel)
        with self._waits.measure("sample"):
            sample = self._replay.sample(self._batch_size, self._state.env_steps)
        lags, self._lags_updates = self._lags_updates, []
        return Parcel(
            batch=sample.batch,
            entries=[],
            highest={},
            lags_updates=lags,
            env_steps=0,
            trained_steps=0,
            items=sample.items,
            publish=not limiter.may_sample(wanted) if limiter.waits else bool(lags),
        )

    def _take_in(self, parcel: Parcel) -> None:
        """Acknowledges unrolls and puts them into the memory."""
        state = self._state
        # First: where Redis fails, a checkpoint is saved, and it must not hold what comes again.
        counts = {"trained": len(parcel.entries)}
        self._backend.unrolls.acknowledge(parcel.entries, self._fence, counts, parcel.highest)
        parcel.held.settled = True
        with self._waits.measure("insert"):
            for unroll in parcel.unrolls:
                self._replay.insert(unroll, unroll.priorities)
        state.env_steps += parcel.env_steps
        state.trained_steps += parcel.trained_steps
        state.trained_unrolls += len(parcel.entries)
        state.applied.update(parcel.highest)
        state.observe_episodes(parcel.episode_returns, parcel.episode_lengths_steps)
        # Not the parcel's: weights may have been published since it was collected.
        self._lags_updates += [state.weights_version - unroll.header.weights_version for unroll in parcel.unrolls]
        self._taken_in()
