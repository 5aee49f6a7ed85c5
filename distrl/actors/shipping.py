"""Hop 4: an unroll on its way to the stream, by default as it is; `actors/gradient_actor.py` ships gradients."""

from typing import Protocol

import numpy as np

from distrl.config import RunConfig
from distrl.memory_backend.codec import encode_unroll
from distrl.types import Unroll, Weights


class Shipper(Protocol):
    """Turns unrolls into what the actor pushes.

    Attributes:
        state: What the actor does meanwhile, for `ActorProgress.state`.
    """

    state: str

    def reset(self, seeds: np.random.SeedSequence) -> None:
        """Reseed random generators; the next weights are taken whole."""

    def take_weights(self, weights: Weights, rate: float) -> Weights:
        """Take note of newly published weights, at the mixing rate; return those that the policy acts with."""

    def steer(self, config: RunConfig) -> None:
        """Take over changes of operators, between two unrolls."""

    def payload(self, unroll: Unroll) -> bytes:
        """The bytes that travel under the unroll's header."""


class UnrollShipper:
    """Ships unrolls."""

    state = "acting"  # it takes no time to speak of

    def reset(self, seeds: np.random.SeedSequence) -> None:
        """Nothing is random, and weights are the policy's."""

    def take_weights(self, weights: Weights, rate: float) -> Weights:
        """All are the policy's."""
        return weights

    def steer(self, config: RunConfig) -> None:
        """Unrolls are shipped as they are, whatever the configuration."""

    def payload(self, unroll: Unroll) -> bytes:
        """The encoded unroll."""
        return encode_unroll(unroll)
