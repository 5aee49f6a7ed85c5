"""Hop 4 of a gradient actor: it differentiates its own unroll and ships the gradient in place of the unroll.

The actor acts by the policy bundle, like any other. It computes the gradient with the numeric framework, on copies of
the network that follow the same published weights at the same rate: the weights that acted, except for rounding. Actors
that ship unrolls do not import this module.
"""

from collections.abc import Mapping

import numpy as np

from distrl.actors.admission import ActorProgress
from distrl.actors.shipping import Shipper
from distrl.algorithms import context_of, make_algorithm
from distrl.algorithms.algorithm import GradientAlgorithm, Networks
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.memory_backend.gradient_codec import encode_contribution
from distrl.memory_backend.joining import stack
from distrl.types import EPISODE_FIELDS, EPISODE_METRICS, Contribution, EnvSpec, Unroll, Weights


class GradientShipper(Shipper):
    """Ships gradients. The global copy of "main" holds the published weights, the online copy follows it."""

    def __init__(self, algorithm: GradientAlgorithm, networks: Networks, frame_counts: Mapping[str, int]) -> None:
        self._algorithm = algorithm
        self._networks = networks
        self._frame_counts = frame_counts
        online = networks["main"].online
        self._acting = online.policy_variables.keys()
        self._names = online.names_of(online.model.weights)
        self._is_first = True

    def reset(self, seeds: np.random.SeedSequence) -> None:
        """Reseed dropout's and noise's random generators; the next weights are taken whole."""
        self._algorithm.reseed(seeds)
        self._is_first = True

    def take_weights(self, weights: Weights, rate: float) -> Weights:
        """Set ``online <- rate * weights + (1 - rate) * online``, the first ones whole; return those that act."""
        network = self._networks["main"]
        assert network.global_ is not None  # the algorithm ships gradients
        network.global_.set_weights([weights.arrays[name] for name in self._names])
        network.update_online_network(1.0 if self._is_first else rate)
        self._is_first = False
        if network.rewards is not None:
            network.rewards.take(weights.arrays)
        return Weights(weights.version, {name: weights.arrays[name] for name in weights.arrays if name in self._acting})

    def steer(self, config: RunConfig) -> None:
        """Change the loss's coefficients; the learner applies the learning rate."""
        self._algorithm.steer(self._networks, context_of(config))

    def contribution(self, unroll: Unroll) -> Contribution:
        """Compute the gradient of one unroll."""
        return Contribution(
            header=unroll.header,
            differentiated=self._algorithm.differentiate(self._networks, stack([unroll], self._frame_counts)),
            **{name: getattr(unroll, name) for name in EPISODE_FIELDS},
            reward_moments=unroll.reward_moments,
            extras={name: array for name, array in unroll.extras.items() if name == EPISODE_METRICS},
        )

    def payload(self, unroll: Unroll, progress: ActorProgress) -> bytes:
        """Return the encoded gradient."""
        progress.state = "differentiating"
        return encode_contribution(self.contribution(unroll))


def make_shipper(config: RunConfig, spec: EnvSpec) -> GradientShipper:
    """Make the shipper of an actor of this run; raise ConfigError if the algorithm's actors ship unrolls."""
    algorithm = make_algorithm(config)
    if not isinstance(algorithm, GradientAlgorithm) or algorithm.parameters.ships != "gradients":
        raise ConfigError(f"algorithm {config.algorithm.name} has no gradient actors")
    return GradientShipper(algorithm, algorithm.build(spec), spec.frames)
