"""Hop 5: unrolls on their way to the learner, in a Redis stream that admission at the producer keeps bounded.

An entry has the plain fields ``actor``, ``incarnation``, ``sequence``, ``version``, ``steps`` (decimal) and ``payload``
(bytes of `codec`). It is *queued* from XADD, *in flight* from XREADGROUP, and gone when it is settled after its
use; a learner that dies in between leaves it pending, and its successor takes it first.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distrl.config import RunConfig
from distrl.memory_backend.engine import Command, Reply, RunStore
from distrl.memory_backend.keys import (
    GROUP,
    HIGHEST_NUMBER,
    RunKeys,
    checked_number,
    entry_fields,
    entry_header,
    entry_order,
    number_or_zero,
    producer_field,
    producer_of,
)
from distrl.memory_backend.ledger import REFUSED, EntryOutcome, increment_commands
from distrl.memory_backend.records import Producer
from distrl.types import UnrollHeader

DEAD_ENTRIES = 100
DEAD_PAYLOAD_BYTES = 65_536
DOUBTS = 16
"""Number of settlements after a broken connection that first check their entries: more than can be in progress."""


@dataclass(frozen=True, slots=True)
class Admission:
    """State of the run that a producer needs before its next unroll, read in one round trip."""

    has_room: bool  # the stream is below both caps
    weights_version: int  # newest published; 0 before the first
    paused: bool
    stop: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the stream. `header` is None if the plain fields are not a valid header."""

    entry_id: str
    header: UnrollHeader | None
    payload: bytes


@dataclass(frozen=True, slots=True)
class QueueCaps:
    """Bounds of the stream; producers wait at either.

    Attributes:
        batch: Entries that the learner takes together. They always have room, however large they are.
    """

    entries: int
    bytes: int
    batch: int = 1

    def held_at_most(self, producers: int) -> int:
        """Return the most entries in the stream: each producer may have started an unroll before it was full."""
        return (0 if self.entries == sys.maxsize else self.entries) + max(producers, 1)

    @staticmethod
    def of(config: RunConfig) -> "QueueCaps":
        """Return the bounds of a run: `memory.queue_batches` batches or `memory.queue_bytes`, whichever comes first.

        Rounds of gradient actors need no bounds: each actor has at most one gradient in the stream. An actor that
        waited for room would block its round for ever.
        """
        if config.algorithm.rounds:
            return QueueCaps(sys.maxsize, sys.maxsize)
        batch = config.unrolls_at_once
        return QueueCaps(config.memory.queue_batches * batch, config.memory.queue_bytes, batch)


UNBOUNDED = QueueCaps(entries=sys.maxsize, bytes=sys.maxsize)
"""Bounds for connections that push nothing."""


def has_room(caps: QueueCaps, entries: int, stream_bytes: int) -> bool:
    """Return whether a producer may start an unroll: below both caps, and always while a batch is not complete.

    Without the second rule, unrolls larger than the cap, or a forged entry whose bytes were never counted, would close
    the stream for good.
    """
    return entries < caps.entries and (stream_bytes < caps.bytes or entries < caps.batch)


class _InterruptedError(Exception):
    """The connection broke during a settlement; nothing of it was applied."""


