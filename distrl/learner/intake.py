"""Hop 6: judges entries of the stream. An entry becomes an item to learn from, or is dropped with a reason.

An entry is judged by its plain header first (foreign, duplicate, too stale), then decoded and checked. An entry that is
dropped is acknowledged at once and counted by its reason, and so are gaps in the sequences. A receipt stands for the
entries of the other items: the learner settles it after their use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from distrl.errors import PoisonError, RejectedError, SchemaError
from distrl.learner.publisher import StalenessBound, Tickets
from distrl.learner.state import LearnerState
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import decode_unroll
from distrl.memory_backend.gradient_codec import GradientSchema, decode_contribution
from distrl.memory_backend.inbox import Inbox
from distrl.memory_backend.layouts import Layouts
from distrl.memory_backend.records import Producer
from distrl.memory_backend.stream import Entry
from distrl.types import Contribution, Unroll, UnrollHeader, UnrollSchema

BLOCK_S = 0.1
"""Longest wait for an entry before `stop` is read; the end of a run waits for it."""
LARGEST_GAP = 1000

DEATHS = 3
"""So many learners may die of an unroll: the one that took it, and two that found it again."""

Item = Unroll | Contribution


class Judged(NamedTuple):
    """One entry of the stream.

    Attributes:
        item: None: it was dropped.
        refused: Why it could not be decoded; None: it was, or it was dropped for another reason.
        header: None where the plain fields are not a header.
    """

    entry: Entry
    header: UnrollHeader | None
    item: Item | None = None
    refused: str | None = None


@dataclass
class Receipt:
    """Entries of items that are used together, and what is counted when they have been used.

    Attributes:
        entries: In progress until settled.
        highest: Producer -> highest sequence among them.
        env_steps: Valid steps first seen since the last receipt, dropped stale ones included.
        trained_steps: Valid steps of the items.
        episode_returns, episode_lengths_steps: Of episodes that ended in them.
    """

    entries: list[Entry]
    highest: dict[Producer, int]
    env_steps: int
    trained_steps: int
    episode_returns: list[float]
    episode_lengths_steps: list[int]
    _backend: Backend
    _inbox: Inbox

    def settle(self) -> None:
        """Acknowledge the entries and count them as trained, in one transaction."""
        self._backend.unrolls.acknowledge(self.entries, {"trained": len(self.entries)}, self.highest)
        self._inbox.settled(self.entries)

    def count(self, state: LearnerState) -> None:
        """Add to the learner's counts what is learned, or in the replay memory, now."""
        state.env_steps += self.env_steps
        state.trained_steps += self.trained_steps
        state.trained_unrolls += len(self.entries)
        state.applied.update(self.highest)
        state.observe_episodes(self.episode_returns, self.episode_lengths_steps)


