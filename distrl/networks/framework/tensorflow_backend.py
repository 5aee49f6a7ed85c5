"""TensorFlow's half of `backend.py`."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from distrl.errors import ConfigError
from distrl.networks.framework import tensorflow_adam
from distrl.networks.framework.differentiation import Clip, Pair, Part, PureLoss, Reduce, counting_part
from distrl.networks.framework.optimizers import global_norm
from distrl.networks.framework.tensorflow_calls import Compiled
from distrl.types import Array

logger = logging.getLogger(__name__)
CPU_FLAGS = Path("/proc/cpuinfo")  # of Linux; other systems are taken to have none


def configure(*, device: str, threads: int, deterministic: bool, seed: int) -> None:
    """See `backend.configure`."""
    if device == "gpu" and not tf.config.list_physical_devices("GPU"):
        raise ConfigError("learner.device: gpu, but TensorFlow sees no GPU; use auto or cpu, or install distrl[gpu]")
    try:
        _set_threads(threads)
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        for gpu in tf.config.get_visible_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        # Somebody computed before us, as tests and notebooks do; results are the same, only speed and memory differ.
        logger.warning("TensorFlow is already running with other threads or devices, which stay: %s", error)
    tf.random.set_seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def _set_threads(threads: int) -> None:
    # Setting what is set already is allowed, but only asked for where it is needed: afterwards nothing may change.
    if tf.config.threading.get_intra_op_parallelism_threads() != threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    if tf.config.threading.get_inter_op_parallelism_threads() != threads:
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def fastest_dtype() -> Literal["float32", "bfloat16"]:
    """See `backend.fastest_dtype`: bfloat16 if there is no GPU and the CPU multiplies it.

    The Nature CNN then takes 0.6 of the time that float32 takes; with AVX-512 but without it, 2.5 times as long.
    """
    if tf.config.get_visible_devices("GPU") or not CPU_FLAGS.exists():
        return "float32"
    flags = set(CPU_FLAGS.read_text(encoding="utf-8").split())
    return "bfloat16" if flags & {"avx512_bf16", "amx_bf16"} else "float32"


class Gradients:
    """See `backend.Gradients`."""

    def __init__(self, loss: PureLoss, clip: Clip) -> None:
        self._loss = loss
        self._clip = clip
        self._compiled = Compiled(self._call)
        self.traces = 0

    def __call__(self, data: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        return self._compiled(data)  # type: ignore[no-any-return]

    def _call(self, data: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        self.traces += 1  # runs while tracing only
        loss, named, _, gradients = differentiate(self._loss, data)
        return loss, named, self._clip(gradients)


class Outputs:
    """See `backend.Outputs`."""

    def __init__(self, loss: PureLoss) -> None:
        self._loss = loss
        self._compiled = Compiled(self._call)
        self.traces = 0

    def __call__(self, data: Any) -> dict[str, Any]:
        return self._compiled(data)  # type: ignore[no-any-return]

    def _call(self, data: Any) -> dict[str, Any]:
        self.traces += 1  # runs while tracing only
        _, (named, _) = self._loss([], [variable.value for variable in self._loss.others], data)
        return named


class Step:
    """See `steps.Step`. XLA (`jit_compile`) is off: on a CPU no faster for small networks, and slow to start."""

    def __init__(self, loss: PureLoss, parts: Sequence[Part], replicas: int, reduce: Reduce) -> None:
        if replicas > 1:
            raise ConfigError(
                f"learner.replicas: {replicas} devices need learner.backend: jax; the TensorFlow learner has one"
            )
        self._loss = loss
        self._parts = parts
        self._reduce = reduce
        self._count = counting_part(parts).optimizer
        self.names: tuple[str, ...] = ()
        self._compiled = Compiled(self._step)
        self.traces = 0

    def __call__(self, data: Any) -> dict[str, Any]:
        # One vector, so that there is one transfer from the device however many metrics there are.
        scalars, arrays = self._compiled(data)
        told = dict(zip(self.names, scalars.numpy().tolist(), strict=True))
        return told | {name: array.numpy() for name, array in arrays.items()}

    def _step(self, data: Any) -> tuple[Any, dict[str, Any]]:
        self.traces += 1  # runs while tracing only
        scalars, arrays, _ = self.advance(data)
        return scalars, arrays

    def advance(self, data: Any, stop: tuple[str, float] | None = None) -> tuple[Any, dict[str, Any], Any]:
        """One step while tracing: its scalars, float32 [names], its arrays, and whether it was applied."""
        loss, named, others, gradients = differentiate(self._loss, data)
        gradients = self._reduce(gradients)
        norm = global_norm(gradients)
        learning_rate = tf.identity(self._parts[0].optimizer.learning_rate)  # before the update counts
        goes = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        if stop is not None:
            goes &= named[stop[0]] <= stop[1]
        self._apply(gradients, others, goes)
        arrays = {name: value for name, value in named.items() if len(value.shape) > 0}
        scalars = {name: value for name, value in named.items() if name not in arrays}
        scalars |= {"loss": loss, "gradient_norm": norm, "learning_rate": learning_rate}
        self.names = tuple(scalars)
        return tf.stack([tf.cast(value, tf.float32) for value in scalars.values()]), arrays, goes

    @property
    def variables(self) -> list[Any]:
        """All that a step assigns."""
        states = [variable for part in self._parts for variable in part.optimizer.variables]
        return [*self._loss.trainable, *self._loss.others, *states]

    def _apply(self, gradients: list[Any], others: list[Any], goes: Any) -> None:
        rest = iter(gradients)
        number = tf.identity(self._count.iterations.value) + 1  # of this update, before the count is written
        for part in self._parts:
            own = [next(rest) for _ in part.trainable]
            due = goes if part.every == 1 else goes & (number % part.every == 0)
            tensorflow_adam.apply(part.optimizer, part.clip(own), part.trainable, due)
        for variable, value in zip(self._loss.others, others, strict=True):
            variable.assign(tf.where(goes, value, variable.value))


class Epochs:
    """Several steps in one call of `steps.Step`: a loop in the graph."""

    def __init__(
        self,
        loss: PureLoss,
        parts: Sequence[Part],
        replicas: int,
        reduce: Reduce,
        take: Callable[[Any, Any], Any],
        stop: tuple[str, float] | None,
    ) -> None:
        self._one = Step(loss, parts, replicas, reduce)
        self._take = take
        self._stop = stop
        self._compiled = Compiled(self._call)
        self.traces = 0

    def __call__(self, data: Any, order: Array) -> tuple[tuple[str, ...], Array, int]:
        rows, steps = self._compiled(data, order)
        return self._one.names, rows.numpy(), int(steps)

    def _call(self, data: Any, order: Any) -> tuple[Any, Any]:
        self.traces += 1  # runs while tracing only
        variables = self._one.variables
        before = [tf.identity(variable.value) for variable in variables]

        def body(index: Any, _: Any, told: Any, steps: Any) -> tuple[Any, Any, Any, Any]:
            scalars, _, goes = self._one.advance(self._take(data, order[index]), self._stop)
            return index + 1, goes, told.write(index, scalars), steps + tf.cast(goes, tf.int32)

        told = tf.TensorArray(tf.float32, size=order.shape[0])
        index, _, told, steps = tf.while_loop(
            lambda index, goes, *_: (index < order.shape[0]) & goes,
            body,
            (tf.constant(0), tf.constant(True), told, tf.constant(0)),
            parallel_iterations=1,  # each step begins where the one before has ended
        )
        rows = told.gather(tf.range(index))
        finite = tf.reduce_all(tf.math.is_finite(rows[:, -3:-1]))  # loss and norm
        tf.cond(finite, lambda: True, lambda: _assign(variables, before))
        return rows, tf.where(finite, steps, 0)


class Apply:
    """See `backend.Apply`."""

    def __init__(self, optimizer: Any, variables: Sequence[Any]) -> None:
        self._optimizer = optimizer
        self._variables = list(variables)
        self._compiled = Compiled(self._apply)

    def __call__(self, gradients: Sequence[Array], scaler: float) -> None:
        self._compiled([np.asarray(gradient) for gradient in gradients], np.float32(scaler))

    def _apply(self, gradients: list[Any], scaler: Any) -> None:
        scaled = [gradient * scaler for gradient in gradients]
        tensorflow_adam.apply(self._optimizer, scaled, self._variables, tf.constant(True))


class Mix:
    """See `backend.Mix`."""

    def __init__(self, mixed: Sequence[Pair], copied: Sequence[Pair]) -> None:
        self._mixed = list(mixed)
        self._copied = list(copied)
        self._compiled = Compiled(self._mix)

    def __call__(self, shares: Array) -> None:
        self._compiled(shares)

    def _mix(self, shares: Any) -> None:
        for target, source in self._mixed:
            target.assign(shares[0] * source.value + shares[1] * target.value)
        for target, source in self._copied:
            target.assign(source.value)


class Read:
    """See `backend.Read`."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._compiled = Compiled(lambda: [tf.convert_to_tensor(variable.value) for variable in variables])

    def __call__(self) -> list[Array]:
        # numpy() copies, and makes no array of what has no axes.
        return [np.asarray(tensor.numpy()) for tensor in self._compiled()]


class Write:
    """See `backend.Write`."""

    def __init__(self, variables: Sequence[Sequence[Any]]) -> None:
        self._variables = [list(equal) for equal in variables]
        self._compiled = Compiled(self._assign)

    def __call__(self, arrays: Sequence[Array]) -> None:
        self._compiled(list(arrays))

    def _assign(self, arrays: list[Any]) -> None:
        for equal, array in zip(self._variables, arrays, strict=True):
            _assign(equal, [array] * len(equal))


def _assign(variables: Sequence[Any], values: Sequence[Any]) -> bool:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return False


def differentiate(loss: PureLoss, data: Any) -> tuple[Any, dict[str, Any], list[Any], list[Any]]:
    """Loss, named arrays, new values of the variables not trained, and gradients of those that are."""
    values = [tf.convert_to_tensor(variable.value) for variable in loss.trainable]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values)
        total, (named, others) = loss(values, [variable.value for variable in loss.others], data)
    gradients = tape.gradient(total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    # A gathered embedding's gradient is sparse; optimizers, clipping and accumulation want the dense one.
    return total, named, others, [tf.convert_to_tensor(gradient) for gradient in gradients]
