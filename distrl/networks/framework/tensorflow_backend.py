"""TensorFlow behind `backend.py`."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from distrl.errors import ConfigError
from distrl.networks.framework.differentiation import (
    Clip,
    Pair,
    Part,
    Prelude,
    PureLoss,
    Reduce,
    ScalarFunction,
    counting_part,
)
from distrl.networks.framework.optimizers import global_norm
from distrl.networks.framework.tensorflow_calls import Compiled
from distrl.types import Array

logger = logging.getLogger(__name__)
CPU_FLAGS = Path("/proc/cpuinfo")  # on Linux; elsewhere the flags are unknown
COMPILED = "traced"
VERSION: str = tf.__version__


def configure(*, device: str, threads: int, deterministic: bool, seed: int) -> None:
    """Set TensorFlow up for this process, before anything computes.

    Args:
        device: cpu hides all GPUs; gpu requires one; auto takes one if there is one.
        threads: Numeric threads within and between operations.
        deterministic: Operations give the same bits in every run, at some cost in speed on GPUs.
        seed: Seed of TensorFlow's own random operations.

    Raises:
        ConfigError: A GPU is required and there is none.
    """
    if device == "gpu" and not tf.config.list_physical_devices("GPU"):
        raise ConfigError("learner.device: gpu, but TensorFlow sees no GPU; use auto or cpu, or install distrl[gpu]")
    try:
        _set_threads(threads)
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        for gpu in tf.config.get_visible_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        # Something computed before, as in tests and notebooks; only speed and memory differ.
        logger.warning("TensorFlow is already running with other threads or devices, which stay: %s", error)
    tf.random.set_seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def _set_threads(threads: int) -> None:
    # Once TensorFlow runs, setting a number raises even if it stays the same in effect.
    if tf.config.threading.get_intra_op_parallelism_threads() != threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    if tf.config.threading.get_inter_op_parallelism_threads() != threads:
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def accelerator() -> str | None:
    """See `backend`."""
    gpus = tf.config.get_visible_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU") if gpus else None


def on_accelerator() -> AbstractContextManager[None]:
    """Return a context without effect: TensorFlow computes there in any case."""
    return nullcontext()


def cpu_dtype() -> Literal["float32", "bfloat16"]:
    """Return bfloat16 if the CPU has instructions that multiply it, otherwise float32.

    With them the Nature CNN takes 0.6 of float32's time; with AVX-512 but without them, 2.5 times as long.
    """
    if not CPU_FLAGS.exists():
        return "float32"
    flags = set(CPU_FLAGS.read_text(encoding="utf-8").split())
    return "bfloat16" if flags & {"avx512_bf16", "amx_bf16"} else "float32"


def loops() -> bool:
    """Return False: TensorFlow's loops run slower than their steps one by one."""
    return False


def copy_ahead(replicas: int) -> None:
    """Return None, see `backend`: NumPy code of algorithms cannot read TensorFlow's arrays, which lack its methods."""
    del replicas


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """See `backend`."""
    return Compiled(function)


def building() -> AbstractContextManager[None]:
    """Return a context without effect: variables stay on the device on which they are made."""
    return nullcontext()


def as_one_program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as it is: TensorFlow has its operations compiled."""
    return function


def compiled_gradients(loss: PureLoss, clip: Clip) -> Callable[[Any], tuple[Any, dict[str, Any], list[Any], list[Any]]]:
    """See `backend`."""

    def call(data: Any) -> tuple[Any, dict[str, Any], list[Any], list[Any]]:
        value, named, after, gradients = differentiate(loss, data)
        return value, named, [tf.convert_to_tensor(each) for each in after], clip(gradients)

    return Compiled(call)


def compiled_outputs(loss: PureLoss) -> Callable[[Any], dict[str, Any]]:
    """See `backend`."""

    def call(data: Any) -> dict[str, Any]:
        _, (named, _) = loss([], [variable.value for variable in loss.others], data)
        return named

    return Compiled(call)


def value_and_gradients(function: ScalarFunction, values: list[Any]) -> tuple[Any, list[Any]]:
    """See `backend`."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values)
        value = function(values)
    return value, _dense(tape.gradient(value, values, unconnected_gradients=tf.UnconnectedGradients.ZERO))


def hessian_product(function: ScalarFunction, values: list[Any]) -> Callable[[list[Any]], list[Any]]:
    """See `backend`. The gradient of the gradient's product with the vectors, which computes both again each time."""

    def product(vectors: list[Any]) -> list[Any]:
        here = [tf.identity(value) for value in values]  # tensors of this graph, which may be a loop's body
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(here)
            _, gradients = value_and_gradients(function, here)
            along = tf.add_n([tf.reduce_sum(one * other) for one, other in zip(gradients, vectors, strict=True)])
        return _dense(tape.gradient(along, here, unconnected_gradients=tf.UnconnectedGradients.ZERO))

    return product


