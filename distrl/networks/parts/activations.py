"""Activations and initialisers by the names that the configuration has for them."""

import math
from collections.abc import Callable
from typing import Any, get_args

import keras
import numpy as np

from distrl.config.layers import Activation

HIDDEN_GAIN = math.sqrt(2.0)
"""Of orthogonal kernels before hidden activations."""

_INITIALIZERS: dict[str, Any] = {
    "glorot_uniform": keras.initializers.GlorotUniform,
    "glorot_normal": keras.initializers.GlorotNormal,
    "he_uniform": keras.initializers.HeUniform,
    "he_normal": keras.initializers.HeNormal,
    "lecun_uniform": keras.initializers.LecunUniform,
    "lecun_normal": keras.initializers.LecunNormal,
}


def _tanh_gelu(x: Any) -> Any:
    # The exact form becomes Erfc, which ONNX lacks; the tanh form differs by less than 0.001 (Hendrycks & Gimpel 2016).
    return keras.activations.gelu(x, approximate=True)


def activation_function(
    activation: Activation | Callable[[Any], Any] | None, negative_slope: float | None = None
) -> Callable[[Any], Any]:
    """The function of an activation's name.

    Args:
        activation: A name; None and "none" are linear, "gelu" is the tanh approximation. A function is returned as is.
        negative_slope: Of leaky_relu, in place of Keras' 0.2.

    Raises:
        ValueError: There is no such activation, or it has no slope.
    """
    if negative_slope is not None:
        if activation != "leaky_relu":
            raise ValueError(f"negative_slope is leaky_relu's, not {activation}'s")
        return lambda x: keras.activations.leaky_relu(x, negative_slope=negative_slope)
    if callable(activation):
        return activation
    if activation is None or activation == "none":
        return keras.activations.linear  # type: ignore[no-any-return]
    if activation not in get_args(Activation):
        raise ValueError(f"unknown activation {activation!r}; there are {', '.join(get_args(Activation))}")
    return _tanh_gelu if activation == "gelu" else keras.activations.get(activation)


def initializer(given: str | float | tuple[tuple[float, ...], ...] | None, *, gain: float, seed: int) -> Any:
    """A Keras initialiser from its configuration.

    Orthogonal kernels (Saxe et al. 2014) with gain sqrt(2) in hidden layers are the field's practice for policy
    gradients (Andrychowicz et al. 2021, section 3.2).

    Args:
        given: A name of `InitializerName`, one number for all elements, or a matrix [inputs][units]; None: orthogonal.
        gain: Scale of orthogonal kernels.
        seed: Equal seeds give bit-equal weights.
    """
    if given is None or given == "orthogonal":
        return keras.initializers.Orthogonal(gain=gain, seed=seed)
    if isinstance(given, str):
        return _INITIALIZERS[given](seed=seed)
    if isinstance(given, tuple):
        return _Given(np.asarray(given, np.float32))
    return keras.initializers.Constant(given)


class _Given(keras.initializers.Initializer):  # type: ignore[misc]
    """One certain array, which must have the kernel's shape: nothing is broadcast."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        if tuple(shape) != self.value.shape:
            raise ValueError(f"the given kernel has shape {list(self.value.shape)}, this layer needs {list(shape)}")
        return keras.ops.convert_to_tensor(self.value, dtype)
