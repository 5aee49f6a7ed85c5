"""Hop 10: publishes the learner's weights, encoded once per version, and issues tickets if staleness is bounded."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from distrl.config.schedules import Progress
from distrl.errors import NonFiniteError
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import WireDtype, encode_weights
from distrl.types import Array, Weights


@dataclass
class StalenessBound:
    """The bound on staleness, shared by intake and publisher on two threads.

    Attributes:
        updates: 0: synchronous. k: nothing older than k updates. None: bounded only by the queue.
        ahead: Number of batches beyond the next one that have tickets; it follows `updates` with the next tickets.
    """

    updates: int | None
    ahead: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.ahead = self.updates


class Tickets:
    """Replaces tickets whose unrolls were dropped or lost; does nothing if staleness is not bounded.

    Args:
        backend: The learner's backend; its receiving lane is used.
    """

    def __init__(self, backend: Backend, staleness: StalenessBound) -> None:
        self._backend = backend.receiving
        self._staleness = staleness
        self._bounded = staleness.updates is not None
        self._stuck = False

    def moved(self) -> None:
        """Record that an entry has come."""
        self._stuck = False

    def replace_one(self) -> None:
        """Replace the ticket of a dropped unroll: without another one the batch could never fill."""
        if self._bounded:
            self._backend.tickets.issue(1)

    def replace_lost(self, missing: int, version: int) -> None:
        """Issue `missing` tickets if no actor can fill the batch any more; called whenever a wait brought no entry.

        This happens after a Redis failure that lost unrolls or tickets, or if a predecessor left duplicates in the
        stream that `Publisher.issue_first_tickets` counted as unrolls.

        Args:
            version: Version of the weights that the batch updates.
        """
        ahead = self._staleness.ahead
        if not self._bounded or ahead is None:
            return
        # Before that version is published, the batch's own tickets are still to come.
        due = self._backend.weights.version() >= version - ahead
        stuck = due and self._backend.tickets.counts() == (0, 0) and self._backend.ledger.counts().queued == 0
        # At the second time in a row, as the learner publishes first and issues right after.
        if stuck and self._stuck:
            self._backend.tickets.issue(missing)
        self._stuck = stuck and not self._stuck


class Publisher:
    """Publishes weights under increasing versions, and issues tickets if staleness is bounded.

    Args:
        wire_dtypes: Name -> dtype on the wire, of weights that do not travel in float32.
        batch_size: Number of tickets with each version, if staleness is bounded.
    """

    def __init__(
        self,
        backend: Backend,
        batch_size: int,
        staleness: StalenessBound,
        wire_dtypes: Mapping[str, WireDtype] | None = None,
    ) -> None:
        self._backend = backend
        self._wire_dtypes = wire_dtypes
        self._batch_size = batch_size
        self._staleness = staleness

    def publish(self, arrays: Mapping[str, Array], version: int, progress: Progress) -> None:
        """Publish `arrays` as version `version`; actors see both or neither.

        Raises:
            NonFiniteError: NaN or infinity in the weights; nothing was published.
        """
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise NonFiniteError(f"weights {name} of version {version} are not finite and stay unpublished")
        blob = encode_weights(Weights(version, dict(arrays)), self._wire_dtypes)
        self._backend.weights.publish(version, blob, progress)

    def issue_tickets(self) -> None:
        """Issue tickets for one more batch after an update; none if the bound was lowered, more if it was raised.

        Called after `publish`: a ticket promises its version.
        """
        staleness = self._staleness
        if staleness.ahead is None or staleness.updates is None:
            return
        step = max(staleness.updates - staleness.ahead, -1)
        staleness.ahead += step
        if step > -1:
            self._backend.tickets.issue((1 + step) * self._batch_size)

    def recount_tickets(self, *, forget_held: bool) -> None:
        """Issue or withdraw tickets so that k + 1 batches are in use; called between two updates."""
        if self._staleness.ahead is not None:
            self._backend.tickets.recount((self._staleness.ahead + 1) * self._batch_size, forget_held=forget_held)

    def issue_first_tickets(self) -> None:
        """Issue tickets for k + 1 batches, less those of a predecessor that are still in use."""
        bound = self._staleness.updates
        if bound is None:
            return
        missing = (bound + 1) * self._batch_size - self._outstanding()
        # If there are too many because the bound was higher, the next updates issue fewer.
        self._staleness.ahead = bound + max(-missing, 0) // self._batch_size
        if missing > 0:
            self._backend.tickets.issue(missing)

    def _outstanding(self) -> int:
        """Return the number of tickets, and of unrolls made with one, at one instant."""
        # Read until no actor took a ticket or pushed meanwhile; actors run out of tickets, so this comes to an end.
        # A ticket counted twice would be one too few, and with k = 0 no batch would ever fill.
        seen = None
        while seen != (now := (self._backend.ledger.counts(), self._backend.tickets.counts())):
            seen = now
        ledger, (free, held) = now
        return free + held + ledger.queued + ledger.in_flight
