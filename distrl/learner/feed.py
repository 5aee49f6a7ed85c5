"""Hop 6: takes unrolls from the stream, judges them and joins them into batches.

An unroll is judged by its plain header first (foreign, duplicate, too stale), then decoded and checked. Whatever is not
trained on is acknowledged at once and counted by its reason, and so are gaps in the sequences; the rest is acknowledged
by the learner after the update.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from distrl import nest
from distrl.errors import RejectedError, SchemaError
from distrl.memory_backend.backend import Backend, Entry, Producer
from distrl.memory_backend.codec import UnrollSchema, decode_unroll
from distrl.types import Batch, Unroll, UnrollHeader

BLOCK_S = 0.5


@dataclass
class Parcel:
    """One batch on its way through the learner, with what must be counted when it has been used.

    Attributes:
        batch: Arrays [T, N]; observations [T+1, N, ...].
        entries: The stream entries it is made of; in flight until acknowledged.
        highest: Producer -> highest sequence in it.
        lags_updates: Versions between the weights that acted and the update it is used for, one per unroll.
        env_steps: Valid steps first seen since the last parcel, dropped stale ones included.
        trained_steps: Valid steps in the batch.
        episode_returns, episode_lengths_steps: Of episodes that ended in it.
    """

    batch: Batch
    entries: list[Entry]
    highest: dict[Producer, int]
    lags_updates: list[int]
    env_steps: int
    trained_steps: int
    episode_returns: list[float] = field(default_factory=list)
    episode_lengths_steps: list[int] = field(default_factory=list)


class Feed:
    """Collects one parcel after the other; knows nothing of threads.

    Args:
        backend: Used by the collecting thread alone.
        applied: Producer -> highest sequence that the weights already contain; anything up to it is a duplicate.
        first_version: Version of the weights when the first parcel is used. Every parcel is one update, so the n-th is
            used at ``first_version + n`` and staleness is known here, ahead of time.
        stop: Asked whenever no entry arrives.
    """

    def __init__(
        self,
        backend: Backend,
        schema: UnrollSchema,
        *,
        batch_size: int,
        max_staleness_updates: int | None,
        fence: int,
        applied: dict[Producer, int],
        first_version: int,
        stop: Callable[[], bool],
        block_s: float = BLOCK_S,
    ) -> None:
        self._backend = backend
        self._schema = schema
        self._batch_size = batch_size
        self._max_staleness = max_staleness_updates
        self._fence = fence
        self._taken = dict(applied)
        self._acknowledged = backend.unrolls.highest()
        self._version = first_version
        self._stop = stop
        self._block_s = block_s
        self._registered: set[Producer] = set()
        self._source = self._entries()
        self._env_steps = 0
        self._stuck = False

    def collect(self) -> Parcel | None:
        """Blocks until a whole batch is there; None when asked to stop before that."""
        taken: list[tuple[Entry, Unroll]] = []
        while len(taken) < self._batch_size:
            entry = next(self._source)
            if entry is None:
                if self._stop():
                    return None
                self._replace_lost_tickets(self._batch_size - len(taken))
                continue
            self._stuck = False
            unroll = self._judge(entry)
            if unroll is not None:
                taken.append((entry, unroll))
        parcel = self._parcel(taken)
        self._version += 1
        return parcel

    def _entries(self) -> Iterator[Entry | None]:
        """First what a predecessor took and did not acknowledge, one by one; then new entries. None: nothing came."""
        after = "0"
        while left := self._backend.unrolls.unacknowledged(after, 1):
            after = left[0].entry_id
            yield left[0]
        while True:
            entries = self._backend.unrolls.take(self._batch_size, self._block_s)
            yield from entries
            if not entries:
                yield None

    def _judge(self, entry: Entry) -> Unroll | None:
        """The unroll if it is to be trained on; otherwise counts the reason, and issues a ticket in its place."""
        header = entry.header
        if header is None or not self._is_registered(header.producer):
            # Why the payload would be refused, if it would: `dead` and the ledger name the graver reason.
            reason = "schema" if header is None else self._fault(entry, header) or "schema"
            self._backend.unrolls.reject(entry, reason, self._fence, {"foreign": 1})
            return None
        if header.sequence <= self._taken.get(header.producer, -1):
            # Its ticket was used up, or replaced, by the first copy.
            self._backend.unrolls.acknowledge([entry], self._fence, {"dropped.duplicate": 1}, {})
            return None
        self._count_gap(header)
        self._taken[header.producer] = header.sequence
        if self._max_staleness is not None and self._version - header.weights_version > self._max_staleness:
            self._env_steps += header.env_steps
            highest = {header.producer: header.sequence}
            self._backend.unrolls.acknowledge([entry], self._fence, {"dropped.stale": 1}, highest)
            self._replace_ticket()
            return None
        try:
            unroll = self._decode(entry, header)
        except RejectedError as error:
            # The sequence first: a learner that dies in between finds the entry again, and no gap after it.
            self._backend.unrolls.acknowledge([], self._fence, {}, {header.producer: header.sequence})
            self._backend.unrolls.reject(entry, error.reason, self._fence, {})
            self._replace_ticket()
            return None
        self._env_steps += header.env_steps
        return unroll

    def _decode(self, entry: Entry, header: UnrollHeader) -> Unroll:
        """Raises RejectedError unless the unroll can be trained on."""
        if header.weights_version > self._version:
            raise SchemaError(f"weights version {header.weights_version} has not been published yet")
        return decode_unroll(header, entry.payload, self._schema)

    def _fault(self, entry: Entry, header: UnrollHeader) -> str | None:
        try:
            self._decode(entry, header)
        except RejectedError as error:
            return error.reason
        return None

    def _replace_ticket(self) -> None:
        """The ticket that this unroll used up bought nothing; without another one the batch could never fill."""
        if self._max_staleness is not None:
            self._backend.tickets.issue(1, self._fence)

    def _replace_lost_tickets(self, missing: int) -> None:
        """Issues `missing` tickets if nobody can fill the batch any more; asked whenever a wait brought no entry.

        That is so after a Redis failure that lost unrolls or tickets, or where a predecessor left copies in the stream
        that `Publisher.issue_first_tickets` took for unrolls.
        """
        if self._max_staleness is None:
            return
        # Before that version is published, the batch's own tickets are still to come.
        due = self._backend.weights.version() >= self._version - self._max_staleness
        stuck = due and self._backend.tickets.counts() == (0, 0) and self._backend.ledger.counts().queued == 0
        # At the second time in a row, as the learner publishes first and issues right after.
        if stuck and self._stuck:
            self._backend.tickets.issue(missing, self._fence)
        self._stuck = stuck and not self._stuck

    def _is_registered(self, producer: Producer) -> bool:
        if producer not in self._registered and self._backend.registry.is_registered(producer):
            self._registered.add(producer)
        return producer in self._registered

    def _count_gap(self, header: UnrollHeader) -> None:
        """Counts unrolls that were produced and never arrived: Redis lost them."""
        producer = header.producer
        # Against what was ever acknowledged, not against `applied`: weights that were rolled back lost no entries.
        before = max(self._taken.get(producer, -1), self._acknowledged.get(producer, -1))
        gap = header.sequence - before - 1
        if gap > 0:
            # At once and up to here, so that no crash can count it twice or never.
            counts = {"lost": gap, "produced": gap}
            self._backend.unrolls.acknowledge([], self._fence, counts, {producer: header.sequence - 1})

    def _parcel(self, taken: Sequence[tuple[Entry, Unroll]]) -> Parcel:
        unrolls = [unroll for _, unroll in taken]
        highest: dict[Producer, int] = {}
        for unroll in unrolls:
            highest[unroll.header.producer] = unroll.header.sequence
        parcel = Parcel(
            batch=stack(unrolls),
            entries=[entry for entry, _ in taken],
            highest=highest,
            lags_updates=[self._version - unroll.header.weights_version for unroll in unrolls],
            env_steps=self._env_steps,
            trained_steps=sum(unroll.header.env_steps for unroll in unrolls),
            episode_returns=[float(value) for unroll in unrolls for value in unroll.episode_returns],
            episode_lengths_steps=[int(value) for unroll in unrolls for value in unroll.episode_lengths_steps],
        )
        self._env_steps = 0
        return parcel


def stack(unrolls: Sequence[Unroll]) -> Batch:
    """Joins unrolls along the second axis: [T, B] each -> [T, N]; recurrent state [B, ...] -> [N, ...]."""
    return Batch(
        observations=nest.concatenate([unroll.observations for unroll in unrolls], axis=1),
        actions=np.concatenate([unroll.actions for unroll in unrolls], axis=1),
        rewards=np.concatenate([unroll.rewards for unroll in unrolls], axis=1),
        terminated=np.concatenate([unroll.terminated for unroll in unrolls], axis=1),
        truncated=np.concatenate([unroll.truncated for unroll in unrolls], axis=1),
        valid=np.concatenate([unroll.valid for unroll in unrolls], axis=1),
        behaviour_log_probabilities=np.concatenate([u.behaviour_log_probabilities for u in unrolls], axis=1),
        recurrent_state=nest.concatenate([unroll.recurrent_state for unroll in unrolls], axis=0),
    )
