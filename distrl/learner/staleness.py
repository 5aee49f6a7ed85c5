"""The bound on the age of the weights behind an unroll, and the tickets that enforce it."""

from dataclasses import dataclass, field

from distrl.memory_backend.backend import Backend


@dataclass
class StalenessBound:
    """Shared by intake and publisher, on two threads.

    Attributes:
        updates: 0: synchronous. k: nothing older than k updates. None: bounded by the queue only.
        ahead: Number of batches beyond the next one that have tickets: `updates`, once tickets have followed.
    """

    updates: int | None
    ahead: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.ahead = self.updates


class Tickets:
    """Issues tickets in place of those that bought nothing; none where staleness is not bounded.

    Args:
        backend: The connection of the intake's thread.
    """

    def __init__(self, backend: Backend, fence: int, staleness: StalenessBound) -> None:
        self._backend = backend
        self._fence = fence
        self._staleness = staleness
        self._bounded = staleness.updates is not None
        self._stuck = False

    def moved(self) -> None:
        """An entry has come."""
        self._stuck = False

    def replace_one(self) -> None:
        """The ticket that an unroll used up bought nothing; without another one the batch could never fill."""
        if self._bounded:
            self._backend.tickets.issue(1, self._fence)

    def replace_lost(self, missing: int, version: int) -> None:
        """Issue `missing` tickets if no actor can fill the batch any more; called whenever a wait brought no entry.

        That is so after a Redis failure that lost unrolls or tickets, or where a predecessor left copies in the stream
        that `Publisher.issue_first_tickets` took for unrolls.

        Args:
            version: What the batch is used at.
        """
        ahead = self._staleness.ahead
        if not self._bounded or ahead is None:
            return
        # Before that version is published, the batch's own tickets are still to come.
        due = self._backend.weights.version() >= version - ahead
        stuck = due and self._backend.tickets.counts() == (0, 0) and self._backend.ledger.counts().queued == 0
        # At the second time in a row, as the learner publishes first and issues right after.
        if stuck and self._stuck:
            self._backend.tickets.issue(missing, self._fence)
        self._stuck = stuck and not self._stuck
