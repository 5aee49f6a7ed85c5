"""Counts that change in the same transaction as the events they count, and the outcomes of entries among them.

The events that change each field, and the role that does it:

    produced                      an unroll is pushed; a gap in the sequences is found    actor; learner
    stream_entries, stream_bytes  an unroll is pushed; such an entry is settled           actor; learner
    pushed_bytes                  an unroll is pushed                                     actor
    foreign                       an entry is settled that no actor produced              learner
    `EntryOutcome.field`          an entry is settled                                     learner
    lost                          a gap in the sequences is found                         learner
    lost_to_failover              such a gap is found after a fail-over                   learner
    rolled_back                   a learner resumes from a checkpoint                     learner
    failovers                     the learner finds another history behind its address    learner

A fail-over may take the newest events and their counts away. The rest balances, as each event and its counts are one
transaction. `Ledger.recover` counts the unrolls in the weights again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from distrl.memory_backend.engine import Command, Reply, RunStore
from distrl.memory_backend.keys import GROUP, RunKeys, checked_number


class EntryOutcome(StrEnum):
    """The outcome of an entry of the stream, with which the learner settles it.

    An entry that no actor of the run produced is refused, and counted as foreign as well.
    """

    TRAINED = "trained"  # an update was made of it
    STORED = "stored"  # it is in the replay memory
    STALE = "stale"  # its weights are older than the bound on staleness allows
    DUPLICATE = "duplicate"  # its sequence was taken before, or the round has a gradient of its actor
    COPY = "copy"  # a duplicate whose first entry is in progress, and will settle the sequence
    DECODE = "decode"  # its bytes are none that the strict decoder reads
    SCHEMA = "schema"  # its arrays are not those of the run
    NONFINITE = "nonfinite"  # it holds NaN or infinity
    POISON = "poison"  # learners have died while they decoded it

    @property
    def field(self) -> str:
        """Field of the ledger that counts it."""
        if self in (EntryOutcome.TRAINED, EntryOutcome.STORED):
            return self.value
        return f"dropped.{EntryOutcome.DUPLICATE if self is EntryOutcome.COPY else self}"


REFUSED = (EntryOutcome.DECODE, EntryOutcome.SCHEMA, EntryOutcome.NONFINITE, EntryOutcome.POISON)
"""Outcomes of entries that the learner could not use; `dead` keeps a part of them."""
DROP_REASONS = tuple(outcome.value for outcome in (EntryOutcome.STALE, EntryOutcome.DUPLICATE, *REFUSED))
_FIELDS = {"produced", "stream_entries", "stream_bytes", "pushed_bytes", "foreign", "lost", "lost_to_failover"}
_FIELDS |= {"rolled_back", "failovers", *(outcome.field for outcome in EntryOutcome)}


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """Counts of the run's unrolls by where they are. The conservation law is `imbalance == 0`."""

    produced: int = 0
    foreign: int = 0  # entries that no actor of the run produced
    trained: int = 0
    queued: int = 0  # in the stream, not yet taken
    in_flight: int = 0  # taken, not settled
    dropped: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(DROP_REASONS, 0))
    lost: int = 0  # sequence gaps after a Redis failure
    rolled_back: int = 0  # trained or stored after the newest checkpoint when a learner died; shown apart
    stream_bytes: int = 0  # payload bytes in the stream now
    pushed_bytes: int = 0  # payload bytes ever pushed
    lost_to_failover: int = 0  # those of `lost` that were found after a fail-over of Redis
    failovers: int = 0  # of Redis, as the learner has seen them
    stored: int = 0  # in a replay memory, from which updates sample

    @property
    def used(self) -> int:
        """Unrolls that the learner has taken for good: trained on, or stored."""
        return self.trained + self.stored

    @property
    def imbalance(self) -> int:
        """produced + foreign - (trained + stored + queued + in_flight + dropped + lost); 0: all accounted for."""
        arrived = self.produced + self.foreign
        return arrived - self.used - self.queued - self.in_flight - sum(self.dropped.values()) - self.lost


