"""The one dense layer that embedders, middlewares and heads are made of: named, seeded, orthogonally initialised."""

import math
from typing import Any

import keras
import numpy as np

from distrl.config.network import Activation

HIDDEN_GAIN = math.sqrt(2.0)


def _tanh_gelu(x: Any) -> Any:
    # The exact form becomes Erfc, which ONNX lacks; the tanh form differs by less than 0.001 (Hendrycks & Gimpel 2016).
    return keras.activations.gelu(x, approximate=True)


_ACTIVATIONS: dict[Activation, Any] = {"none": None, "gelu": _tanh_gelu}
"""Those that Keras does not know by our name or not in our form."""


def layer_seed(seed: int, name: str) -> int:
    """Seed of one layer's initialiser, from the network's seed and the layer's name.

    Layers are independent of each other, and adding one leaves the others' initial weights as they were.

    Returns:
        An integer in [0, 2**31).
    """
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0] >> 1)


def dense(units: int, activation: Activation, *, name: str, seed: int, gain: float = HIDDEN_GAIN) -> Any:
    """A dense layer with an orthogonal kernel and zero bias.

    Orthogonal kernels (Saxe et al. 2014) with gain sqrt(2) in hidden layers are the field's practice for policy
    gradients (Andrychowicz et al. 2021, section 3.2).

    Args:
        units: Width of the output.
        activation: Name of the activation; "none" is linear, "gelu" the tanh approximation.
        name: Unique within the network; the weights' paths start with it.
        seed: The network's seed; equal seeds and names give bit-equal weights.
        gain: Scale of the orthogonal kernel.
    """
    return keras.layers.Dense(
        units,
        activation=_ACTIVATIONS.get(activation, activation),
        kernel_initializer=keras.initializers.Orthogonal(gain=gain, seed=layer_seed(seed, name)),
        name=name,
    )
