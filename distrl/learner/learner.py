"""The learner's loop: hops 6 to 10. Everything it does is in the modules it calls, in this order."""

import time
from typing import Protocol

from distrl.algorithms.algorithm import Algorithm, Networks, Update
from distrl.errors import NonFiniteError
from distrl.learner.feed import Parcel
from distrl.learner.publisher import Publisher
from distrl.learner.state import LearnerState
from distrl.memory_backend.backend import Backend
from distrl.metrics.counters import Waits
from distrl.replay.memory import Replay


class ParcelSource(Protocol):
    """`Feed` itself, `PrefetchingFeed`, or `ReplayFeed` over either."""

    def collect(self) -> Parcel | None: ...


class Learner:
    """Trains on one parcel after the other and publishes after each that says so.

    Args:
        backend: The memory backend; used by this thread alone.
        fence: This learner's fencing token.
        waits: Where the loop's time goes, by name.
        acts_with_noise: Whether actors want to know how strong the noise in noisy layers is.
        replay: Where batches are sampled from; None: they are of the stream.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        networks: Networks,
        state: LearnerState,
        feed: ParcelSource,
        publisher: Publisher,
        backend: Backend,
        fence: int,
        waits: Waits,
        replay: Replay | None = None,
        *,
        acts_with_noise: bool = False,
    ) -> None:
        self._algorithm = algorithm
        self._networks = networks
        self._feed = feed
        self._publisher = publisher
        self._backend = backend
        self._fence = fence
        self._waits = waits
        self._acts_with_noise = acts_with_noise
        self._replay = replay
        self._unpublished = False
        self.state = state
        self.last_update_at = time.monotonic()

    def start(self) -> None:
        """Publishes the restored or initial weights as `state.weights_version` and lets the actors begin."""
        self._publish()
        self._publisher.issue_first_tickets()

    def step(self) -> tuple[Parcel, Update] | None:
        """One update, from the feed to the published weights; None when the feed was asked to stop.

        Raises:
            NonFiniteBatchError: The update, or the weights it led to, are not finite. Nothing was published, and the
                batch stays in flight.
        """
        # With a replay memory, its feed knows which part of it was waiting for unrolls.
        with self._waits.measure("unrolls" if self._replay is None else "replay"):
            parcel = self._feed.collect()  # hop 6
        if parcel is None:
            return None
        with self._waits.measure("update"):
            update = self._algorithm.update(self._networks, parcel.batch)  # hops 7, 8, 9
        if not update.metrics["finite"]:
            loss, norm = update.metrics["loss"], update.metrics["gradient_norm"]
            what = f"loss {loss}, gradient norm {norm}; it was not applied"
            raise NonFiniteBatchError(parcel, self.state.updates + 1, what)
        self._count(parcel)
        if self._replay is not None and parcel.items is not None and update.priorities is not None:
            self._replay.reprioritise(parcel.items, update.priorities)
        self._unpublished = not parcel.publish
        if parcel.publish:
            self._publish_next(parcel)
        if parcel.entries:
            with self._waits.measure("acknowledge"):
                self._backend.unrolls.acknowledge(
                    parcel.entries, self._fence, {"trained": len(parcel.entries)}, parcel.highest
                )
            parcel.held.settled = True
        self.last_update_at = time.monotonic()
        return parcel, update

    def progressed(self) -> None:
        """Something moved that is no update: unrolls came into the replay memory."""
        self.last_update_at = time.monotonic()

    def publish_newest(self) -> None:
        """Publishes weights that the last update left unpublished: what a checkpoint holds is what actors have."""
        if self._unpublished:
            self._unpublished = False
            self.state.weights_version += 1
            self._publish()

    def _publish_next(self, parcel: Parcel) -> None:
        self.state.weights_version += 1
        with self._waits.measure("publish"):
            try:
                self._publish()  # hop 10
            except NonFiniteError as error:
                raise NonFiniteBatchError(parcel, self.state.updates, str(error)) from error
            self._publisher.issue_tickets()

    def _count(self, parcel: Parcel) -> None:
        state = self.state
        state.updates += 1
        state.env_steps += parcel.env_steps
        state.trained_steps += parcel.trained_steps
        state.trained_unrolls += len(parcel.entries)
        state.applied.update(parcel.highest)
        state.observe_episodes(parcel.episode_returns, parcel.episode_lengths_steps)

    def _publish(self) -> None:
        network = self._networks["main"]
        # Who differentiates also needs what acting does not read, such as the strength of noise.
        gradients = self._algorithm.memory.ships == "gradients"
        weights = network.published_weights() if gradients else network.online.policy_weights()
        if self._acts_with_noise:
            weights = weights | network.online.noise_weights()
        self._publisher.publish(weights, self.state.weights_version, self.state.env_steps)


class NonFiniteBatchError(NonFiniteError):
    """An update was not finite; carries its number and the parcel, so that the batch can be saved beside the log."""

    def __init__(self, parcel: Parcel, number: int, what: str) -> None:
        super().__init__(f"update {number} is not finite: {what}")
        self.parcel = parcel
        self.number = number