def increment_commands(keys: RunKeys, counts: Mapping[str, int]) -> list[Command]:
    """Return the commands that add `counts` to the ledger."""
    return [("HINCRBY", keys.ledger, name, increment) for name, increment in counts.items() if increment]


def ledger_counts(fields: Mapping[str, int], entries: int, in_flight: int) -> LedgerCounts:
    """Combine the ledger's fields and the stream's state, read in one transaction.

    Entries beyond those that actors pushed count as foreign as soon as they are in the stream: a run may stop before
    its learner has judged them. Fewer entries than were pushed unbalance the ledger.
    """
    excess = max(entries - fields.get("stream_entries", 0), 0)
    names = ["produced", "trained", "stored", "lost", "lost_to_failover", "failovers"]
    names += ("rolled_back", "stream_bytes", "pushed_bytes")
    return LedgerCounts(
        **{name: fields.get(name, 0) for name in names},
        foreign=fields.get("foreign", 0) + excess,
        queued=entries - in_flight,
        in_flight=in_flight,
        dropped={reason: fields.get(f"dropped.{reason}", 0) for reason in DROP_REASONS},
    )


class Ledger:
    """The ledger hash."""

    def __init__(self, run: RunStore) -> None:
        self._run = run
        self._counted: int | None = None  # fail-overs of the connection that are counted; None before the first time
        self.failovers = 0  # of the run, as this learner knows them

    def counts(self) -> LedgerCounts:
        """Return all counts at one instant: ledger, stream length and pending entries, read in one transaction.

        Raises:
            MemoryBackendError: A count is no whole number.
        """
        keys = self._run.keys
        fields, entries, pending = self._run.engine.transaction(
            [("HGETALL", keys.ledger), ("XLEN", keys.unrolls), ("XPENDING", keys.unrolls, GROUP)]
        )
        known = {
            name: checked_number(fields.get(name.encode()), f"{name} in the ledger of {keys.run_id}")
            for name in _FIELDS
        }
        return ledger_counts(known, entries, pending["pending"])

    def recover(self, used_unrolls: int, outcome: EntryOutcome = EntryOutcome.TRAINED) -> int:
        """Count new fail-overs, and make used less rolled_back the number of unrolls that the learner's state has.

        If more are used, it was after the checkpoint, and they are rolled back. If there are fewer, Redis has
        forgotten settlements, and counts these unrolls as produced and used again: those that it still holds
        come once more, and are dropped as duplicates.

        The run names the history of Redis' data that its fail-overs are counted up to, in the same transaction. So a
        learner that takes over counts one that its predecessor has not survived, and none is counted twice.

        Args:
            used_unrolls: Number of unrolls in the weights, or the replay memory, of a learner that takes over or goes
                on.
            outcome: What becomes of used unrolls in this run: trained or stored.

        Returns:
            Number of new fail-overs.

        Raises:
            FencedError: Another learner has taken over.
        """
        keys, engine = self._run.keys, self._run.engine
        seen = new = total = 0

        def prepare(replies: Sequence[Reply]) -> list[Command]:
            nonlocal seen, new, total
            what = f"a count in the ledger of {keys.run_id}"
            trained, stored, rolled_back, counted = (checked_number(value, what) for value in replies[0])
            recorded = (replies[1] or b"").decode(errors="replace")
            seen = engine.failovers
            new = int(not engine.goes_on_from(recorded)) if self._counted is None else seen - self._counted
            total = max(counted, self.failovers) + new  # a second one may take the count of the first away
            excess = trained + stored - rolled_back - used_unrolls
            forgotten = max(-excess, 0)
            counts = {"produced": forgotten, outcome.field: forgotten, "rolled_back": max(excess, 0)}
            increments = increment_commands(keys, {**counts, "failovers": total - counted})
            named: list[Command] = [("HSET", keys.run, "history", engine.history)]
            return [*increments, *([] if engine.history == recorded else named)]

        reads: list[Command] = [
            ("HMGET", keys.ledger, "trained", "stored", "rolled_back", "failovers"),
            ("HGET", keys.run, "history"),
        ]
        self._run.fenced(prepare, "counting the unrolls in the weights", reads)
        self._counted, self.failovers = seen, total
        return new
