"""Exploration by noise on weights instead of actions: each unroll acts with its own noise on the network's weights.

Both functions return the weights to act with, by name; `arrays`, all weights by name, stay as they are."""

from collections.abc import Mapping

import numpy as np

from distrl.errors import DistrlError
from distrl.networks.policy.description import BundleDescription
from distrl.types import Array, FloatArray


def factorised(
    rng: np.random.Generator, description: BundleDescription, arrays: Mapping[str, Array]
) -> dict[str, Array]:
    """The noise of noisy layers (Fortunato et al. 2018, equations 10 and 11); training decides its strength.

    Raises:
        DistrlError: The strengths did not come with the weights.
    """
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


def independent(
    rng: np.random.Generator, stddev: float, description: BundleDescription, arrays: Mapping[str, Array]
) -> dict[str, Array]:
    """Normal noise of one strength on every trained weight."""
    trained = [spec.name for spec in description.weights if spec.mixed]
    noise = {name: stddev * rng.standard_normal(arrays[name].shape) for name in trained}
    return {**arrays, **{name: (arrays[name] + noise[name]).astype(arrays[name].dtype) for name in trained}}


def _factor(count: int, rng: np.random.Generator) -> FloatArray:
    """Return f(eps) = sgn(eps) sqrt|eps| of normal eps, float32 [count]."""
    noise = rng.standard_normal(count, np.float32)
    factor: FloatArray = np.sign(noise) * np.sqrt(np.abs(noise))
    return factor
