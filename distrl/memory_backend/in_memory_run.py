"""What Redis would hold of a run, in this process, under one lock: for the parts of the in-memory twin."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from distrl.errors import FencedError
from distrl.memory_backend.backend import Published, QueueCaps
from distrl.memory_backend.registry import EVALUATIONS, REQUESTS, SNAPSHOTS
from distrl.memory_backend.registry_interface import (
    BestEvaluation,
    Control,
    Evaluation,
    Producer,
    Request,
    RoleStatus,
)
from distrl.memory_backend.stream import DEAD_ENTRIES
from distrl.types import PolicyBundle


class Run:
    """What Redis would hold. `changed` is the one lock, notified where somebody may be waiting."""

    def __init__(self, caps: QueueCaps) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.caps = caps
        self.config: str | None = None
        self.fence = 0
        self.last_id = 0
        self.queue: deque[tuple[int, dict[bytes, bytes]]] = deque()
        self.pending: dict[int, dict[bytes, bytes]] = {}  # in order of ids
        self.room = 0  # tokens for actors that wait
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
        self.requests: deque[tuple[int, Request]] = deque(maxlen=REQUESTS)
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


def number_of(entry_id: str) -> int:
    """The number in an id that `Run.next_id` gave, or in one that a caller asks after."""
    return int(entry_id.split("-")[0])
