"""Hop 4: what an actor sends of a full unroll."""

from abc import abstractmethod
from typing import Protocol

import numpy as np

from distrl.actors.admission import ActorProgress
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.memory_backend.codec import decode_weights, encode_unroll
from distrl.memory_backend.compression import compressor
from distrl.memory_backend.weights import WeightStore
from distrl.types import Unroll, Weights


class Shipper(Protocol):
    """Makes the payload of a full unroll's message."""

    def reset(self, seeds: np.random.SeedSequence) -> None:
        """Reseed random generators; the next weights are taken whole."""
        return

    def steer(self, config: RunConfig) -> None:
        """Use the steerable settings of this configuration from the next unroll on."""
        return

    def take_weights(self, weights: Weights, rate: float) -> Weights:
        """Take published weights at the mixing rate; return those that act."""
        return weights

    def fetch(self, store: WeightStore, rate: float) -> tuple[Weights, Progress] | None:
        """Return the newest published weights that act, and the progress behind them; None: there are none."""
        if (fetched := store.fetch()) is None:
            return None
        return self.take_weights(decode_weights(fetched.blob), rate), fetched.progress

    @abstractmethod
    def payload(self, unroll: Unroll, progress: ActorProgress) -> bytes:
        """Return the payload; `progress.state` names what takes long."""


class UnrollShipper(Shipper):
    """Ships unrolls as they are, compressed by `memory.compression`."""

    def __init__(self, config: RunConfig) -> None:
        self._compress = compressor(config.memory.compression)

    def payload(self, unroll: Unroll, progress: ActorProgress) -> bytes:
        return self._compress(encode_unroll(unroll))
