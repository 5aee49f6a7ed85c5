"""Hops 4 and 5: an actor's end of the memory backend. Unrolls leave by it, weights come by it, in one sequence."""

from collections.abc import Callable

import numpy as np

from distrl.actors.admission import ActorProgress, Gate
from distrl.actors.shipping import Shipper, UnrollShipper
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import Producer
from distrl.memory_backend.stream import Admission
from distrl.metrics.counters import Waits
from distrl.types import Unroll, Weights


class Outbox:
    """Pushes the unrolls of one producer.

    Args:
        producer: (actor id, incarnation).
        shipper: Makes the payloads; None: unrolls are pushed as they are.
        progress: Shared with an `Acting` that may wait.

    Attributes:
        sequence: Number of the next unroll.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        producer: Producer,
        stop: Callable[[], bool],
        shipper: Shipper | None = None,
        progress: ActorProgress | None = None,
    ) -> None:
        self.producer, self.sequence = producer, 0
        self._backend, self._shipper = backend, shipper or UnrollShipper(config)
        self.progress = progress or ActorProgress()
        self._gate = Gate(config, backend, producer, stop, self.progress)

    @property
    def waits(self) -> Waits:
        """Time in which the actor does not act, by the states of `progress`."""
        return self._gate.waits

    def reset(self, seed: int, update: int, loop: int = 0) -> tuple[int, np.random.Generator, Progress]:
        """Reseed the shipper, whose next weights are taken whole.

        Args:
            loop: Number of the loop, if several have this outbox.

        Returns:
            Seed of the environment, generator of actions, published progress of the training.
        """
        key = np.random.SeedSequence(seed, spawn_key=(1, *self.producer, update, *((loop,) if loop else ())))
        environment_seed, sampling_seed, shipping_seed = key.spawn(3)
        self._shipper.reset(shipping_seed)
        rng = np.random.default_rng(sampling_seed)
        return int(environment_seed.generate_state(1)[0]), rng, self.published_progress()

    def published_progress(self) -> Progress:
        """Return the progress of the training behind the newest published weights."""
        return self._backend.weights.progress()

    def steer(self, config: RunConfig) -> None:
        """Ship by the steerable settings of this configuration."""
        self._shipper.steer(config)

    def admission(self) -> Admission:
        """Return the newest admission."""
        return self._backend.unrolls.admission()

    def wait(self, admission: Admission) -> Admission | None:
        """Wait until the next unroll may start; return the newest admission, or None when stopped."""
        return self._gate.wait(admission)

    def opens(self, admission: Admission) -> bool:
        """Return whether the next unroll may start, without waiting."""
        return self._gate.opens(admission)

    def fetch(self, rate: float) -> tuple[Weights, Progress] | None:
        """Return the newest published weights that act, and the progress behind them; None: there are none."""
        return self._shipper.fetch(self._backend.weights, rate)

    def push(self, unroll: Unroll) -> Admission:
        """Push an unroll with the header of `producer` and `sequence`; return the push's admission."""
        payload = self._shipper.payload(unroll, self.progress)  # hop 4
        admission = self._backend.unrolls.push(unroll.header, payload)  # hop 5
        self.sequence += 1
        self._gate.pushed(unroll.header)
        self.progress.env_steps += unroll.header.env_steps
        return admission
