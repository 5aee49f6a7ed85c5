"""Exploration by noise on weights instead of actions: each unroll acts with its own noise on the network's weights.

Actions are drawn as without it, and log-probabilities are those of the policy that acts.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from distrl.config.exploration import ExplorationParameters, NoisyNetworkParameters, ParameterNoiseParameters
from distrl.errors import DistrlError
from distrl.networks.policy.description import BundleDescription
from distrl.types import Array, FloatArray


class WeightNoise(Protocol):
    """Noise that is added to copies of weights."""

    def move_to(self, env_steps: int) -> None:
        """Move schedules to this number of environment steps of all actors."""

    def perturbed(
        self, rng: np.random.Generator, description: BundleDescription, arrays: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the weights to act with, by name.

        Args:
            arrays: All weights by name.
        """


class FactorisedNoise:
    """Noise of noisy layers (Fortunato et al. 2018, equations 10 and 11), drawn by the actor."""

    def move_to(self, env_steps: int) -> None:
        """Do nothing: training sets the strength of the noise."""

    def perturbed(
        self, rng: np.random.Generator, description: BundleDescription, arrays: Mapping[str, Array]
    ) -> dict[str, Array]:
        noisy = dict(arrays)
        for layer in description.noisy:
            if layer.kernel_sigma not in arrays:
                raise DistrlError(f"exploration noisy_network: {layer.kernel_sigma} did not come with the weights")
            inputs, units = arrays[layer.kernel].shape
            rows, columns = _factor(inputs, rng), _factor(units, rng)
            noisy[layer.kernel] = arrays[layer.kernel] + arrays[layer.kernel_sigma] * np.outer(rows, columns)
            if layer.bias is not None and layer.bias_sigma is not None:
                noisy[layer.bias] = arrays[layer.bias] + arrays[layer.bias_sigma] * columns
        return noisy


class IndependentNoise:
    """Normal noise of one strength on every trained weight."""

    def __init__(self, parameters: ParameterNoiseParameters) -> None:
        self._schedule = parameters.stddev
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        self._stddev = self._schedule.at(env_steps)

    def perturbed(
        self, rng: np.random.Generator, description: BundleDescription, arrays: Mapping[str, Array]
    ) -> dict[str, Array]:
        trained = [spec.name for spec in description.weights if spec.mixed]
        noise = {name: self._stddev * rng.standard_normal(arrays[name].shape) for name in trained}
        return {**arrays, **{name: (arrays[name] + noise[name]).astype(arrays[name].dtype) for name in trained}}


def weight_noise_of(parameters: ExplorationParameters | None) -> WeightNoise | None:
    """Return the noise that this exploration puts on weights, if any."""
    match parameters:
        case NoisyNetworkParameters():
            return FactorisedNoise()
        case ParameterNoiseParameters():
            return IndependentNoise(parameters)
        case _:
            return None


def _factor(count: int, rng: np.random.Generator) -> FloatArray:
    """Return f(eps) = sgn(eps) sqrt|eps| of normal eps, float32 [count]."""
    noise = rng.standard_normal(count, np.float32)
    factor: FloatArray = np.sign(noise) * np.sqrt(np.abs(noise))
    return factor
