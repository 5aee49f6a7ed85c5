"""The in-memory twin of the Redis backend: the same behaviour in one process, for deterministic mode and tests.

One `InMemoryBackend` is the run itself, so all roles of the process share it; every method is atomic under one lock and
does what `backend` says. Stream entries are kept as their plain fields and parsed on their way out, as with Redis.
"""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from distrl.errors import FencedError, MemoryBackendError
from distrl.memory_backend.backend import (
    Admission,
    Backend,
    BestEvaluation,
    Control,
    Entry,
    Evaluation,
    Ledger,
    LedgerCounts,
    Producer,
    Published,
    QueueCaps,
    Registry,
    RoleStatus,
    TicketBox,
    UnrollStream,
    WeightStore,
)
from distrl.memory_backend.keys import RunKeys, entry_fields, entry_header
from distrl.memory_backend.ledger import checked_increments, ledger_counts, rejected_increments
from distrl.memory_backend.registry import EVALUATIONS, SNAPSHOTS, newest_evaluator
from distrl.memory_backend.stream import DEAD_ENTRIES, dead_fields, has_room, pushed_among, released
from distrl.memory_backend.weights import newer
from distrl.types import PolicyBundle, UnrollHeader


class _Run:
    """What Redis would hold. `changed` is the one lock, notified where somebody may be waiting."""

    def __init__(self, caps: QueueCaps) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.caps = caps
        self.config: str | None = None
        self.fence = 0
        self.last_id = 0
        self.queue: deque[tuple[int, dict[bytes, bytes]]] = deque()
        self.pending: dict[int, dict[bytes, bytes]] = {}  # in order of ids
        self.suspects: Counter[str] = Counter()
        self.dead: deque[dict[str, str | bytes | int]] = deque(maxlen=DEAD_ENTRIES)
        self.ledger: Counter[str] = Counter()
        self.highest: dict[Producer, int] = {}
        self.weights: Published | None = None
        self.bundle: PolicyBundle | None = None
        self.free_tickets = 0
        self.held_tickets: Counter[Producer] = Counter()
        self.incarnations: Counter[int] = Counter()
        self.statuses: dict[tuple[str, int], RoleStatus] = {}
        self.control = Control()
        self.snapshots: deque[tuple[int, str]] = deque(maxlen=SNAPSHOTS)
        self.evaluator_incarnation = 0
        self.evaluations: deque[tuple[int, Evaluation]] = deque(maxlen=EVALUATIONS)
        self.best_evaluation: BestEvaluation | None = None
        self.evaluated_env_steps = 0

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def append(self, fields: dict[bytes, bytes]) -> int:
        """XADD."""
        with self.changed:
            number = self.next_id()
            self.queue.append((number, fields))
            self.changed.notify_all()
            return number

    def check_fence(self, fence: int, what: str) -> None:
        if fence != self.fence:
            raise FencedError(f"{what}: another learner runs this (token {self.fence}, ours {fence}); stop this one")

    def wait_for(self, ready: Callable[[], bool], block_s: float) -> bool:
        """Waits under the lock until `ready`, at most `block_s` seconds."""
        deadline = time.monotonic() + block_s
        while not ready():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self.changed.wait(left_s)
        return True


class InMemoryUnrollStream(UnrollStream):
    """A queue and what was taken from it."""

    interruptions = 0

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._newest_pushed: int | None = None

    def admission(self) -> Admission:
        run = self._run
        with run.changed:
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
            later = [item for item in run.pending.items() if item[0] > _number(after)]
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
                run.pending.pop(_number(entry.entry_id), None)
            for producer, sequence in highest.items():
                run.highest[producer] = max(sequence, run.highest.get(producer, sequence))

    def reject(self, entry: Entry, reason: str, fence: int, counts: Mapping[str, int]) -> None:
        with self._run.changed:
            self.acknowledge([entry], fence, rejected_increments(reason, counts), {})
            self._run.dead.append(dead_fields(entry, reason))

    def highest(self) -> dict[Producer, int]:
        with self._run.changed:
            return dict(self._run.highest)


class InMemoryWeightStore(WeightStore):
    """One version and one bundle."""

    def __init__(self, run: _Run) -> None:
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

    def __init__(self, run: _Run) -> None:
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