class UnrollStream:
    """The stream `unrolls:0` with one consumer group and one consumer; bounded by admission, never trimmed."""

    def __init__(self, run: RunStore, caps: QueueCaps) -> None:
        self._run, self._engine, self._keys = run, run.engine, run.keys
        self._caps = caps
        self._interruptions = run.engine.interruptions
        self._doubts = 0  # number of coming settlements whose entries Redis may have lost
        self._newest_taken = "0"
        self._newest_pushed: bytes | None = None

    @property
    def interruptions(self) -> int:
        """Number of broken connections so far; each time, Redis may have lost the newest writes."""
        return self._engine.interruptions

    def admission(self, block_s: float = 0.0) -> Admission:
        """Return the run's state for a producer: at once, or when the learner has removed entries, or after `block_s`.

        Takes one round trip. The learner adds a token for every entry that it removes, and Redis hands tokens to the
        actors that have waited longest. A token is a hint, not a promise of room.
        """
        # Redis is not exact about how long that is: a quarter of a second at most, where nothing else keeps it awake.
        wait: Command | None = ("BZPOPMIN", self._keys.room, block_s) if block_s else None
        replies = self._run.write(
            [("XLEN", self._keys.unrolls), ("HGET", self._keys.ledger, "stream_bytes"), *self._admission_commands()],
            wait=wait,
        )
        stream_bytes = checked_number(replies[1], f"stream_bytes in the ledger of {self._keys.run_id}")
        return self._admission(replies[0], stream_bytes, replies[2:])

    def push(self, header: UnrollHeader, payload: bytes) -> Admission:
        """Append an unroll, count it and release the producer's ticket, in one transaction and one round trip.

        After a broken connection it is repeated and may store two copies: `produced` then counts two, and the learner
        drops one as a duplicate. If Redis refuses only the entry, the counts are taken back.

        Raises:
            MemoryBackendError: Redis refuses the entry, or the run is gone.
        """
        keys = self._keys
        counts = {"produced": 1, "pushed_bytes": len(payload), "stream_entries": 1, "stream_bytes": len(payload)}
        back = {name: -increment for name, increment in counts.items()}
        entry: list[str | bytes] = ["XADD", keys.unrolls, "*"]
        for name, value in entry_fields(header, payload).items():
            entry += (name, value)
        replies = self._run.write(
            [
                tuple(entry),
                ("DEL", keys.held(header.producer)),
                *[("HINCRBY", keys.ledger, name, increment) for name, increment in counts.items()],
                ("XLEN", keys.unrolls),
                *self._admission_commands(),
            ],
            undo=increment_commands(keys, back),
        )
        self._newest_pushed = replies[0]
        return self._admission(replies[6], replies[5], replies[7:])

    def holds_newest_push(self) -> bool:
        """Return whether this object's newest push is still in the stream, queued or in flight; one round trip."""
        entry_id = self._newest_pushed
        return entry_id is not None and bool(self._engine.call("XRANGE", self._keys.unrolls, entry_id, entry_id))

    def take(self, count: int, block_s: float) -> list[Entry]:
        """Return up to `count` new entries in order, which are then in flight; none if none arrives in `block_s`.

        Entries that a broken connection lost on their way here are found again.
        """

        def command(piece_s: float) -> Command:
            block = ("BLOCK", max(int(piece_s * 1000), 1)) if piece_s else ()
            return ("XREADGROUP", "GROUP", GROUP, GROUP, "COUNT", count, *block, "STREAMS", self._keys.unrolls, ">")

        def swallowed() -> Reply | None:
            reply = self._pending(self._newest_taken, count)
            return reply if _entries(reply) else None

        return self._received(self._engine.call_blocking(command, block_s, swallowed))

    def unacknowledged(self, after: str, count: int) -> list[Entry]:
        """Return entries that were taken and not settled, in order, with ids above `after` ('0' for all)."""
        return self._received(self._pending(after, count))

    def suspect(self, entry_id: str) -> int:
        """Record that an entry of a predecessor is about to be decoded; return how often so far, with this time.

        Not fenced. Counts once, even if repeated after a broken connection.
        """
        times = number_or_zero(self._engine.call("HGET", self._keys.suspects, entry_id)) + 1
        self._run.write_one("HSET", self._keys.suspects, entry_id, times)
        return times

    def absolve(self, entry_id: str) -> None:
        """Record that the entry has been decoded or refused: the learner has survived it."""
        self._engine.call("HDEL", self._keys.suspects, entry_id)

    def settle(self, entries: Sequence[Entry], outcome: EntryOutcome, *, foreign: bool = False) -> None:
        """Remove entries, count what became of them and raise the highest sequences, in one transaction, exactly once.

        Of refused entries, `dead` keeps a part. An entry that Redis lost while it was in progress is counted as
        produced once more, so that the ledger balances. Another server, whose clock is behind, may have given its id
        to another entry, which stays.

        Args:
            foreign: No actor of the run produced the entries.

        Raises:
            FencedError: Another learner has taken over; nothing was changed.
        """
        doubtful, unrolls = self._is_doubtful(), self._keys.unrolls
        looks: list[Command] = [("XRANGE", unrolls, entry.entry_id, entry.entry_id) for entry in entries if doubtful]

        def prepare(replies: Sequence[Reply]) -> list[Command]:
            if not doubtful and self._interruptions != self._engine.interruptions:
                raise _InterruptedError
            found = zip(entries, replies, strict=False)  # without looks: none
            forgotten = {entry.entry_id for entry, there in found if entry not in (_entry(*item) for item in there)}
            left = [entry for entry in entries if entry.entry_id not in forgotten]
            return _settlement(self._keys, entries, left, outcome, foreign=foreign)

        try:
            self._run.fenced(prepare, "settling unrolls", looks)
        except _InterruptedError:  # once more, after checking which entries are still there
            self.settle(entries, outcome, foreign=foreign)

    def count_lost(self, before: UnrollHeader, lost: int, *, to_failover: bool) -> None:
        """Count the `lost` unrolls of an actor before this one as produced and lost, and settle their sequences."""
        counts = {"produced": lost, "lost": lost, "lost_to_failover": lost if to_failover else 0}
        raised = _raised(self._keys, {before.producer: before.sequence - 1})
        commands = [*increment_commands(self._keys, counts), *raised]
        self._run.fenced(lambda _: commands, "counting lost unrolls")

    def raise_highest(self, highest: Mapping[Producer, int]) -> None:
        """Record that all sequences up to these are settled: a successor finds no gaps below them."""
        self._run.fenced(lambda _: _raised(self._keys, highest), "raising highest sequences")

    def highest(self) -> dict[Producer, int]:
        """Return the highest sequence ever settled per producer; a restarted learner finds gaps by it.

        Members that distrl has not written are ignored.
        """
        told = self._engine.call("ZRANGE", self._keys.highest, 0, -1, "WITHSCORES")
        scores = {producer_of(name): float(score) for name, score in zip(told[::2], told[1::2], strict=True)}
        return {made: int(score) for made, score in scores.items() if made and 0 <= score <= HIGHEST_NUMBER}

    def uncounted(self) -> int:
        """Return the number of entries that no actor has counted: another program has added them to the stream."""
        entries, counted = self._engine.transaction(
            [("XLEN", self._keys.unrolls), ("HGET", self._keys.ledger, "stream_entries")]
        )
        return max(int(entries) - checked_number(counted, f"stream_entries in the ledger of {self._keys.run_id}"), 0)

    def _admission_commands(self) -> list[Command]:
        return [("HGET", self._keys.weights, "version"), ("HMGET", self._keys.control, "paused", "stop")]

    def _admission(self, entries: int, stream_bytes: int, replies: list[Reply]) -> Admission:
        version, (paused, stop) = replies
        return Admission(
            has_room=has_room(self._caps, entries, stream_bytes),
            weights_version=checked_number(version, f"the version of the weights of {self._keys.run_id}"),
            paused=paused == b"1",
            stop=stop is not None,
        )

    def _pending(self, after: str, count: int) -> Reply:
        return self._engine.call(
            "XREADGROUP", "GROUP", GROUP, GROUP, "COUNT", count, "STREAMS", self._keys.unrolls, after
        )

    def _received(self, reply: Reply) -> list[Entry]:
        entries = _entries(reply)
        if entries:
            self._newest_taken = max(self._newest_taken, entries[-1].entry_id, key=entry_order)
        return entries

    def _is_doubtful(self) -> bool:
        if self._interruptions != self._engine.interruptions:
            self._interruptions, self._doubts = self._engine.interruptions, DOUBTS
        self._doubts -= 1
        return self._doubts >= 0


