"""Hop 6: judges entries of the stream: each becomes an item to learn from, or is dropped with a reason.

An entry is judged by its plain header first (foreign, duplicate, too stale), then decoded and checked. The judgement
names the `EntryOutcome` with which a dropped entry is settled at once; gaps in the sequences are counted too. A receipt
stands for the entries of items in use: the learner settles it after their use.
"""

from collections.abc import Callable, Mapping, Sequence
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
from distrl.memory_backend.ledger import REFUSED, EntryOutcome
from distrl.memory_backend.records import Producer
from distrl.memory_backend.stream import Entry
from distrl.types import EPISODE_FIELDS, EPISODE_METRICS, Contribution, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

BLOCK_S = 0.1
"""Longest wait for an entry before `stop` is read; the end of a run waits for it."""
LARGEST_GAP = 1000

DEATHS = 3
"""Number of learners that may die while they decode one unroll: the one that took it, and two that found it again."""

Item = Unroll | Contribution


class Judged(NamedTuple):
    """Result of judging one entry of the stream.

    Attributes:
        item: The item to learn from; None: the entry is dropped.
        outcome: With which the entry is dropped; that of an item follows its use.
        foreign: Whether no actor of the run produced the entry.
    """

    entry: Entry
    item: Item | None = None
    outcome: EntryOutcome | None = None
    foreign: bool = False

    @property
    def refused(self) -> EntryOutcome | None:
        """Why an actor's item cannot be learned from; None for every other entry."""
        return self.outcome if self.outcome in REFUSED and not self.foreign else None


@dataclass
class EntriesReceipt:
    """See `batches.Receipt`: entries of items that are used together, with the counts to add after their use.

    Attributes:
        entries: The entries, in progress until settled.
        highest: Producer -> its highest sequence among them.
        env_steps: Valid steps first seen since the last receipt, dropped stale ones included.
        trained_steps: Valid steps of the items.
        episode_returns, episode_lengths_steps, episode_discounted_returns, episode_successes: Results of episodes that
            ended in the items.
        episode_metrics: Their values of `environment.metrics`, [E][M], NaN where unknown; empty if M is 0.
    """

    entries: list[Entry]
    highest: dict[Producer, int]
    env_steps: int
    trained_steps: int
    episode_returns: list[float]
    episode_lengths_steps: list[int]
    episode_discounted_returns: list[float]
    episode_successes: list[int]
    episode_metrics: list[list[float]]
    _inbox: Inbox

    def settle(self, outcome: EntryOutcome = EntryOutcome.TRAINED) -> None:
        """Remove the entries from the stream and count them as trained, or as stored, in one transaction."""
        self._inbox.settle(self.entries, outcome)

    def count(self, state: LearnerState) -> None:
        """Add the items to the learner's counts: they have been trained on, or are in the replay memory."""
        state.env_steps += self.env_steps
        state.trained_steps += self.trained_steps
        state.trained_unrolls += len(self.entries)
        state.applied.update(self.highest)
        state.observe_episodes(
            self.episode_returns,
            self.episode_lengths_steps,
            self.episode_discounted_returns,
            self.episode_successes,
            self.episode_metrics,
        )