class InMemoryRegistry(Registry):
    """Heartbeats, incarnations, control, snapshots and evaluations."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def register_actor(self, actor: int) -> int:
        with self._run.changed:
            self._run.incarnations[actor] += 1
            return self._run.incarnations[actor]

    def register_evaluator(self) -> int:
        with self._run.changed:
            self._run.evaluator_incarnation += 1
            return self._run.evaluator_incarnation

    def evaluator_incarnation(self) -> int:
        with self._run.changed:
            return self._run.evaluator_incarnation

    def is_registered(self, producer: Producer) -> bool:
        with self._run.changed:
            return 1 <= producer[1] <= self._run.incarnations[producer[0]]

    def beat(self, status: RoleStatus) -> None:
        with self._run.changed:
            self._run.statuses[status.role, status.id] = status

    def roles(self) -> list[RoleStatus]:
        with self._run.changed:
            return [status for _key, status in sorted(self._run.statuses.items())]

    def forget_actor(self, actor: int) -> None:
        with self._run.changed:
            self._run.statuses.pop(("actor", actor), None)

    def control(self) -> Control:
        with self._run.changed:
            return self._run.control

    def set_control(
        self,
        *,
        paused: bool | None = None,
        stop: str | None = None,
        target_actors: int | None = None,
        stacks: bool | None = None,
    ) -> None:
        with self._run.changed:
            now = self._run.control
            self._run.control = Control(
                paused=now.paused if paused is None else paused,
                stop=now.stop if stop is None else stop,
                target_actors=now.target_actors if target_actors is None else target_actors,
                stacks=now.stacks if stacks is None else stacks,
            )

    def add_snapshot(self, snapshot: Mapping[str, float | int | str | None]) -> None:
        with self._run.changed:
            self._run.snapshots.append((self._run.next_id(), json.dumps(dict(snapshot))))

    def snapshots(self, after: str) -> list[tuple[str, dict[str, float | int | str | None]]]:
        with self._run.changed:
            kept = [item for item in self._run.snapshots if item[0] > _number(after)]
        return [(f"{number}-0", json.loads(text)) for number, text in kept]

    def add_evaluation(self, evaluation: Evaluation, weights: bytes, incarnation: int) -> None:
        run = self._run
        with run.changed:
            newest_evaluator(incarnation, run.evaluator_incarnation)
            run.evaluations.append((run.next_id(), evaluation))
            run.evaluated_env_steps = evaluation.env_steps
            best = run.best_evaluation
            if best is None or evaluation.mean_return > best.evaluation.mean_return:
                run.best_evaluation = BestEvaluation(evaluation, weights)

    def evaluations(self, after: str) -> list[tuple[str, Evaluation]]:
        with self._run.changed:
            return [(f"{number}-0", each) for number, each in self._run.evaluations if number > _number(after)]

    def best_evaluation(self) -> BestEvaluation | None:
        with self._run.changed:
            return self._run.best_evaluation

    def restore_evaluated(self, env_steps: int) -> None:
        with self._run.changed:
            self._run.evaluated_env_steps = max(self._run.evaluated_env_steps, env_steps)

    def evaluated_env_steps(self) -> int:
        with self._run.changed:
            return self._run.evaluated_env_steps


class InMemoryLedger(Ledger):
    """A counter."""

    def __init__(self, run: _Run) -> None:
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
        self._attach(_Run(caps))

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
        self._attach(_Run(self._caps))

    def close(self) -> None:
        """Nothing to close: the run stays until the process ends."""

    def _attach(self, run: _Run) -> None:
        self._run = run
        self.unrolls = InMemoryUnrollStream(run)
        self.weights = InMemoryWeightStore(run)
        self.tickets = InMemoryTicketBox(run)
        self.registry = InMemoryRegistry(run)
        self.ledger = InMemoryLedger(run)


def _entry(number: int, fields: dict[bytes, bytes]) -> Entry:
    return Entry(f"{number}-0", entry_header(fields), fields.get(b"payload", b""))


def _number(entry_id: str) -> int:
    return int(entry_id.split("-")[0])
