"""The in-memory twin of the Redis backend: the same behaviour in one process, for deterministic mode and tests.

One `InMemoryBackend` is the run itself, so all roles of the process share it; every method is atomic under one lock and
does what `backend` says. Stream entries are kept as their plain fields and parsed on their way out, as with Redis.
"""

from collections.abc import Mapping, Sequence

from distrl.errors import MemoryBackendError
from distrl.memory_backend.backend import (
    Admission,
    Backend,
    Entry,
    Ledger,
    LedgerCounts,
    Published,
    QueueCaps,
    TicketBox,
    UnrollStream,
    WeightStore,
)
from distrl.memory_backend.in_memory_registry import InMemoryRegistry
from distrl.memory_backend.in_memory_run import Run, number_of
from distrl.memory_backend.keys import RunKeys, entry_fields, entry_header
from distrl.memory_backend.ledger import checked_increments, ledger_counts, rejected_increments
from distrl.memory_backend.registry_interface import Producer
from distrl.memory_backend.stream import dead_fields, has_room, pushed_among, released
from distrl.memory_backend.weights import newer
from distrl.types import PolicyBundle, UnrollHeader


class InMemoryUnrollStream(UnrollStream):
    """A queue and what was taken from it."""

    interruptions = 0

    def __init__(self, run: Run) -> None:
        self._run = run
        self._newest_pushed: int | None = None

    def admission(self, block_s: float = 0.0) -> Admission:
        run = self._run
        with run.changed:
            if block_s and run.wait_for(lambda: run.room > 0, block_s):
                run.room -= 1
            return Admission(
                has_room=has_room(run.caps, len(run.queue) + len(run.pending), run.ledger["stream_bytes"]),
                weights_version=run.weights.version if run.weights else 0,
                paused=run.control.paused,
                stop=run.control.stop is not None,
            )

    def push(self, header: UnrollHeader, payload: bytes) -> Admission:
        run = self._run
        with run.changed:
            self._newest_pushed = run.append(entry_fields(header, payload))
            run.held_tickets.pop(header.producer, None)
            run.ledger.update(produced=1, pushed_bytes=len(payload), stream_entries=1, stream_bytes=len(payload))
            return self.admission()

    def holds_newest_push(self) -> bool:
        run = self._run
        with run.changed:
            return self._newest_pushed in run.pending or any(self._newest_pushed == number for number, _ in run.queue)

    def take(self, count: int, block_s: float) -> list[Entry]:
        run = self._run
        with run.changed:
            run.wait_for(lambda: bool(run.queue), block_s)
            taken = [run.queue.popleft() for _ in range(min(count, len(run.queue)))]
            run.pending.update(taken)
            return [_entry(number, fields) for number, fields in taken]

    def unacknowledged(self, after: str, count: int) -> list[Entry]:
        run = self._run
        with run.changed:
            later = [item for item in run.pending.items() if item[0] > number_of(after)]
            return [_entry(number, fields) for number, fields in later[:count]]

    def suspect(self, entry_id: str) -> int:
        with self._run.changed:
            self._run.suspects[entry_id] += 1
            return self._run.suspects[entry_id]

    def absolve(self, entry_id: str) -> None:
        with self._run.changed:
            self._run.suspects.pop(entry_id, None)

    def acknowledge(
        self, entries: Sequence[Entry], fence: int, counts: Mapping[str, int], highest: Mapping[Producer, int]
    ) -> None:
        increments = checked_increments(counts)
        run = self._run
        with run.changed:
            run.check_fence(fence, "acknowledging unrolls")
            producers = {entry.header.producer for entry in entries if entry.header is not None}
            registered = {producer for producer in producers if 1 <= producer[1] <= run.incarnations[producer[0]]}
            run.ledger.update(increments)
            run.ledger.update(released(pushed_among(entries, increments.get("foreign", 0), registered)))
            for entry in entries:
                run.pending.pop(number_of(entry.entry_id), None)
            if entries:
                run.room = len(entries)
                run.changed.notify_all()
            for producer, sequence in highest.items():
                run.highest[producer] = max(sequence, run.highest.get(producer, sequence))

    def reject(self, entry: Entry, reason: str, fence: int, counts: Mapping[str, int]) -> None:
        with self._run.changed:
            self.acknowledge([entry], fence, rejected_increments(reason, counts), {})
            self._run.dead.append(dead_fields(entry, reason))

    def uncounted(self) -> int:
        run = self._run
        with run.changed:
            return max(len(run.queue) + len(run.pending) - run.ledger["stream_entries"], 0)

    def highest(self) -> dict[Producer, int]:
        with self._run.changed:
            return dict(self._run.highest)


