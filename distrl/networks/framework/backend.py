"""What differs between numeric frameworks: set-up, differentiation and the compiled step.

Keras decides which framework runs (KERAS_BACKEND, set before Keras is imported); this module gives the rest of distrl
one face of it. TensorFlow is named by `tensorflow_*.py` and `bundle.py` alone, JAX by `jax_backend.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import keras
import numpy as np

from distrl.networks.framework.differentiation import Clip, LossFunction, Pair, Part, PureLoss
from distrl.types import Array, Batch, IntArray

NAME: str = keras.backend.backend()
"""tensorflow or jax."""

if NAME == "jax":
    from distrl.networks.framework import jax_backend as _framework
else:
    from distrl.networks.framework import tensorflow_backend as _framework  # type: ignore[no-redef]


Metrics = dict[str, Any]
"""What an update tells, by name: floats, booleans, and arrays where it is of single items of the batch."""


class TrainStep(Protocol):
    """One update from one batch; `traces` counts how often it was compiled."""

    @property
    def traces(self) -> int: ...

    def __call__(self, batch: Batch) -> Metrics: ...


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


class Step:
    """Forward, loss, backward, clipping and optimizers as one compiled function; one trace per batch shape.

    Args:
        function: As of `Gradients`; its new values of `others` are assigned. Where there are several parts, it is one
            sum of losses, from whose terms `stop_gradient` keeps away what they shall not move.
        parts: Variables that it is differentiated by, each group with the optimizer that moves it.
        others: Variables that `function` may assign.
        constants: Variables that `function` reads beside these.
        replicas: Devices of this host that share a batch; more than one on JAX alone.

    Raises:
        ConfigError: There are not as many devices, or the framework is TensorFlow.
    """

    def __init__(
        self,
        function: LossFunction,
        parts: Sequence[Part],
        others: Sequence[Any],
        constants: Sequence[Any] = (),
        replicas: int = 1,
    ) -> None:
        trainable = [variable for part in parts for variable in part.trainable]
        loss = PureLoss(function, trainable, others, constants)
        self._compiled = _framework.Step(loss, parts, replicas)

    @property
    def traces(self) -> int:
        """How often the step was traced. More than one per batch shape means lost time."""
        return self._compiled.traces

    def __call__(self, batch: Batch) -> Metrics:
        """One update, applied unless loss or gradients are NaN or infinite.

        k replicas make the same update as one, up to rounding: means are taken over the whole batch.

        Args:
            batch: NumPy arrays. They are copied.

        Returns:
            The loss function's metrics, arrays among them as arrays, and loss, gradient_norm (global, over all parts,
            before clipping), learning_rate (of this update and the first part) and finite: False if the update was not
            applied and every variable is as it was.
        """
        metrics: Metrics = dict(self._compiled(batch))
        metrics["finite"] = bool(np.isfinite(metrics["loss"]) and np.isfinite(metrics["gradient_norm"]))
        return metrics


class Epochs:
    """Many steps over one batch, minibatch by minibatch in a given order, as one compiled function.

    Args:
        function: As of `Gradients`, of one minibatch; all that it tells are scalars. Its new values of `others` are
            assigned.
        take: (data, int32 [M]) -> the minibatch of these items, in `keras.ops`.
        parts: As of `Step`.
        others: As of `Step`.
        stop: Name of one of the scalars, and a bound: of the first minibatch where it is larger, and of all after it,
            no gradient is applied. None: all are applied.
    """

    def __init__(
        self,
        function: LossFunction,
        take: Callable[[Any, Any], Any],
        parts: Sequence[Part],
        others: Sequence[Any],
        stop: tuple[str, float] | None = None,
    ) -> None:
        trainable = [variable for part in parts for variable in part.trainable]
        self._compiled = _framework.Epochs(PureLoss(function, trainable, others), parts, take, stop)

    @property
    def traces(self) -> int:
        """How often it was traced: once per shape of data and order."""
        return self._compiled.traces

    def __call__(self, data: Any, order: IntArray) -> Metrics:
        """All steps, applied unless the loss or the gradients of one of them are NaN or infinite.

        Args:
            data: What `take` takes; NumPy arrays.
            order: int32 [K, M]. Items of the K minibatches.

        Returns:
            Means of the function's scalars over the minibatches that were looked at, and likewise of loss and
            gradient_norm; learning_rate of the first step; optimizer_steps, how many were applied; and finite: False
            if none was applied and every variable is as it was.
        """
        names, rows, steps = self._compiled(data, order)
        metrics: Metrics = {name: float(np.mean(rows[:, at], dtype=np.float64)) for at, name in enumerate(names)}
        metrics["learning_rate"] = float(rows[0, names.index("learning_rate")])
        metrics["optimizer_steps"] = int(steps)
        metrics["finite"] = bool(np.isfinite(metrics["loss"]) and np.isfinite(metrics["gradient_norm"]))
        return metrics


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
