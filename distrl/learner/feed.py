"""Hop 6: takes unrolls from the stream, judges them and joins them into batches; gradients go the same way.

An unroll is judged by its plain header first (foreign, duplicate, too stale), then decoded and checked. Whatever is not
trained on is acknowledged at once and counted by its reason, and so are gaps in the sequences; the rest is acknowledged
by the learner after the update.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from distrl.errors import NonFiniteError, PoisonError, RejectedError, SchemaError
from distrl.learner.rounds import Rounds
from distrl.learner.staleness import StalenessBound
from distrl.memory_backend.backend import Backend, Entry
from distrl.memory_backend.batching import stack
from distrl.memory_backend.codec import decode_unroll
from distrl.memory_backend.gradient_codec import GradientSchema, decode_contribution
from distrl.memory_backend.layouts import Layouts
from distrl.memory_backend.registry_interface import Producer
from distrl.types import Array, Batch, Contribution, Contributions, Unroll, UnrollHeader, UnrollSchema

BLOCK_S = 0.1
"""Longest wait for unrolls before somebody is asked whether to go on; the end of a run waits for it."""
REFUSED_GRADIENTS = 16
"""So many gradients in a row that are not finite end the training: one may be an accident, all of them are not."""

LARGEST_GAP = 1000

DEATHS = 3
"""So many learners may die of an unroll: the one that took it, and two that found it again."""


@dataclass
class Parcel:
    """One batch on its way through the learner, with what must be counted when it has been used.

    Attributes:
        batch: Arrays [T, N]; observations [T+1, N, ...]. Or gradients, where those are shipped; none beside `unrolls`.
        entries: The stream entries it is made of; in flight until acknowledged.
        highest: Producer -> highest sequence in it.
        lags_updates: Versions between the weights that acted and the update it is used for, one per unroll. Into a
            replay memory: `ReplayFeed` counts once more, when they go in.
        env_steps: Valid steps first seen since the last parcel, dropped stale ones included.
        trained_steps: Valid steps in the batch.
        episode_returns, episode_lengths_steps: Of episodes that ended in it.
        missing: In rounds, actors whose gradient is not in it.
        items: int64 [N]. Which items of the replay memory it was sampled from; None: it is of the stream.
        publish: The weights after its update are published. With a replay memory, only before new unrolls are wanted.
        unrolls: On their way into a replay memory, as they travelled; no update is made of them.
        held: Which entries these are; whoever has acknowledged them says so there.
    """

    batch: Batch | Contributions
    entries: list[Entry]
    highest: dict[Producer, int]
    lags_updates: list[int]
    env_steps: int
    trained_steps: int
    episode_returns: list[float] = field(default_factory=list)
    episode_lengths_steps: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    items: Array | None = None
    publish: bool = True
    unrolls: tuple[Unroll, ...] = ()
    held: "Held" = field(default_factory=lambda: Held(()))


@dataclass
class Held:
    """Ids of entries that somebody has in hand until they are settled: acknowledged."""

    ids: tuple[str, ...]
    settled: bool = False


class Feed:
    """Collects one parcel after the other; knows nothing of threads.

    Args:
        backend: Used by the collecting thread alone.
        applied: Producer -> highest sequence that the weights already contain; anything up to it is a duplicate.
        first_version: Version of the weights when the first parcel is used. Every parcel is one version, so the n-th is
            used at ``first_version + n`` and staleness is known here, ahead of time.
        largest_gap: So many unrolls of one actor Redis can lose at once: what the stream holds.
        newest_version: Where unrolls go into a replay memory, so that parcels are no versions: the newest version.
        stop: Asked whenever no entry arrives.
        rounds: Who makes a round; None: a batch is `batch_size` entries, whoever they are from. A gradient of an older
            version than the round's is too stale whatever `staleness` says, and there are no tickets.
    """

    def __init__(
        self,
        backend: Backend,
        schema: UnrollSchema | GradientSchema,
        *,
        batch_size: int,
        staleness: StalenessBound,
        fence: int,
        applied: dict[Producer, int],
        first_version: int,
        stop: Callable[[], bool],
        block_s: float = BLOCK_S,
        rounds: Rounds | None = None,
        newest_version: Callable[[], int] | None = None,
        largest_gap: int = LARGEST_GAP,
    ) -> None:
        self._backend = backend
        self._largest_gap = largest_gap
        self._newest_version = newest_version
        self._schema = schema
        self._layouts = Layouts()
        self._batch_size = batch_size
        self._rounds = rounds
        self._staleness = staleness if rounds is None else StalenessBound(0)
        self._has_tickets = staleness.updates is not None
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
        self._refused_gradients = 0
        self._inherits = True  # what comes was a predecessor's
        self._collected: list[str] = []  # ids of the batch that is being collected
        self._handed_over: list[Held] = []
        self._in_hand: frozenset[str] = frozenset()  # when the connection broke for the last time
        self._interruptions = backend.unrolls.interruptions
        self._poison: str | None = None

    def collect(self) -> Parcel | None:
        """Blocks until a whole batch, or round, is there; None when asked to stop before that.

        Raises:
            NonFiniteError: No gradient of a round could be used, so that no actor would ever go on; or one gradient
                after the other is not finite.
        """
        taken: list[tuple[Entry, Unroll | Contribution]] = []
        self._collected.clear()
        self._look_at_version()
        if self._rounds is not None:
            self._rounds.begin(self._version)
        while not self._is_complete(taken):
            entry = next(self._source)
            if entry is None:
                if self._stop():
                    return None
                self._replace_lost_tickets(self._batch_size - len(taken))
                continue
            self._stuck = False
            if entry.entry_id in self._in_hand:
                continue  # Redis came back without knowing that it has delivered it
            self._look_at_version()
            unroll = self._judge_inherited(entry) if self._inherits else self._judge(entry)
            if unroll is not None:
                taken.append((entry, unroll))
                self._collected.append(entry.entry_id)
        parcel = self._parcel(taken)
        self._handed_over = [*self._unsettled(), parcel.held]
        self._version += 1
        return parcel

    def _unsettled(self) -> list[Held]:
        return [held for held in self._handed_over if not held.settled]

    def _note_in_hand(self, handed_over: Sequence[Held]) -> None:
        """What is in hand is nobody's duplicate, however often it comes, and whenever it is acknowledged."""
        self._in_hand |= {*self._collected, *(entry_id for held in handed_over for entry_id in held.ids)}

    def _look_at_version(self) -> None:
        if self._newest_version is not None:
            self._version = self._newest_version()

    def _is_complete(self, taken: Sequence[object]) -> bool:
        return len(taken) >= self._batch_size if self._rounds is None else self._rounds.is_over()

    def _entries(self) -> Iterator[Entry | None]:
        """First what a predecessor took and did not acknowledge, one by one; then new entries. None: nothing came.

        A Redis that was gone may have forgotten acknowledgements: what was taken and used is there once more.
        """
        yield from self._unacknowledged()
        self._inherits = False
        while True:
            before = self._unsettled()  # before Redis is asked: the learner may acknowledge meanwhile
            entries = self._backend.unrolls.take(self._batch_size, self._block_s)
            if self._interruptions != self._backend.unrolls.interruptions:
                self._interruptions = self._backend.unrolls.interruptions
                self._in_hand = frozenset()
                self._note_in_hand(before)
                yield from entries
                self._note_in_hand(self._unsettled())
                yield from self._unacknowledged()
                continue
            yield from entries
            if not entries:
                yield None

    def _unacknowledged(self) -> Iterator[Entry]:
        after = "0"
        while left := self._backend.unrolls.unacknowledged(after, 1):
            after = left[0].entry_id
            yield left[0]

    def _judge_inherited(self, entry: Entry) -> Unroll | Contribution | None:
        """As `_judge`. A predecessor may have died of it: that it is being decoded is noted until it has been."""
        if self._backend.unrolls.suspect(entry.entry_id) >= DEATHS:
            self._poison = entry.entry_id
        unroll = self._judge(entry)
        self._backend.unrolls.absolve(entry.entry_id)
        return unroll

    def _judge(self, entry: Entry) -> Unroll | Contribution | None:
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
        if not self._count_gap(header):
            self._backend.unrolls.reject(entry, "schema", self._fence, {"foreign": 1})
            return None
        self._taken[header.producer] = header.sequence
        if self._rounds is not None and not self._rounds.takes(header):
            # Another one of an actor that was started again: everybody contributes once.
            self._drop(entry, header, "duplicate")
            return None
        bound = self._staleness.updates
        if bound is not None and self._version - header.weights_version > bound:
            self._drop(entry, header, "stale")
            self._replace_ticket()
            return None
        try:
            unroll = self._decode(entry, header)
        except RejectedError as error:
            # The sequence first: a learner that dies in between finds the entry again, and no gap after it.
            self._backend.unrolls.acknowledge([], self._fence, {}, {header.producer: header.sequence})
            self._backend.unrolls.reject(entry, error.reason, self._fence, {})
            self._replace_ticket()
            if self._rounds is not None:
                self._rounds.refused(header, error.reason)
            else:
                self._count_refused(error.reason)
            return None
        self._refused_gradients = 0
        self._env_steps += header.env_steps
        if self._rounds is not None:
            self._rounds.taken(header)
        return unroll

    def _count_refused(self, reason: str) -> None:
        """Raises NonFiniteError when gradients are not finite one after the other: no update will change that."""
        if not isinstance(self._schema, GradientSchema) or reason != "nonfinite":
            return
        self._refused_gradients += 1
        if self._refused_gradients >= REFUSED_GRADIENTS:
            raise NonFiniteError(
                f"{self._refused_gradients} gradients one after the other are not finite (version {self._version})"
            )

    def _drop(self, entry: Entry, header: UnrollHeader, reason: str) -> None:
        """What is whole and not wanted: its steps were made, and its sequence is no gap."""
        self._env_steps += header.env_steps
        highest = {header.producer: header.sequence}
        self._backend.unrolls.acknowledge([entry], self._fence, {f"dropped.{reason}": 1}, highest)

    def _decode(self, entry: Entry, header: UnrollHeader) -> Unroll | Contribution:
        """Raises RejectedError unless the unroll can be trained on."""
        if entry.entry_id == self._poison:
            raise PoisonError(f"{DEATHS} learners have died while they decoded {entry.entry_id}")
        if header.weights_version > self._version:
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

    def _replace_ticket(self) -> None:
        """The ticket that this unroll used up bought nothing; without another one the batch could never fill."""
        if self._has_tickets:
            self._backend.tickets.issue(1, self._fence)

    def _replace_lost_tickets(self, missing: int) -> None:
        """Issues `missing` tickets if nobody can fill the batch any more; asked whenever a wait brought no entry.

        That is so after a Redis failure that lost unrolls or tickets, or where a predecessor left copies in the stream
        that `Publisher.issue_first_tickets` took for unrolls.
        """
        ahead = self._staleness.ahead
        if not self._has_tickets or ahead is None:
            return
        # Before that version is published, the batch's own tickets are still to come.
        due = self._backend.weights.version() >= self._version - ahead
        stuck = due and self._backend.tickets.counts() == (0, 0) and self._backend.ledger.counts().queued == 0
        # At the second time in a row, as the learner publishes first and issues right after.
        if stuck and self._stuck:
            self._backend.tickets.issue(missing, self._fence)
        self._stuck = stuck and not self._stuck

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
            self._backend.unrolls.acknowledge([], self._fence, counts, {producer: header.sequence - 1})
        return True

    def _parcel(self, taken: Sequence[tuple[Entry, Unroll | Contribution]]) -> Parcel:
        unrolls = [unroll for _, unroll in taken]
        highest: dict[Producer, int] = {}
        for unroll in unrolls:
            highest[unroll.header.producer] = unroll.header.sequence
        into_replay = self._newest_version is not None
        parcel = Parcel(
            batch=() if into_replay else self._joined(unrolls),
            entries=[entry for entry, _ in taken],
            highest=highest,
            lags_updates=[self._version - unroll.header.weights_version for unroll in unrolls],
            env_steps=self._env_steps,
            trained_steps=sum(unroll.header.env_steps for unroll in unrolls),
            episode_returns=[float(value) for unroll in unrolls for value in unroll.episode_returns],
            episode_lengths_steps=[int(value) for unroll in unrolls for value in unroll.episode_lengths_steps],
            missing=[] if self._rounds is None else self._rounds.missing,
            held=Held(tuple(self._collected)),
            unrolls=tuple(unroll for unroll in unrolls if isinstance(unroll, Unroll)) if into_replay else (),
        )
        self._env_steps = 0
        return parcel

    def _joined(self, items: Sequence[Unroll | Contribution]) -> Batch | Contributions:
        """Unrolls side by side, or gradients in order."""
        if isinstance(self._schema, GradientSchema):
            return tuple(item for item in items if isinstance(item, Contribution))
        return stack([item for item in items if isinstance(item, Unroll)], self._schema.frames)