class InMemoryWeightStore(WeightStore):
    """One version and one bundle."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def publish(self, version: int, blob: bytes, env_steps: int, fence: int) -> None:
        with self._run.changed:
            self._run.check_fence(fence, "publishing weights")
            self._run.weights = Published(newer(version, self.version()), blob, env_steps)

    def version(self) -> int:
        with self._run.changed:
            return self._run.weights.version if self._run.weights else 0

    def env_steps(self) -> int:
        with self._run.changed:
            return self._run.weights.env_steps if self._run.weights else 0

    def fetch(self) -> Published | None:
        with self._run.changed:
            return self._run.weights

    def put_bundle(self, bundle: PolicyBundle) -> None:
        with self._run.changed:
            self._run.bundle = bundle

    def get_bundle(self) -> PolicyBundle | None:
        with self._run.changed:
            return self._run.bundle


class InMemoryTicketBox(TicketBox):
    """Counts of free and held tickets."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def issue(self, count: int, fence: int) -> None:
        with self._run.changed:
            self._run.check_fence(fence, "issuing tickets")
            self._run.free_tickets += count
            self._run.changed.notify_all()

    def take(self, producer: Producer, block_s: float) -> bool:
        run = self._run
        with run.changed:
            if not run.wait_for(lambda: run.free_tickets > 0, block_s):
                return False
            run.free_tickets -= 1
            run.held_tickets[producer] += 1
            return True

    def reclaim(self, producer: Producer) -> int:
        run = self._run
        with run.changed:
            count = run.held_tickets.pop(producer, 0)
            run.free_tickets += count
            run.changed.notify_all()
            return count

    def counts(self) -> tuple[int, int]:
        with self._run.changed:
            return self._run.free_tickets, self._run.held_tickets.total()


class InMemoryLedger(Ledger):
    """A counter."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def counts(self) -> LedgerCounts:
        run = self._run
        with run.changed:
            return ledger_counts(run.ledger, len(run.queue) + len(run.pending), len(run.pending))

    def roll_back(self, unrolls: int, fence: int) -> None:
        with self._run.changed:
            self._run.check_fence(fence, "counting what was rolled back")
            self._run.ledger["rolled_back"] += unrolls


class InMemoryBackend(Backend):
    """A run that lives and dies with the process."""

    def __init__(self, run_id: str, caps: QueueCaps) -> None:
        self._run_id = RunKeys(run_id).run_id
        self._caps = caps
        self._attach(Run(caps))

    def create(self, config_json: str) -> None:
        """Raises MemoryBackendError if the run exists."""
        with self._run.changed:
            if self._run.config is not None:
                raise MemoryBackendError(f"run {self._run_id} exists already in this process; choose another run id")
            self._run.config = config_json

    def config_json(self) -> str:
        """Raises MemoryBackendError before `create`."""
        with self._run.changed:
            if self._run.config is None:
                raise MemoryBackendError(f"no run {self._run_id} in this process; create it first")
            return self._run.config

    def acquire_fence(self) -> int:
        with self._run.changed:
            self._run.fence += 1
            return self._run.fence

    def delete(self) -> None:
        """Forgets the run; the object can create it anew."""
        self._attach(Run(self._caps))

    def close(self) -> None:
        """Nothing to close: the run stays until the process ends."""

    def _attach(self, run: Run) -> None:
        self._run = run
        self.unrolls = InMemoryUnrollStream(run)
        self.weights = InMemoryWeightStore(run)
        self.tickets = InMemoryTicketBox(run)
        self.registry = InMemoryRegistry(run)
        self.ledger = InMemoryLedger(run)


def _entry(number: int, fields: dict[bytes, bytes]) -> Entry:
    return Entry(f"{number}-0", entry_header(fields), fields.get(b"payload", b""))
