"""Counts that change in the same transaction as the events they count.

The events that change each field, and the role that does it:

    produced                      an unroll is pushed; a gap in the sequences is found    actor; learner
    stream_entries, stream_bytes  an unroll is pushed; such an entry is acknowledged      actor; learner
    pushed_bytes                  an unroll is pushed                                     actor
    foreign                       an entry is acknowledged that no actor produced         learner
    trained, dropped.<reason>     an entry is acknowledged                                learner
    lost                          a gap in the sequences is found                         learner
    rolled_back                   a learner resumes from a checkpoint                     learner
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from distrl.memory_backend.engine import Command, RunStore
from distrl.memory_backend.keys import GROUP, RunKeys, checked_number

DROP_REASONS = ("stale", "duplicate", "decode", "schema", "nonfinite", "poison")
_EVENTS = frozenset({"produced", "foreign", "trained", "lost", *(f"dropped.{reason}" for reason in DROP_REASONS)})
_FIELDS = _EVENTS | {"stream_entries", "stream_bytes", "pushed_bytes", "rolled_back"}


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """Counts of the run's unrolls by where they are. The conservation law is `imbalance == 0`."""

    produced: int = 0
    foreign: int = 0  # entries that no actor of the run produced
    trained: int = 0
    queued: int = 0  # in the stream, not yet taken
    in_flight: int = 0  # taken, not acknowledged
    dropped: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(DROP_REASONS, 0))
    lost: int = 0  # sequence gaps after a Redis failure
    rolled_back: int = 0  # trained after the newest checkpoint when a learner died; shown apart
    stream_bytes: int = 0  # payload bytes in the stream now
    pushed_bytes: int = 0  # payload bytes ever pushed

    @property
    def imbalance(self) -> int:
        """produced + foreign - (trained + queued + in_flight + dropped + lost); 0: all accounted for."""
        arrived = self.produced + self.foreign
        return arrived - self.trained - self.queued - self.in_flight - sum(self.dropped.values()) - self.lost


def checked_increments(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the non-zero increments of an acknowledgement.

    Raises:
        ValueError: A field that is not in the ledger, or a negative increment.
    """
    for name, increment in counts.items():
        if name not in _EVENTS or increment < 0:
            raise ValueError(f"the ledger takes non-negative increments of {sorted(_EVENTS)}, not {name}: {increment}")
    return {name: increment for name, increment in counts.items() if increment}


def increment_commands(keys: RunKeys, counts: Mapping[str, int]) -> list[Command]:
    """Return the commands that add `counts` to the ledger."""
    return [("HINCRBY", keys.ledger, name, increment) for name, increment in counts.items() if increment]


def ledger_counts(fields: Mapping[str, int], entries: int, in_flight: int) -> LedgerCounts:
    """Combine the ledger's fields and the stream's state, read in one transaction.

    Entries beyond those that actors pushed count as foreign as soon as they are in the stream: a run may stop before
    its learner has judged them. Fewer entries than were pushed unbalance the ledger.
    """
    excess = max(entries - fields.get("stream_entries", 0), 0)
    names = ("produced", "trained", "lost", "rolled_back", "stream_bytes", "pushed_bytes")
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

    def roll_back(self, unrolls: int) -> None:
        """Count unrolls that were trained after the checkpoint from which a learner resumes.

        Raises:
            FencedError: Another learner has taken over.
        """
        commands = increment_commands(self._run.keys, {"rolled_back": unrolls})
        self._run.fenced(lambda _replies: commands, "counting what was rolled back")