class Intake:
    """Judges one entry after the other; knows nothing of threads and batches.

    Args:
        backend: The learner's, on the connection of the thread that calls `take`.
        settling: The learner's, on the connection on which receipts are settled.
        staleness: How old the weights behind an item may be.
        applied: Producer -> highest sequence that the weights already contain; anything up to it is a duplicate.
        version: Version of the weights that the next items are used at; whatever makes batches moves it on.
        newest_version: Where items do not lead to versions: the newest one.
        wanted: Whether the item of a header is used at all; others are dropped as duplicates. None: all are.
        largest_gap: So many unrolls of one actor Redis can lose at once: what the stream holds.
    """

    def __init__(
        self,
        inbox: Inbox,
        backend: Backend,
        schema: UnrollSchema | GradientSchema,
        tickets: Tickets,
        *,
        settling: Backend,
        staleness: StalenessBound,
        applied: dict[Producer, int],
        version: int,
        newest_version: Callable[[], int] | None = None,
        wanted: Callable[[UnrollHeader], bool] | None = None,
        largest_gap: int = LARGEST_GAP,
    ) -> None:
        self._inbox = inbox
        self._backend = backend
        self._settling = settling
        self._schema = schema
        self._layouts = Layouts()
        self._tickets = tickets
        self._staleness = staleness
        self._taken = dict(applied)
        self._acknowledged = backend.unrolls.highest()
        self.version = version
        self._newest_version = newest_version
        self._wanted = wanted
        self._largest_gap = largest_gap
        self._registered: set[Producer] = set()
        self._env_steps = 0
        self._poison: str | None = None

    def take(self) -> Judged | None:
        """Judge the next entry; None if none came in time."""
        self._look_at_version()
        entry = self._inbox.next()
        if entry is None:
            return None
        self._tickets.moved()
        self._look_at_version()
        judged = self._judge_inherited(entry) if self._inbox.inherits else self._judge(entry)
        if judged.item is None:
            self._inbox.settled([entry])
        return judged

    def _look_at_version(self) -> None:
        if self._newest_version is not None:
            self.version = self._newest_version()

    def receipt(self, taken: Sequence[Judged], items: Sequence[Item]) -> Receipt:
        """The receipt of what was taken together."""
        env_steps, self._env_steps = self._env_steps, 0
        return Receipt(
            entries=[judged.entry for judged in taken],
            highest={item.header.producer: item.header.sequence for item in items},
            env_steps=env_steps,
            trained_steps=sum(item.header.env_steps for item in items),
            episode_returns=[float(value) for item in items for value in item.episode_returns],
            episode_lengths_steps=[int(value) for item in items for value in item.episode_lengths_steps],
            _backend=self._settling,
            _inbox=self._inbox,
        )

    def _judge_inherited(self, entry: Entry) -> Judged:
        """As `_judge`. A predecessor may have died of it: that it is being decoded is noted until it has been."""
        if self._backend.unrolls.suspect(entry.entry_id) >= DEATHS:
            self._poison = entry.entry_id
        judged = self._judge(entry)
        self._backend.unrolls.absolve(entry.entry_id)
        return judged

    def _judge(self, entry: Entry) -> Judged:
        """The item if it is to be learned from; otherwise counts the reason, and issues a ticket in its place."""
        header = entry.header
        if header is None or not self._is_registered(header.producer):
            # Why the payload would be refused, if it would: `dead` and the ledger name the graver reason.
            reason = "schema" if header is None else self._fault(entry, header) or "schema"
            self._backend.unrolls.reject(entry, reason, {"foreign": 1})
            return Judged(entry, header)
        if header.sequence <= self._taken.get(header.producer, -1):
            # Its ticket was used up, or replaced, by the first copy.
            self._backend.unrolls.acknowledge([entry], {"dropped.duplicate": 1}, {})
            return Judged(entry, header)
        if not self._count_gap(header):
            self._backend.unrolls.reject(entry, "schema", {"foreign": 1})
            return Judged(entry, header)
        self._taken[header.producer] = header.sequence
        if self._wanted is not None and not self._wanted(header):
            return self._drop(entry, header, "duplicate")
        bound = self._staleness.updates
        if bound is not None and self.version - header.weights_version > bound:
            dropped = self._drop(entry, header, "stale")
            self._tickets.replace_one()
            return dropped
        try:
            item = self._decode(entry, header)
        except RejectedError as error:
            # The sequence first: a learner that dies in between finds the entry again, and no gap after it.
            self._backend.unrolls.acknowledge([], {}, {header.producer: header.sequence})
            self._backend.unrolls.reject(entry, error.reason, {})
            self._tickets.replace_one()
            return Judged(entry, header, refused=error.reason)
        self._env_steps += header.env_steps
        return Judged(entry, header, item)

    def _drop(self, entry: Entry, header: UnrollHeader, reason: str) -> Judged:
        """Drop an entry that is whole and not wanted: its steps count, and its sequence is no gap."""
        self._env_steps += header.env_steps
        highest = {header.producer: header.sequence}
        self._backend.unrolls.acknowledge([entry], {f"dropped.{reason}": 1}, highest)
        return Judged(entry, header)

    def _decode(self, entry: Entry, header: UnrollHeader) -> Item:
        """Raises RejectedError unless the item can be learned from."""
        if entry.entry_id == self._poison:
            raise PoisonError(f"{DEATHS} learners have died while they decoded {entry.entry_id}")
        if header.weights_version > self.version:
            raise SchemaError(f"weights version {header.weights_version} has not been published yet")
        if isinstance(self._schema, GradientSchema):
            return decode_contribution(header, entry.payload, self._schema)
        return decode_unroll(header, entry.payload, self._schema, self._layouts)

    def _fault(self, entry: Entry, header: UnrollHeader) -> str | None:
        try:
            self._decode(entry, header)
        except RejectedError as error:
            return error.reason
        return None

    def _is_registered(self, producer: Producer) -> bool:
        if producer not in self._registered and self._backend.registry.is_registered(producer):
            self._registered.add(producer)
        return producer in self._registered

    def _count_gap(self, header: UnrollHeader) -> bool:
        """Count unrolls that were produced and never arrived: Redis lost them. False: the sequence is not the actor's.

        After a gap that is larger than what Redis can lose at once, a sequence is believed only if actors have counted
        every entry of the stream as theirs: a forged one would have the actor's next unrolls dropped as duplicates.
        """
        producer = header.producer
        # Against what was ever acknowledged, not against `applied`: weights that were rolled back lost no entries.
        before = max(self._taken.get(producer, -1), self._acknowledged.get(producer, -1))
        gap = header.sequence - before - 1
        if gap > 0:
            if gap > self._largest_gap and self._backend.unrolls.uncounted():
                return False
            # At once and up to here, so that no crash can count it twice or never.
            counts = {"lost": gap, "produced": gap}
            self._backend.unrolls.acknowledge([], counts, {producer: header.sequence - 1})
        return True
