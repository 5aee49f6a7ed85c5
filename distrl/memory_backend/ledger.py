"""Counts that change in the same transaction as the events they count.

What changes a field, and who does it:

    produced                      an unroll is pushed; a gap in the sequences is found    actor; learner
    stream_entries, stream_bytes  an unroll is pushed; such an entry is acknowledged      actor; learner
    pushed_bytes                  an unroll is pushed                                     actor
    foreign                       an entry is acknowledged that no actor produced         learner
    trained, dropped.<reason>     an entry is acknowledged                                learner
    lost                          a gap in the sequences is found                         learner
    rolled_back                   a learner resumes from a checkpoint                     learner
"""

from collections.abc import Mapping

from distrl.memory_backend.backend import DROP_REASONS, Ledger, LedgerCounts
from distrl.memory_backend.keys import GROUP, RunKeys, checked_number
from distrl.memory_backend.redis_client import RedisClient
from distrl.memory_backend.resp import Command

_EVENTS = frozenset({"produced", "foreign", "trained", "lost", *(f"dropped.{reason}" for reason in DROP_REASONS)})
_FIELDS = _EVENTS | {"stream_entries", "stream_bytes", "pushed_bytes", "rolled_back"}


def checked_increments(counts: Mapping[str, int]) -> dict[str, int]:
    """The non-zero increments of an acknowledgement.

    Raises:
        ValueError: A field that is not in the ledger, or a negative increment.
    """
    for name, increment in counts.items():
        if name not in _EVENTS or increment < 0:
            raise ValueError(f"the ledger takes non-negative increments of {sorted(_EVENTS)}, not {name}: {increment}")
    return {name: increment for name, increment in counts.items() if increment}


def rejected_increments(reason: str, counts: Mapping[str, int]) -> dict[str, int]:
    """The increments of a rejection: `dropped.<reason>` and what else `counts` says."""
    return checked_increments({f"dropped.{reason}": 1, **counts})


def increment_commands(keys: RunKeys, counts: Mapping[str, int]) -> list[Command]:
    """The commands that add `counts` to the ledger."""
    return [("HINCRBY", keys.ledger, name, increment) for name, increment in counts.items() if increment]


def ledger_counts(fields: Mapping[str, int], entries: int, in_flight: int) -> LedgerCounts:
    """Puts the ledger's fields and the stream's state, read in one transaction, together.

    Entries beyond those that actors pushed are foreign from the moment they are in the stream, judged or not: a run may
    stop before its learner has seen them. Fewer entries than were pushed is no such excess and unbalances the ledger.
    """
    excess = max(entries - fields.get("stream_entries", 0), 0)
    return LedgerCounts(
        produced=fields.get("produced", 0),
        foreign=fields.get("foreign", 0) + excess,
        trained=fields.get("trained", 0),
        queued=entries - in_flight,
        in_flight=in_flight,
        dropped={reason: fields.get(f"dropped.{reason}", 0) for reason in DROP_REASONS},
        lost=fields.get("lost", 0),
        rolled_back=fields.get("rolled_back", 0),
        stream_bytes=fields.get("stream_bytes", 0),
        pushed_bytes=fields.get("pushed_bytes", 0),
    )


class RedisLedger(Ledger):
    """The ledger hash."""

    def __init__(self, client: RedisClient, keys: RunKeys) -> None:
        self._client = client
        self._keys = keys

    def counts(self) -> LedgerCounts:
        """Every count of one instant: ledger, stream length and pending entries are read in one transaction.

        Raises:
            MemoryBackendError: One is no whole number.
        """
        keys = self._keys
        fields, entries, pending = self._client.transaction(
            [("HGETALL", keys.ledger), ("XLEN", keys.unrolls), ("XPENDING", keys.unrolls, GROUP)]
        )
        known = {
            name: checked_number(fields.get(name.encode()), f"{name} in the ledger of {keys.run_id}")
            for name in _FIELDS
        }
        return ledger_counts(known, entries, pending["pending"])

    def roll_back(self, unrolls: int, fence: int) -> None:
        """Adds `unrolls` to `rolled_back`.

        Raises:
            FencedError: `fence` is not the newest.
        """
        commands = increment_commands(self._keys, {"rolled_back": unrolls})
        self._client.fenced(self._keys, fence, lambda _replies: commands, "counting what was rolled back")
