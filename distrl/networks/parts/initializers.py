"""How the kernels and biases of dense layers and convolutions begin."""

import math
from typing import Any

import keras
import numpy as np

from distrl.config.network import InitialWeights
from distrl.networks.framework.backend import as_one_program

HIDDEN_GAIN = math.sqrt(2.0)
"""Scale of orthogonal kernels before hidden activations."""

_BY_NAME: dict[str, Any] = {
    "glorot_uniform": keras.initializers.GlorotUniform,
    "glorot_normal": keras.initializers.GlorotNormal,
    "he_uniform": keras.initializers.HeUniform,
    "he_normal": keras.initializers.HeNormal,
    "lecun_uniform": keras.initializers.LecunUniform,
    "lecun_normal": keras.initializers.LecunNormal,
}

Given = str | float | tuple[tuple[float, ...], ...] | None
"""A name of `InitializerName`, one number for all elements, a matrix [inputs][units], or None: as the network does."""


def layer_seed(seed: int, name: str) -> int:
    """Return the seed, in [0, 2**31), of one layer's initialiser, from the network's seed and the layer's name.

    Layers are independent of each other: adding one leaves the initial weights of the others as they were.
    """
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0] >> 1)


def initializers(
    initial: InitialWeights, *, seed: int, gain: float = HIDDEN_GAIN, given: Given = None
) -> dict[str, Any]:
    """Return the arguments `kernel_initializer` and `bias_initializer` of a layer of Keras.

    orthogonal: kernels (Saxe et al. 2014) with gain sqrt(2) in hidden layers are the field's practice for policy
    gradients (Andrychowicz et al. 2021, section 3.2); biases are 0. uniform: both within ±1 / sqrt(inputs), as in
    PyTorch.

    Args:
        seed: The layer's own.
        gain: Scale of an orthogonal kernel.
        given: What the layer's configuration says of its kernel.
    """
    if initial == "orthogonal":
        return {"kernel_initializer": _kernel(given, gain, seed), "bias_initializer": "zeros"}
    uniform = keras.initializers.VarianceScaling(1.0 / 3.0, mode="fan_in", distribution="uniform", seed=seed)
    kernel = _Noting(uniform if given is None else _kernel(given, gain, seed))
    return {"kernel_initializer": kernel, "bias_initializer": _UniformBias(kernel, layer_seed(seed, "bias"))}


def _kernel(given: Given, gain: float, seed: int) -> Any:
    if given is None or given == "orthogonal":
        return Orthogonal(gain=gain, seed=seed)
    if isinstance(given, str):
        return _BY_NAME[given](seed=seed)
    if isinstance(given, tuple):
        return _Matrix(np.asarray(given, np.float32))
    return keras.initializers.Constant(given)


class Orthogonal(keras.initializers.Orthogonal):  # type: ignore[misc]
    """Keras' own, as one program: it is ten operations, which JAX compiles one by one for every shape."""

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return as_one_program(lambda: super(Orthogonal, self).__call__(shape, dtype))()


class _Matrix(keras.initializers.Initializer):  # type: ignore[misc]
    """One fixed array, which must have the kernel's shape: nothing is broadcast."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        if tuple(shape) != self.value.shape:
            raise ValueError(f"the given kernel has shape {list(self.value.shape)}, this layer needs {list(shape)}")
        return keras.ops.convert_to_tensor(self.value, dtype)


class _Noting(keras.initializers.Initializer):  # type: ignore[misc]
    """Another initialiser, of which it notes how many inputs the kernel has: Keras tells biases nothing of that."""

    def __init__(self, kernel: Any) -> None:
        self.inputs = 0
        self._kernel = kernel

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        self.inputs = math.prod(shape[:-1])
        return self._kernel(shape, dtype)


class _UniformBias(keras.initializers.Initializer):  # type: ignore[misc]
    """Uniform within ±1 / sqrt(inputs of the kernel, which was drawn before)."""

    def __init__(self, kernel: _Noting, seed: int) -> None:
        self._kernel, self._seed = kernel, seed

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        bound = 1.0 / math.sqrt(self._kernel.inputs)
        return keras.initializers.RandomUniform(-bound, bound, self._seed)(shape, dtype)
