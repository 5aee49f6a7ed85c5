"""Synchronous rounds of gradient actors with a time-out: one gradient of every worker makes one update.

A round begins with the first gradient of its version. It is over when every expected worker has answered, or
`learner.sync_timeout_s` later with those that have. A worker that missed a round is not expected in the next ones until
it answers again: a dead worker costs the run one time-out, not one in every round. Its replacement has the same id; its
first gradient may still come too late for its round, and the round after that waits for it.

An actor that joins from another host is expected from its first gradient until it misses a round: it may have left.
The last gradient of an actor that was retired is used, and no round waits for another one.
"""

import logging
import time
from collections.abc import Callable

from distrl.errors import NonFiniteError
from distrl.learner.batches import LearnerBatch
from distrl.learner.intake import Intake, Judged
from distrl.memory_backend.records import Control
from distrl.types import Contribution, UnrollHeader

log = logging.getLogger(__name__)
LOOK_EVERY_S = 0.5
"""Seconds between two reads of the target number of actors."""


class Rounds:
    """The members of the current round, and whether it is over.

    Args:
        workers: Number of actors that the supervisor starts; operators may request another one, unless it is 0.
        control: Reads the requests of operators.
        timeout_s: Time-out from a round's first answer on.
    """

    def __init__(
        self,
        workers: int,
        control: Callable[[], Control],
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control = control
        self._timeout_s = timeout_s
        self._clock = clock
        self._initial = workers
        self._own = set(range(workers))
        self._most = workers  # that the supervisor has started so far
        self._joined: set[int] = set()
        self._absent: set[int] = set()
        self._late: set[int] = set()  # those of them that kept a round waiting in vain
        self._looked_at = float("-inf")
        self._version = 0
        self._began: float | None = None
        self._taken: set[int] = set()
        self._refused: dict[int, str] = {}

    def begin(self, version: int) -> None:
        """Begin the round for gradients of `version`."""
        self._version = version
        self._began = None
        self._taken = set()
        self._refused = {}

    def takes(self, header: UnrollHeader) -> bool:
        """Return whether the round lacks this actor's gradient; from now on rounds expect the actor again."""
        if header.actor not in self._expected:
            self._looked_at = float("-inf")
            self._look()
        if header.actor not in self._own and header.actor >= self._most:
            self._joined.add(header.actor)
        if header.actor in self._absent:
            self._absent.remove(header.actor)
            how = "is back: rounds wait for it again" if header.actor in self._late else "has joined the rounds"
            log.info("actor %d %s", header.actor, how)
            self._late.discard(header.actor)
        return header.actor not in self._taken or header.weights_version < self._version

    def taken(self, header: UnrollHeader) -> None:
        """Record that the actor's gradient is in the round."""
        self._taken.add(header.actor)
        self._refused.pop(header.actor, None)
        self._began = self._began if self._began is not None else self._clock()

    def refused(self, header: UnrollHeader, reason: str) -> None:
        """Record that the actor's gradient was unusable; the actor may send another one after its time-out."""
        self._refused[header.actor] = reason
        self._began = self._began if self._began is not None else self._clock()

    @property
    def _expected(self) -> set[int]:
        return self._own | self._joined

    @property
    def missing(self) -> list[int]:
        """Actors of the run without a gradient in the round."""
        return sorted(self._expected - self._taken)

    def is_over(self) -> bool:
        """Return whether all expected actors have answered, or the time-out has passed.

        Raises:
            NonFiniteError: The round is over and empty.
        """
        if self._began is None:
            return False
        self._look()
        waited_for = self._expected - self._absent - self._taken - self._refused.keys()
        late = self._clock() - self._began >= self._timeout_s
        if waited_for and not late:
            return False
        if waited_for:
            log.warning(
                "the round of version %d goes on without %s: no gradient within %g s (learner.sync_timeout_s)",
                self._version,
                names(sorted(waited_for)),
                self._timeout_s,
            )
            self._joined -= waited_for
            self._absent |= waited_for & self._own
            self._late |= waited_for & self._own
        for actor, reason in self._refused.items():
            log.warning("the round of version %d goes on without actor %d: %s", self._version, actor, reason)
        if not self._taken:
            reasons = ", ".join(sorted(set(self._refused.values())))
            raise NonFiniteError(f"no gradient of version {self._version} could be used: {reasons}")
        return True

    def _look(self) -> None:
        """Read the target number of actors. The time-out starts anew after a pause."""
        now = self._clock()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        control = self._control()
        asked = control.target_actors if self._initial else None
        workers = self._initial if asked is None else asked
        # Added actors are expected from their first gradient on; until then they start.
        self._absent |= set(range(workers)) - self._own
        self._own, self._most = set(range(workers)), max(self._most, workers)
        self._absent &= self._own
        self._joined -= self._own
        if control.paused:
            self._began = now


class RoundBatches:
    """Collects one gradient of every worker for each batch.

    Args:
        intake: Drops gradients of an older version, and second gradients of an actor in one round.
    """

    def __init__(self, intake: Intake, rounds: Rounds, stop: Callable[[], bool]) -> None:
        self._intake = intake
        self._rounds = rounds
        self._stop = stop

    def collect(self) -> LearnerBatch | None:
        """Block until a round is over; return None if a stop was requested before.

        Raises:
            NonFiniteError: No gradient of the round could be used, so no actor would ever continue.
        """
        taken: list[Judged] = []
        self._rounds.begin(self._intake.version)
        while not self._rounds.is_over():
            judged = self._intake.take()
            if judged is None:
                if self._stop():
                    return None
            elif judged.item is not None:
                self._rounds.taken(judged.item.header)
                taken.append(judged)
            elif judged.refused is not None and judged.entry.header is not None:
                self._rounds.refused(judged.entry.header, judged.refused)
        items = [judged.item for judged in taken if isinstance(judged.item, Contribution)]
        made = LearnerBatch(
            batch=tuple(items),
            lags_updates=[self._intake.version - item.header.weights_version for item in items],
            receipts=(self._intake.receipt(taken, items),),
            missing=self._rounds.missing,
        )
        self._intake.version += 1
        return made


def names(actors: list[int]) -> str:
    """ "actor 1, actor 3"."""
    return ", ".join(f"actor {actor}" for actor in actors)
