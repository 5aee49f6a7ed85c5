"""Puts back into Redis what a fail-over has taken away, from the learner's memory.

A promoted replica holds the run as it was at some moment: the newest transactions are missing, each as a whole. The
counts of the ledger agree there with everything else, so they still balance. The rest is put right by each part of the
learner that knows of it: entries in progress (`UnrollStream`, `Inbox`), unrolls that are missing and producers whose
registration is (`Intake`), settings (`OperatorRequests`), the learner's token (`RunStore.fenced`). Here are the policy
bundle, the published weights, the count of unrolls in the weights, and the tickets.
"""

import logging
from collections.abc import Callable

from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import Trained
from distrl.learner.learner import Learner
from distrl.memory_backend.backend import Backend
from distrl.types import PolicyBundle

log = logging.getLogger(__name__)
RECOUNTS = 16
"""Number of updates after which tickets are counted again: by then actors have used those that Redis had forgotten."""


class Recovery(Attendant):
    """Looks at the run in Redis whenever the learner's connection has broken.

    Args:
        bundle: The policy bundle of the run.
        recover_ledger: Brings the ledger in line with the learner's state; returns the number of new fail-overs.
        failed_over: Whether Redis has failed over before, and no learner has recovered from that.
    """

    def __init__(
        self,
        backend: Backend,
        learner: Learner,
        bundle: PolicyBundle,
        recover_ledger: Callable[[], int],
        *,
        failed_over: bool,
    ) -> None:
        self._backend, self._engine, self._learner = backend, backend.engine, learner
        self._bundle, self._recover_ledger, self._failed_over = bundle, recover_ledger, failed_over
        self._seen = (0, 0)  # interruptions and fail-overs of the connection that it has recovered from
        self._recounts = 0
        self._updates = 0

    def attend(self, trained: Trained | None) -> None:
        now = (self._engine.interruptions, self._engine.failovers)  # before it begins: the connection may break again
        if now != self._seen or self._failed_over:
            self._recover()
            self._seen, self._failed_over = now, False
        elif self._recounts and self._updates != self._learner.state.updates:
            self._recounts -= 1
            self._updates = self._learner.state.updates
            self._learner.recount_tickets()

    def _recover(self) -> None:
        state, weights = self._learner.state, self._backend.weights
        if not weights.has_bundle():
            weights.put_bundle(self._bundle)
        published = weights.version()
        if published < state.weights_version:
            log.warning("Redis has lost the weights from version %d on: publishing the newest again", published + 1)
            self._learner.publish_again()
        failovers = self._recover_ledger()
        self._backend.unrolls.raise_highest(state.applied)  # a successor must find no gaps below these
        if failovers:
            log.warning("Redis has failed over (%d so far)", self._backend.ledger.failovers)
        may_have_failed_over = failovers > 0 or self._failed_over or not self._engine.history
        self._learner.recount_tickets(forget_held=may_have_failed_over)
        self._recounts = RECOUNTS
