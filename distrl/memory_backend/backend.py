"""The memory backend as roles see it: five nouns, each with a few verbs. Redis and the in-memory twin implement it.

One `Backend` object belongs to one run and one thread of one role. Actors push unrolls and pull weights; the learner
takes unrolls, acknowledges them after use and publishes weights; the supervisor reads the registry and the ledger.

Every method raises `MemoryBackendError` when Redis stays unreachable for `memory.give_up_s`.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from distrl.config import RunConfig
from distrl.memory_backend.registry_interface import Producer, Registry
from distrl.types import PolicyBundle, UnrollHeader

DROP_REASONS = ("stale", "duplicate", "decode", "schema", "nonfinite", "poison")


@dataclass(frozen=True, slots=True)
class Admission:
    """What a producer learns in one round trip, before it starts the next unroll."""

    has_room: bool  # the stream is below both caps
    weights_version: int  # newest published; 0 before the first
    paused: bool
    stop: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the stream as the learner takes it. `header` is None when the plain fields are not a header."""

    entry_id: str
    header: UnrollHeader | None
    payload: bytes


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """Where every unroll of the run is. The conservation law is `imbalance == 0`."""

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


class UnrollStream(ABC):
    """Unrolls on their way to the learner; bounded by admission at the producer, never trimmed."""

    @property
    @abstractmethod
    def interruptions(self) -> int:
        """How often the connection has broken so far; each time, Redis may have forgotten what it was told last."""

    @abstractmethod
    def admission(self, block_s: float = 0.0) -> Admission:
        """Return what a producer must know: at once, or when the learner has removed entries, or `block_s` later."""

    @abstractmethod
    def push(self, header: UnrollHeader, payload: bytes) -> Admission:
        """Appends and counts `produced` atomically, releasing the producer's ticket; returns the admission after it."""

    @abstractmethod
    def holds_newest_push(self) -> bool:
        """Whether the newest push of this stream object is still in the stream, queued or in flight."""

    @abstractmethod
    def take(self, count: int, block_s: float) -> list[Entry]:
        """Up to `count` new entries in order; empty after `block_s` seconds without one. They are then in flight."""

    @abstractmethod
    def unacknowledged(self, after: str, count: int) -> list[Entry]:
        """Up to `count` entries that an earlier learner took and did not acknowledge, with ids greater than `after`."""

    @abstractmethod
    def suspect(self, entry_id: str) -> int:
        """Notes that an entry which a predecessor left is about to be decoded; how often that was so, now included.

        Not fenced.
        """

    @abstractmethod
    def absolve(self, entry_id: str) -> None:
        """It has been decoded, or refused: nobody has died of it."""

    @abstractmethod
    def acknowledge(
        self, entries: Sequence[Entry], fence: int, counts: Mapping[str, int], highest: Mapping[Producer, int]
    ) -> None:
        """Removes entries, adds `counts` to the ledger and records highest sequences, in one transaction.

        Args:
            counts: Ledger field -> increment: trained, foreign, lost, produced (for gaps), dropped.<reason>.
            highest: Producer -> highest sequence taken care of so far.

        Raises:
            FencedError: `fence` is not the newest; nothing was changed.
        """

    @abstractmethod
    def reject(self, entry: Entry, reason: str, fence: int, counts: Mapping[str, int]) -> None:
        """Acknowledges one entry and keeps its first 64 KiB, sha256 and the reason in `dead`, in one transaction."""

    @abstractmethod
    def uncounted(self) -> int:
        """Entries in the stream that no actor has counted as it pushed them: another program has put them there."""

    @abstractmethod
    def highest(self) -> dict[Producer, int]:
        """Highest sequence ever acknowledged per producer: what a restarted learner detects gaps against."""


class Published(NamedTuple):
    """The newest weights, read together.

    Attributes:
        env_steps: Valid environment steps that the learner had seen when it published them.
    """

    version: int
    blob: bytes
    env_steps: int


class WeightStore(ABC):
    """The newest weights, encoded once, and the policy bundle."""

    @abstractmethod
    def publish(self, version: int, blob: bytes, env_steps: int, fence: int) -> None:
        """Raises FencedError for an old fence and VersionError unless `version` is above the published one."""

    @abstractmethod
    def version(self) -> int:
        """Newest version; 0 before the first."""

    @abstractmethod
    def env_steps(self) -> int:
        """Environment steps behind the newest version; 0 before the first."""

    @abstractmethod
    def fetch(self) -> Published | None:
        """The newest weights; None before the first."""

    @abstractmethod
    def put_bundle(self, bundle: PolicyBundle) -> None: ...

    @abstractmethod
    def get_bundle(self) -> PolicyBundle | None:
        """Return the run's bundle, its sha256 checked; None before the learner has put it.

        Raises:
            MemoryBackendError: The run is gone, or the bundle does not have its sha256.
        """


class TicketBox(ABC):
    """Permissions to start an unroll, for finite staleness. A ticket held by a dead actor is never lost."""

    @abstractmethod
    def issue(self, count: int, fence: int) -> None: ...

    @abstractmethod
    def take(self, producer: Producer, block_s: float) -> bool:
        """Moves one ticket to the producer atomically; False after `block_s` seconds without one."""

    @abstractmethod
    def reclaim(self, producer: Producer) -> int:
        """Puts back what a dead producer holds; returns how many tickets that were."""

    @abstractmethod
    def counts(self) -> tuple[int, int]:
        """(free, held)."""


class Ledger(ABC):
    """Counts that change in the same transaction as the events they count."""

    @abstractmethod
    def counts(self) -> LedgerCounts: ...

    @abstractmethod
    def roll_back(self, unrolls: int, fence: int) -> None:
        """Counts unrolls that were trained after the checkpoint a restarted learner resumes from."""


@dataclass(frozen=True, slots=True)
class QueueCaps:
    """Bounds of the stream; producers wait at either.

    Attributes:
        batch: So many entries there is always room for, however large they are: the learner takes them together.
    """

    entries: int
    bytes: int
    batch: int = 1

    def held_at_most(self, producers: int) -> int:
        """Entries that the stream holds at most: each producer may have started an unroll before it was full."""
        return (0 if self.entries == sys.maxsize else self.entries) + max(producers, 1)

    @staticmethod
    def of(config: RunConfig) -> "QueueCaps":
        """`memory.queue_batches` batches or `memory.queue_bytes`, whichever comes first.

        In rounds of gradient actors nothing bounds but the rounds themselves: each actor has one gradient in the stream
        at most, and to let one wait for room would be to wait for ever for its round.
        """
        if config.in_rounds:
            return QueueCaps(sys.maxsize, sys.maxsize)
        batch = config.unrolls_at_once
        return QueueCaps(config.memory.queue_batches * batch, config.memory.queue_bytes, batch)


class Backend(ABC):
    """One run's memory. `create` makes the run, `acquire_fence` makes the caller its learner."""

    unrolls: UnrollStream
    weights: WeightStore
    tickets: TicketBox
    registry: Registry
    ledger: Ledger

    @abstractmethod
    def create(self, config_json: str) -> None:
        """Writes configuration, protocol version and the stream's consumer group. Raises if the run exists."""

    @abstractmethod
    def config_json(self) -> str:
        """The run's configuration. Raises MemoryBackendError for an unknown run or another protocol version."""

    @abstractmethod
    def acquire_fence(self) -> int:
        """A fencing token above all earlier ones: from now on only its holder may acknowledge and publish."""

    @abstractmethod
    def delete(self) -> None:
        """Removes every key of the run."""

    @abstractmethod
    def close(self) -> None: ...