@dataclass
class Intake:
    """Judges one entry after the other, independently of threads and batches.

    Attributes:
        backend: The learner's backend; `take` uses its receiving lane.
        staleness: Bound on the age of the weights behind an item.
        applied: Producer -> highest sequence that the weights already contain; sequences up to it are duplicates.
        version: Version of the weights that the next items update; the source of batches increments it.
        newest_version: Returns the newest version, for a replay memory, whose items lead to no version of their own.
        wanted: Returns whether the item of a header is used; others are dropped as duplicates. None: all are used.
        largest_gap: Most unrolls of one actor that Redis can lose at once: the capacity of the stream.
        idle: Called whenever no entry came in time; in one process, the actor acts then.
        used: Called with items that are about to be used together.
    """

    inbox: Inbox
    backend: Backend
    schema: UnrollSchema | GradientSchema
    tickets: Tickets
    staleness: StalenessBound
    applied: Mapping[Producer, int]
    version: int
    newest_version: Callable[[], int] | None = None
    wanted: Callable[[UnrollHeader], bool] | None = None
    largest_gap: int = LARGEST_GAP
    idle: Callable[[], None] = lambda: None
    used: Callable[[Sequence[Item]], None] = lambda _items: None

    def __post_init__(self) -> None:
        self._layouts = Layouts()
        self._taken = dict(self.applied)
        self._lane = self.backend.receiving
        self._settled = self._lane.unrolls.highest()
        self._registered: set[Producer] = set()
        self._interruptions = self._lane.unrolls.interruptions
        self._env_steps = 0  # seen since the last receipt
        self._poison: str | None = None

    def take_together(
        self, size: int, stop: Callable[[], bool], look: Callable[[Judged], None] = lambda _judged: None
    ) -> list[Judged] | None:
        """Return the next `size` items; None if a stop was requested before they had come.

        Args:
            stop: Read whenever no entry came in time.
            look: Called with every entry that was judged.
        """
        taken: list[Judged] = []
        while len(taken) < size:
            judged = self.take()
            if judged is None:
                if stop():
                    return None
                self.tickets.replace_lost(size - len(taken), self.version)
                continue
            look(judged)
            if judged.item is not None:
                taken.append(judged)
        return taken

    def take(self) -> Judged | None:
        """Judge the next entry; return None, after `idle`, if none came in time."""
        self._keep_registered()
        self._look_at_version()
        entry = self.inbox.next()
        if entry is None:
            self.idle()
            return None
        self.tickets.moved()
        self._look_at_version()
        # A predecessor may have died of it: Redis records that it is being decoded.
        inherited = self.inbox.inherits
        if inherited and self._lane.unrolls.suspect(entry.entry_id) >= DEATHS:
            self._poison = entry.entry_id
        judged = self._judge(entry)
        if judged.outcome is not None:
            self.inbox.drop(entry, judged.outcome, foreign=judged.foreign)
        if judged.outcome is EntryOutcome.STALE or judged.refused is not None:
            self.tickets.replace_one()
        if inherited:
            self._lane.unrolls.absolve(entry.entry_id)
        return judged

    def _look_at_version(self) -> None:
        if self.newest_version is not None:
            self.version = self.newest_version()

    def receipt(self, taken: Sequence[Judged], items: Sequence[Item]) -> EntriesReceipt:
        """Return the receipt of items that were taken together."""
        self.used(items)
        env_steps, self._env_steps = self._env_steps, 0
        return EntriesReceipt(
            entries=[judged.entry for judged in taken],
            highest={item.header.producer: item.header.sequence for item in items},
            env_steps=env_steps,
            trained_steps=sum(item.header.env_steps for item in items),
            **{name: [value for item in items for value in getattr(item, name).tolist()] for name in EPISODE_FIELDS},
            episode_metrics=[
                row for item in items if EPISODE_METRICS in item.extras for row in item.extras[EPISODE_METRICS].tolist()
            ],
            _inbox=self.inbox,
        )

    def _judge(self, entry: Entry) -> Judged:
        """Return the item, or the outcome with which the entry is dropped."""
        header = entry.header
        if header is None:
            return Judged(entry, outcome=EntryOutcome.SCHEMA, foreign=True)
        if not self._is_registered(header.producer):
            # Decoded only for the outcome: `dead` and the ledger name the graver one.
            return Judged(entry, outcome=self._decode(entry, header).outcome or EntryOutcome.SCHEMA, foreign=True)
        if header.sequence <= self._taken.get(header.producer, -1):
            # Its ticket was used up, or replaced, by the first copy. After a fail-over, Redis may have forgotten that
            # this sequence was settled, and a successor must find no gap below it. A first copy in progress settles it.
            return Judged(entry, outcome=EntryOutcome.COPY if self.inbox.has_copy_of(entry) else EntryOutcome.DUPLICATE)
        if not self._count_gap(header):
            return Judged(entry, outcome=EntryOutcome.SCHEMA, foreign=True)
        self._taken[header.producer] = header.sequence
        unused = self._unused(header)
        judged = self._decode(entry, header) if unused is None else Judged(entry, outcome=unused)
        if judged.refused is None:
            self._env_steps += header.env_steps
        return judged

    def _unused(self, header: UnrollHeader) -> EntryOutcome | None:
        """Return the outcome of a valid entry that is not used; None: it is used, if it can be decoded."""
        if self.wanted is not None and not self.wanted(header):
            return EntryOutcome.DUPLICATE
        bound = self.staleness.updates
        return EntryOutcome.STALE if bound is not None and self.version - header.weights_version > bound else None

    def _decode(self, entry: Entry, header: UnrollHeader) -> Judged:
        """Return the item, or the outcome of an entry that cannot be learned from."""
        try:
            if entry.entry_id == self._poison:
                raise PoisonError(f"{DEATHS} learners have died while they decoded {entry.entry_id}")
            if header.weights_version > self.version:
                raise SchemaError(f"weights version {header.weights_version} has not been published yet")
            if isinstance(self.schema, GradientSchema):
                return Judged(entry, decode_contribution(header, entry.payload, self.schema))
            return Judged(entry, decode_unroll(header, entry.payload, self.schema, self._layouts))
        except RejectedError as error:
            return Judged(entry, outcome=EntryOutcome(error.reason))

    def _keep_registered(self) -> None:
        """Register all producers again after a broken connection: another process must not get one's incarnation."""
        interruptions = self._lane.unrolls.interruptions
        if interruptions != self._interruptions:
            self._interruptions = interruptions
            self._lane.registry.keep_registered(self._taken)

    def _is_registered(self, producer: Producer) -> bool:
        """Return whether the producer is an actor of the run, even if Redis has forgotten its registration.

        It has if actors have counted every entry of the stream: this one too was pushed by an actor.
        """
        if producer in self._registered:
            return True
        if not self._lane.registry.is_registered(producer):
            if producer[1] < 1 or self._lane.unrolls.uncounted():
                return False
            self._lane.registry.keep_registered([producer])
        self._registered.add(producer)
        return True

    def _count_gap(self, header: UnrollHeader) -> bool:
        """Count unrolls that were produced and that Redis lost. Return False if the sequence cannot be the actor's.

        After a gap larger than what Redis can lose at once, a sequence is believed only if actors have counted every
        entry of the stream. A forged one would have the actor's next unrolls dropped as duplicates.
        """
        producer = header.producer
        # Against what was ever settled, not against `applied`: weights that were rolled back lost no entries.
        before = max(self._taken.get(producer, -1), self._settled.get(producer, -1))
        gap = header.sequence - before - 1
        if gap > 0:
            if gap > self.largest_gap and self._lane.unrolls.uncounted():
                return False
            # At once and up to this sequence, so that no crash counts the gap twice or never.
            # This thread may see a fail-over before the learner has counted it.
            to_failover = self._lane.engine.failovers + self.backend.ledger.failovers > 0
            self._lane.unrolls.count_lost(header, gap, to_failover=to_failover)
        return True
