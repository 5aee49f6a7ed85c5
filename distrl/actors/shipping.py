"""Hop 4: makes the payload that an actor pushes for an unroll; `actors/gradient_actor.py` ships gradients."""

from typing import Protocol

import numpy as np

from distrl.config import RunConfig
from distrl.memory_backend.codec import encode_unroll
from distrl.types import Unroll, Weights


class Shipper(Protocol):
    """Turns unrolls into payloads.

    Attributes:
        state: The actor's state meanwhile, for `ActorProgress.state`.
    """

    state: str

    def reset(self, seeds: np.random.SeedSequence) -> None:
        """Reseed random generators; the next weights are taken whole."""

    def take_weights(self, weights: Weights, rate: float) -> Weights:
        """Take newly published weights at the mixing rate; return those with which the policy acts."""

    def steer(self, config: RunConfig) -> None:
        """Apply the operators' changes, between two unrolls."""

    def payload(self, unroll: Unroll) -> bytes:
        """Return the bytes that travel with the unroll's header."""


class UnrollShipper:
    """Ships encoded unrolls."""

    state = "acting"  # it takes no time to speak of

    def reset(self, seeds: np.random.SeedSequence) -> None:
        """Do nothing: nothing is random, and the policy holds the weights."""

    def take_weights(self, weights: Weights, rate: float) -> Weights:
        """Return all weights: the policy takes them."""
        return weights

    def steer(self, config: RunConfig) -> None:
        """Do nothing: no setting changes unrolls."""

    def payload(self, unroll: Unroll) -> bytes:
        """Encode the unroll."""
        return encode_unroll(unroll)