def _entries(reply: Reply) -> list[Entry]:
    return [_entry(entry_id, fields) for _stream, items in reply or () for entry_id, fields in items]


def _entry(entry_id: bytes, fields: Mapping[bytes, bytes] | None) -> Entry:
    # A pending entry that was deleted from the stream comes back without fields.
    known = dict(fields or {})
    return Entry(entry_id.decode(), entry_header(known), known.get(b"payload", b""))


def _settlement(
    keys: RunKeys, entries: Sequence[Entry], left: Sequence[Entry], outcome: EntryOutcome, *, foreign: bool
) -> list[Command]:
    """Return the commands that settle `entries`, of which Redis has those `left`."""
    counts = {outcome.field: len(entries)}
    if foreign:  # neither produced nor counted in the stream by an actor
        counts["foreign"] = len(entries)
    else:
        counts["produced"] = len(entries) - len(left)
        counts |= {"stream_entries": -len(left), "stream_bytes": -sum(len(entry.payload) for entry in left)}
    headers = [entry.header for entry in entries if entry.header is not None]
    settles_sequences = not foreign and outcome is not EntryOutcome.COPY
    highest = {header.producer: header.sequence for header in headers if settles_sequences}
    kept = [_kept(keys, entry, outcome) for entry in entries if outcome in REFUSED]
    return [*_removal(keys, left), *increment_commands(keys, counts), *_raised(keys, highest), *kept]


def _removal(keys: RunKeys, entries: Sequence[Entry]) -> list[Command]:
    """Return the commands that remove entries and leave as many tokens, unless these are still there."""
    if not entries:
        return []
    ids = [entry.entry_id for entry in entries]
    tokens = [part for token in range(len(ids)) for part in (0, token)]  # of a sorted set: score, member
    return [("XACK", keys.unrolls, GROUP, *ids), ("XDEL", keys.unrolls, *ids), ("ZADD", keys.room, *tokens)]


def _raised(keys: RunKeys, highest: Mapping[Producer, int]) -> list[Command]:
    """Return the command that raises the highest sequences.

    GT, so that none goes back: a learner passes lower numbers after a roll-back, and entries that its intake drops, on
    another connection, may be settled before earlier ones that are trained on.
    """
    scores = [part for producer, sequence in highest.items() for part in (sequence, producer_field(producer))]
    return [("ZADD", keys.highest, "GT", *scores)] if scores else []


def _kept(keys: RunKeys, entry: Entry, outcome: EntryOutcome) -> Command:
    """Return the command that keeps the reason, the sha256 and the first 64 KiB of a refused entry in `dead`."""
    fields: dict[str, str | bytes | int] = {
        "reason": outcome.value,
        "sha256": hashlib.sha256(entry.payload).hexdigest(),
        "bytes": len(entry.payload),
        "payload": entry.payload[:DEAD_PAYLOAD_BYTES],
    }
    header = entry.header
    if header is not None:
        fields |= {"actor": header.actor, "incarnation": header.incarnation, "sequence": header.sequence}
        fields |= {"version": header.weights_version, "steps": header.env_steps}
    return ("XADD", keys.dead, "MAXLEN", DEAD_ENTRIES, "*", *(part for pair in fields.items() for part in pair))