class Step:
    """See `steps.Step`. XLA (`jit_compile`) is off: on CPUs it is no faster for small networks, and starts slowly."""

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

    def __call__(self, data: Any) -> dict[str, Any]:
        # One vector, so that all metrics take one transfer from the device.
        scalars, arrays = self._compiled(data)
        metrics = dict(zip(self.names, scalars.numpy().tolist(), strict=True))
        return metrics | {name: array.numpy() for name, array in arrays.items()}

    def compile(self, data: Any) -> None:
        """Trace a call with data of this form."""
        self._compiled.trace(data)

    def _step(self, data: Any) -> tuple[Any, dict[str, Any]]:
        scalars, arrays, _ = self.advance(data)
        return scalars, arrays

    def advance(self, data: Any, stop: tuple[str, float] | None = None) -> tuple[Any, dict[str, Any], Any]:
        """Take one step while tracing: return scalars, float32 [names], arrays, and whether it was applied."""
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
        """All variables that a step assigns."""
        states = [variable for part in self._parts for variable in part.optimizer.variables]
        return [*self._loss.trainable, *self._loss.others, *states]

    def _apply(self, gradients: list[Any], others: list[Any], goes: Any) -> None:
        rest = iter(gradients)
        number = tf.identity(self._count.iterations.value) + 1  # number of this update, before the count is written
        for part in self._parts:
            own = [next(rest) for _ in part.trainable]
            due = goes if part.every == 1 else goes & (number % part.every == 0)
            _apply(part.optimizer, part.clip(own), part.trainable, due)
        for variable, value in zip(self._loss.others, others, strict=True):
            variable.assign(tf.where(goes, value, variable.value))


class Epochs:
    """Several steps in one call, as a loop in the graph."""

    def __init__(
        self, step: Step, take: Callable[[Any, Any], Any], stop: tuple[str, float] | None, prelude: Prelude | None
    ) -> None:
        self._one = step
        self._take = take
        self._stop = stop
        self._prelude = prelude
        self._moved = [] if prelude is None else list(prelude.moves)
        self._compiled = Compiled(self._call)

    def __call__(self, data: Any, order: Array) -> tuple[tuple[str, ...], Array, int, dict[str, float]]:
        rows, steps, first = self._compiled(data, order)
        return self._one.names, rows.numpy(), int(steps), {name: float(scalar) for name, scalar in first.items()}

    def compile(self, data: Any, order: Array) -> None:
        """Trace a call with data and order of this form."""
        self._compiled.trace(data, order)

    def _call(self, data: Any, order: Any) -> tuple[Any, Any, dict[str, Any]]:
        variables = [*self._one.variables, *self._moved]
        before = [tf.identity(variable.value) for variable in variables]
        first: dict[str, Any] = {}
        if self._prelude is not None:
            values, data, scalars = self._prelude.function(data)
            # A variable among them is read before any is assigned.
            first = {name: tf.identity(scalar) for name, scalar in scalars.items()}
            _assign(self._moved, [tf.identity(value) for value in values])

        def body(index: Any, _: Any, rows: Any, steps: Any) -> tuple[Any, Any, Any, Any]:
            scalars, _, goes = self._one.advance(self._take(data, order[index]), self._stop)
            return index + 1, goes, rows.write(index, scalars), steps + tf.cast(goes, tf.int32)

        rows = tf.TensorArray(tf.float32, size=order.shape[0])
        index, _, rows, steps = tf.while_loop(
            lambda index, goes, *_: (index < order.shape[0]) & goes,
            body,
            (tf.constant(0), tf.constant(True), rows, tf.constant(0)),
            parallel_iterations=1,  # each step starts from the result of the one before
        )
        rows = rows.gather(tf.range(index))
        finite = tf.reduce_all(tf.math.is_finite(rows[:, -3:-1]))  # loss and norm
        for scalar in first.values():
            finite &= tf.math.is_finite(scalar)
        tf.cond(finite, lambda: True, lambda: _assign(variables, before))
        return rows, tf.where(finite, steps, 0), first


def compiled_apply(optimizer: Any, variables: Sequence[Any]) -> Callable[..., None]:
    """See `backend`."""

    def call(gradients: list[Any], scaler: Any) -> None:
        _apply(optimizer, [gradient * scaler for gradient in gradients], variables, tf.constant(True))

    compiled = Compiled(call)

    def apply(gradients: Sequence[Array], scaler: float = 1.0) -> None:
        compiled([np.asarray(gradient) for gradient in gradients], np.float32(scaler))

    return apply


