"""The learner's loop: hops 6 to 10, in the order in which it calls their modules."""

import time
from collections.abc import Callable, Mapping

from distrl.algorithms.algorithm import Algorithm, Networks
from distrl.errors import ExitError, NonFiniteError
from distrl.learner.batches import Batches, LearnerBatch, Trained
from distrl.learner.nonfinite import NonFiniteBatchError
from distrl.learner.publisher import Publisher
from distrl.learner.state import LearnerState
from distrl.metrics.counters import Waits
from distrl.types import Array


class Learner:
    """Trains on one batch after the other and publishes new weights after each batch with `publish`.

    Args:
        weights: Returns the weights that actors need.
        waits: Measures where the loop's time goes, by name.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        networks: Networks,
        state: LearnerState,
        batches: Batches,
        publisher: Publisher,
        weights: Callable[[], Mapping[str, Array]],
        waits: Waits,
    ) -> None:
        self.state, self.last_update_at = state, time.monotonic()
        self._algorithm, self._networks, self._batches = algorithm, networks, batches
        self._publisher, self._weights, self._waits = publisher, weights, waits
        self._unpublished = False

    def start(self) -> None:
        """Publish the restored or initial weights as `state.weights_version`, with which the actors begin."""
        self._publish()
        self._publisher.issue_first_tickets()

    def step(self) -> Trained | None:
        """Make one update, from the batch to the published weights; return None if stopped before there was a batch.

        Raises:
            ExitError: The algorithm has called sys.exit.
            NonFiniteBatchError: The update or the new weights are not finite. Nothing was published, and the entries of
                the batch stay in flight.
        """
        with self._waits.measure(self._batches.measured_as):
            collected = self._batches.collect()  # hop 6
        if collected is None:
            return None
        try:
            with self._waits.measure("update"):
                update = self._algorithm.update(self._networks, collected.batch)  # hops 7, 8, 9
        except SystemExit as error:
            raise ExitError(error) from error
        if not update.metrics["finite"]:
            loss, norm = update.metrics["loss"], update.metrics["gradient_norm"]
            what = f"loss {loss}, gradient norm {norm}; it was not applied"
            raise NonFiniteBatchError(collected, self.state.updates + 1, what)
        self.state.updates += 1
        for receipt in collected.receipts:
            receipt.count(self.state)
        collected.reprioritise(update.priorities)
        self._unpublished = not collected.publish
        if collected.publish:
            self._publish_next(collected)
        for receipt in collected.receipts:
            with self._waits.measure("acknowledge"):
                receipt.settle()
        self.last_update_at = time.monotonic()
        return Trained(collected, update)

    def publish_newest(self) -> None:
        """Publish the weights of the last update if it did not, so that a checkpoint holds what actors have."""
        if self._unpublished:
            self._unpublished = False
            self.state.weights_version += 1
            self._publish()

    def publish_again(self) -> None:
        """Publish the weights of the newest version again, which Redis has lost.

        They keep their version, by which batches that are being collected count. If there have been updates since, they
        are gone, and the next version follows.
        """
        if self._unpublished:
            self.publish_newest()
        else:
            self._publish()

    def recount_tickets(self, *, forget_held: bool = False) -> None:
        """Issue or withdraw tickets until there are as many as the bound on staleness allows; see `TicketBox`."""
        self._publisher.recount_tickets(forget_held=forget_held)

    def _publish_next(self, collected: LearnerBatch) -> None:
        self.state.weights_version += 1
        with self._waits.measure("publish"):
            try:
                self._publish()  # hop 10
            except NonFiniteError as error:
                raise NonFiniteBatchError(collected, self.state.updates, str(error)) from error
            self._publisher.issue_tickets()

    def _publish(self) -> None:
        self._publisher.publish(self._weights(), self.state.weights_version, self.state.progress)
