"""Hop 5: unrolls on their way to the learner, in a Redis stream that admission at the producer keeps bounded.

An entry has the plain fields ``actor``, ``incarnation``, ``sequence``, ``version``, ``steps`` (decimal) and ``payload``
(bytes of `codec`). It is *queued* from XADD, *in flight* from XREADGROUP, and gone with the acknowledgement after its
use; a learner that dies in between leaves it pending, and its successor takes it first.
"""

import hashlib
import sys
from collections.abc import Collection, Mapping, Sequence
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
    is_number,
    number_or_zero,
    producer_field,
    producer_of,
)
from distrl.memory_backend.ledger import checked_increments, increment_commands
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


def pushed_among(entries: Sequence[Entry], foreign: int, registered: Collection[Producer]) -> list[Entry]:
    """Return those of `entries` that an actor pushed and so counted in `stream_entries` and `stream_bytes`.

    Args:
        entries: Entries that are acknowledged together.
        foreign: Number of them that the learner counts as foreign.
        registered: Producers of the run among them; used only if some entries are foreign and some are not.
    """
    if foreign >= len(entries):
        return []
    if not foreign:
        return list(entries)
    return [entry for entry in entries if entry.header is not None and entry.header.producer in registered]


def released(pushed: Sequence[Entry]) -> dict[str, int]:
    """Return the decrements of the ledger when entries that actors pushed leave the stream."""
    return {"stream_entries": -len(pushed), "stream_bytes": -sum(len(entry.payload) for entry in pushed)}


def dead_fields(entry: Entry, reason: str) -> dict[str, str | bytes | int]:
    """Return the fields that `dead` keeps of a rejected entry."""
    fields: dict[str, str | bytes | int] = {
        "reason": reason,
        "sha256": hashlib.sha256(entry.payload).hexdigest(),
        "bytes": len(entry.payload),
        "payload": entry.payload[:DEAD_PAYLOAD_BYTES],
    }
    header = entry.header
    if header is not None:
        fields |= {"actor": header.actor, "incarnation": header.incarnation, "sequence": header.sequence}
        fields |= {"version": header.weights_version, "steps": header.env_steps}
    return fields


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
        """Return entries that were taken and not acknowledged, in order, with ids above `after` ('0' for all)."""
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

    def acknowledge(self, entries: Sequence[Entry], counts: Mapping[str, int], highest: Mapping[Producer, int]) -> None:
        """Remove entries, add `counts` to the ledger and raise highest sequences, in one transaction, exactly once.

        Args:
            counts: Ledger field -> increment: trained, foreign, lost, produced (for gaps), dropped.<reason>.
            highest: Producer -> highest sequence settled so far.

        Raises:
            FencedError: Another learner has taken over; nothing was changed.
        """
        self._settle(entries, checked_increments(counts), highest, [], "acknowledging unrolls")

    def reject(self, entry: Entry, reason: str, counts: Mapping[str, int]) -> None:
        """Acknowledge one entry and keep its first 64 KiB, sha256 and the reason in `dead`, in one transaction.

        Args:
            counts: Further increments (foreign); `dropped.<reason>` is added here.
        """
        dead: list[str | bytes | int] = ["XADD", self._keys.dead, "MAXLEN", DEAD_ENTRIES, "*"]
        for name, value in dead_fields(entry, reason).items():
            dead += (name, value)
        increments = checked_increments({f"dropped.{reason}": 1, **counts})
        self._settle([entry], increments, {}, [tuple(dead)], "rejecting an unroll")

    def highest(self) -> dict[Producer, int]:
        """Return the highest sequence ever acknowledged per producer; a restarted learner finds gaps by it.

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

    def _settle(
        self,
        entries: Sequence[Entry],
        counts: Mapping[str, int],
        highest: Mapping[Producer, int],
        commands: list[Command],
        what: str,
    ) -> None:
        """Remove entries, change ledger and highest sequences, and run `commands`, in one fenced transaction.

        An entry that Redis lost while it was in progress is counted as produced once more, so that the ledger balances.
        Another server, whose clock is behind, may have given its id to another entry, which stays.
        """
        keys, ids = self._keys, [entry.entry_id for entry in entries]
        foreign = counts.get("foreign", 0)
        mixed = 0 < foreign < len(entries)
        reads: list[Command] = [("HGETALL", keys.incarnations)] if mixed else []
        doubtful = self._is_doubtful()
        looks: list[Command] = [("XRANGE", keys.unrolls, entry_id, entry_id) for entry_id in ids] if doubtful else []

        def prepare(replies: Sequence[Reply]) -> list[Command]:
            if ids and not doubtful and self._interruptions != self._engine.interruptions:
                raise _InterruptedError
            pushed = pushed_among(entries, foreign, _registered(replies[0], entries) if mixed else ())
            found = zip(entries, replies[len(reads) :], strict=False)  # without looks: none
            forgotten = {entry.entry_id for entry, there in found if entry not in (_entry(*item) for item in there)}
            there = [entry for entry in pushed if entry.entry_id not in forgotten]
            again = {"produced": counts.get("produced", 0) + len(pushed) - len(there)}
            left = [entry_id for entry_id in ids if entry_id not in forgotten]
            removal = _removal(keys, left) if left else []
            return [*removal, *_raised({**counts, **again, **released(there)}, keys, highest), *commands]

        try:
            self._run.fenced(prepare, what, [*reads, *looks])
        except _InterruptedError:  # once more, after checking which entries are still there
            self._settle(entries, counts, highest, commands, what)

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


def _registered(incarnations: Mapping[bytes, bytes], entries: Sequence[Entry]) -> set[Producer]:
    """Return the producers of `entries` that belong to the run; `incarnations`: actor -> its newest incarnation."""
    producers = {entry.header.producer for entry in entries if entry.header is not None}
    newest = {int(name): number_or_zero(value) for name, value in incarnations.items() if is_number(name)}
    return {(actor, incarnation) for actor, incarnation in producers if 1 <= incarnation <= newest.get(actor, 0)}


def _removal(keys: RunKeys, ids: Sequence[str]) -> list[Command]:
    """Return the commands that remove entries and leave as many tokens, unless these are still there."""
    tokens = [part for token in range(len(ids)) for part in (0, token)]  # of a sorted set: score, member
    return [("XACK", keys.unrolls, GROUP, *ids), ("XDEL", keys.unrolls, *ids), ("ZADD", keys.room, *tokens)]


def _raised(counts: Mapping[str, int], keys: RunKeys, highest: Mapping[Producer, int]) -> list[Command]:
    """Return the commands that change the ledger and raise the highest sequences.

    GT, so that none goes back: a learner passes lower numbers after a roll-back, and entries that its intake drops, on
    another connection, may be acknowledged before earlier ones that are trained on.
    """
    scores = [part for producer, sequence in highest.items() for part in (sequence, producer_field(producer))]
    raised: list[Command] = [("ZADD", keys.highest, "GT", *scores)] if scores else []
    return [*increment_commands(keys, counts), *raised]