def compiled_mix(mixed: Sequence[Pair], copied: Sequence[Pair]) -> Callable[[float], None]:
    """See `backend`."""

    def call(shares: Any) -> None:
        for target, source in mixed:
            target.assign(shares[0] * source.value + shares[1] * target.value)
        for target, source in copied:
            target.assign(source.value)

    compiled = Compiled(call)

    def mix(rate: float) -> None:
        compiled(np.array([rate, 1.0 - rate], np.float32))  # both shares are rounded once, from double precision

    return mix


def compiled_read(variables: Sequence[Any]) -> Callable[[], list[Array]]:
    """See `backend`."""
    compiled = Compiled(lambda: [tf.convert_to_tensor(variable.value) for variable in variables])
    # numpy() copies, and returns no array for tensors without axes.
    return lambda: [np.asarray(tensor.numpy()) for tensor in compiled()]


def compiled_write(groups: Sequence[Sequence[Any]]) -> Callable[[Sequence[Array]], None]:
    """See `backend`."""

    def call(arrays: list[Any]) -> None:
        for equal, array in zip(groups, arrays, strict=True):
            _assign(equal, [array] * len(equal))

    compiled = Compiled(call)
    return lambda arrays: compiled(list(arrays))


def _assign(variables: Sequence[Any], values: Sequence[Any]) -> bool:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return False


def differentiate(loss: PureLoss, data: Any) -> tuple[Any, dict[str, Any], list[Any], list[Any]]:
    """Return loss, named arrays, new values of `others`, and gradients."""
    values = [tf.convert_to_tensor(variable.value) for variable in loss.trainable]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values)
        total, (named, others) = loss(values, [variable.value for variable in loss.others], data)
    gradients = tape.gradient(total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return total, named, others, _dense(gradients)


def _dense(gradients: Sequence[Any]) -> list[Any]:
    """Return dense gradients, for optimizers, clipping and accumulation; that of an embedding is sparse."""
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _apply(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], goes: Any) -> None:
    """Take one step of an optimizer while tracing, if `goes`, bool []; otherwise keep weights, moments and the count.

    Adam takes one operation per weight here. Keras writes it as twenty, more than half of them on single numbers: a
    tenth of a small network's update, a fifth of one of three networks, and half of its tracing time. If the step is
    not taken, gradients may be NaN.
    """
    if type(optimizer) is keras.optimizers.Adam and _is_plain(optimizer, variables):
        _adam(optimizer, gradients, variables, goes)
        return

    def step() -> bool:
        optimizer.apply(gradients, variables)
        return True

    tf.cond(goes, step, lambda: False)


def _is_plain(optimizer: Any, variables: Sequence[Any]) -> bool:
    """Return whether the formula of `_adam` is all that the optimizer does."""
    options = ("amsgrad", "weight_decay", "use_ema", "gradient_accumulation_steps", "loss_scale_factor")
    clips = ("clipnorm", "clipvalue", "global_clipnorm")
    float32 = all(variable.dtype == "float32" and variable.constraint is None for variable in variables)
    return float32 and not any(getattr(optimizer, name) for name in (*options, *clips))


def _adam(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], goes: Any) -> None:
    """Kingma and Ba 2015, end of section 2, as in Keras:

        m <- m + (1 - beta_1) (g - m),   v <- v + (1 - beta_2) (g^2 - v)
        w <- w - alpha m / (sqrt(v) + epsilon),   alpha = rate sqrt(1 - beta_2^t) / (1 - beta_1^t)

    With g = 0, betas = 1 and rate = 0 nothing changes, which is cheaper than a branch.
    """
    beta_1, beta_2 = (tf.constant(beta, tf.float32) for beta in (optimizer.beta_1, optimizer.beta_2))
    count = tf.cast(optimizer.iterations.value, tf.float32) + 1.0
    numbers = {
        "beta1_power": tf.pow(beta_1, count),
        "beta2_power": tf.pow(beta_2, count),
        "lr": tf.where(goes, tf.cast(optimizer.learning_rate, tf.float32), 0.0),
        "beta1": tf.where(goes, beta_1, 1.0),
        "beta2": tf.where(goes, beta_2, 1.0),
        "epsilon": tf.where(goes, tf.constant(optimizer.epsilon, tf.float32), 1.0),  # epsilon and v may be 0
    }
    moments = optimizer.variables[-2 * len(variables) :]  # pairs, after the count and the rate
    for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
        momentum, velocity = moments[2 * index : 2 * index + 2]
        tf.raw_ops.ResourceApplyAdam(
            var=variable.value.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            grad=tf.where(goes, gradient, 0.0),
            **numbers,
        )
    optimizer.iterations.assign_add(tf.cast(goes, optimizer.iterations.dtype))
