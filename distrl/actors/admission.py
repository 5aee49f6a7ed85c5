"""Admission: an actor waits between two unrolls until the next one may start."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from distrl.config import RunConfig
from distrl.errors import FencedError
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import Producer
from distrl.memory_backend.stream import Admission
from distrl.metrics.counters import Waits
from distrl.types import UnrollHeader

log = logging.getLogger(__name__)
POLL_S = 0.0005
LONGEST_POLL_S = 0.1
REMOVALS = ("waiting: room", "waiting: round")
"""Waits that end when the learner removes entries from the stream; Redis wakes the actor then."""
FOR_THE_LEARNER = ("waiting: room", "waiting: round", "waiting: ticket")
"""Waits that the learner ends."""
LOOKS = 0.1
"""Interval between two checks for a lost push, as a share of `learner.sync_timeout_s`."""


@dataclass
class ActorProgress:
    """State that the heartbeat reads while the actor works; written by the actor's thread alone."""

    state: str = "starting"
    env_steps: int = 0
    last_step_at: float = 0.0  # monotonic seconds

    def acts(self) -> None:
        """Note that an unroll begins."""
        self.last_step_at = time.monotonic()  # before the state: a heartbeat in between would be of a hung actor
        self.state = "acting"


class Gate:
    """Opens when there are weights, room in the stream, a new round, and a ticket if staleness is bounded.

    Attributes:
        waits: Time spent waiting, by the states of `progress`.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        producer: Producer,
        stop: Callable[[], bool],
        progress: ActorProgress,
    ) -> None:
        self._backend = backend
        self._producer = producer
        self._stop = stop
        self._progress = progress
        self._needs_ticket = config.algorithm.max_staleness_updates is not None
        self._in_rounds = config.algorithm.rounds
        self._sync_timeout_s = config.learner.sync_timeout_s
        self._newest: UnrollHeader | None = None  # of the newest push
        self._look_at = 0.0  # monotonic seconds from when on to check whether it was lost
        self.waits = Waits()

    def pushed(self, header: UnrollHeader) -> None:
        """Record the newest push."""
        self._newest = header
        self._look_at = time.monotonic() + self._sync_timeout_s

    def wait(self, admission: Admission) -> Admission | None:
        """Wait until the next unroll may start; return the newest admission, or None when stopped."""
        pause_s = POLL_S
        while not (self._stop() or admission.stop):
            obstacle = self._obstacle(admission)
            if obstacle is None and not self._needs_ticket:
                return admission
            self._progress.state = obstacle or "waiting: ticket"
            with self.waits.measure(self._progress.state):
                told = obstacle in REMOVALS
                if obstacle is not None and not told:
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_POLL_S)
                taken = obstacle is None and self._backend.tickets.take(self._producer, block_s=1.0)
                # After a ticket as well: the version may have moved, and the ticket promises the newest one.
                try:
                    admission = self._backend.unrolls.admission(LONGEST_POLL_S if told else 0.0)
                except FencedError:  # the run was launched again: so the ticket is of the later launch
                    if taken:
                        self._backend.tickets.give_back(self._producer)
                    raise
            if taken:
                return admission
        return None

    def opens(self, admission: Admission) -> bool:
        """Return whether the next unroll may start, without waiting; it then holds its ticket, if it needs one."""
        obstacle = "stopping" if self._stop() or admission.stop else self._obstacle(admission)
        if obstacle is None and self._needs_ticket and not self._backend.tickets.take(self._producer, block_s=0.0):
            obstacle = "waiting: ticket"
        if obstacle is not None:
            self._progress.state = obstacle
        return obstacle is None

    def _obstacle(self, admission: Admission) -> str | None:
        """Return the state that keeps the next unroll from starting; None if it may start."""
        if admission.paused:
            return "paused"
        if admission.weights_version == 0:  # before the first ones, or Redis has lost them and the learner has them
            return "waiting: weights"
        if self._in_rounds and admission.weights_version == self._shipped_version and not self._was_lost():
            return "waiting: round"
        if not admission.has_room:
            return "waiting: room"
        return None

    @property
    def _shipped_version(self) -> int:
        """Version of the weights behind the newest push; 0 before the first."""
        return 0 if self._newest is None else self._newest.weights_version

    def _was_lost(self) -> bool:
        """Return whether the newest push is lost, so that its round needs another one.

        First checked `learner.sync_timeout_s` after the push. The learner acknowledges a round after it has published
        the new version. So a push that has left the stream under the same version was refused, or Redis lost it.
        """
        now = time.monotonic()
        if self._newest is None or now < self._look_at:
            return False
        self._look_at = now + LOOKS * self._sync_timeout_s
        # Read the version after the stream: it may have moved since admission.
        if self._backend.unrolls.holds_newest_push() or self._backend.weights.version() != self._shipped_version:
            return False
        log.warning(
            "the gradient of version %d is gone or was refused, and no newer version came within %g s "
            "(learner.sync_timeout_s): contributing again",
            self._shipped_version,
            self._sync_timeout_s,
        )
        return True
