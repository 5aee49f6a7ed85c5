"""What differs between numeric frameworks: set-up, differentiation and the compiled step.

Keras decides which framework runs (KERAS_BACKEND, set before Keras is imported); this module gives the rest of distrl
one face of it. TensorFlow is named by `tensorflow_*.py` and `bundle.py` alone, JAX by `jax_backend.py`.
"""

from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np

from distrl.networks.framework.differentiation import Clip, LossFunction, Pair, PureLoss
from distrl.types import Array

NAME: str = keras.backend.backend()
"""tensorflow or jax."""

if NAME == "jax":
    from distrl.networks.framework import jax_backend as _framework
else:
    from distrl.networks.framework import tensorflow_backend as _framework  # type: ignore[no-redef]

CompiledStep, CompiledEpochs = _framework.Step, _framework.Epochs
"""The framework's halves of `networks.steps.Step`."""


Metrics = dict[str, Any]
"""What an update tells, by name: floats, booleans, and arrays where it is of single items of the batch."""


def configure(*, device: Literal["auto", "cpu", "gpu"], threads: int, deterministic: bool, seed: int) -> None:
    """Sets the framework up for this process. Call it before anything computes.

    Args:
        device: cpu hides all GPUs; gpu demands one; auto takes one if there is one.
        threads: Numeric threads within and between operations.
        deterministic: Operations give the same bits in every run, at some cost in speed on GPUs.
        seed: Of the framework's own random operations.

    Raises:
        ConfigError: A GPU is demanded and there is none.
    """
    _framework.configure(device=device, threads=threads, deterministic=deterministic, seed=seed)


def fastest_dtype() -> Literal["float32", "bfloat16"]:
    """What `network.compute_dtype: auto` stands for in this process, once it is configured."""
    return _framework.fastest_dtype()


class Gradients:
    """Loss and gradients of a batch, compiled; nothing is changed by it.

    Args:
        function: Traced once per shape of its data.
        trainable: Variables that the loss is differentiated by.
        others: Variables that `function` may assign; their new values are dropped.
        clip: From all gradients to clipped ones; by default they stay as they are.
    """

    def __init__(
        self, function: LossFunction, trainable: Sequence[Any], others: Sequence[Any], clip: Clip = list
    ) -> None:
        self._compiled = _framework.Gradients(PureLoss(function, trainable, others), clip)

    @property
    def traces(self) -> int:
        """How often it was traced."""
        return self._compiled.traces

    def __call__(self, data: Any) -> tuple[float, dict[str, Array], list[Array]]:
        """Loss, the function's named arrays, and the clipped gradients in the variables' order; all are copies."""
        loss, named, gradients = self._compiled(data)
        arrays = {name: np.array(np.asarray(value)) for name, value in named.items()}
        return float(loss), arrays, [np.array(np.asarray(gradient)) for gradient in gradients]


class Outputs:
    """What a function makes of data, compiled; nothing is changed by it.

    Args:
        function: As of `Gradients`; its loss is not looked at.
        variables: All that it reads.
    """

    def __init__(self, function: LossFunction, variables: Sequence[Any]) -> None:
        self._compiled = _framework.Outputs(PureLoss(function, [], variables))

    @property
    def traces(self) -> int:
        """How often it was traced."""
        return self._compiled.traces

    def __call__(self, data: Any) -> dict[str, Array]:
        """The function's named arrays; all are copies."""
        return {name: np.array(np.asarray(value)) for name, value in self._compiled(data).items()}


class Apply:
    """One optimizer step from gradients that came from elsewhere, compiled.

    Args:
        optimizer: Built on `variables`.
    """

    def __init__(self, optimizer: Any, variables: Sequence[Any]) -> None:
        self._compiled = _framework.Apply(optimizer, variables)

    def __call__(self, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        """Applies ``scaler * gradients``; what is given stays as it is."""
        self._compiled(gradients, scaler)


class Mix:
    """``target <- rate * source + (1 - rate) * target`` for pairs of variables, in one compiled call.

    Args:
        targets: Floating-point variables.
        sources: As many, of the same shapes and dtypes.
        copied: Pairs of which the first becomes the second, whatever the rate.
    """

    def __init__(self, targets: Sequence[Any], sources: Sequence[Any], copied: Sequence[Pair] = ()) -> None:
        self._compiled = _framework.Mix(list(zip(targets, sources, strict=True)), copied)

    def __call__(self, rate: float) -> None:
        """Moves the targets; sources stay as they are."""
        # Both shares are rounded once, from double precision.
        self._compiled(np.array([rate, 1.0 - rate], np.float32))


class Read:
    """The values of variables, in one call however many they are."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._read = _framework.Read(variables)

    def __call__(self) -> list[Array]:
        """Copies, in the variables' order."""
        return self._read()


class Write:
    """Sets variables, in one call.

    Args:
        variables: Groups of variables whose values are equal.
    """

    def __init__(self, variables: Sequence[Sequence[Any]]) -> None:
        self._write = _framework.Write(variables)

    def __call__(self, arrays: Sequence[Array]) -> None:
        """One array for each group, of its variables' shape and dtype."""
        self._write(arrays)
