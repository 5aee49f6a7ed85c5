"""TensorFlow's half of `backend.py`."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from distrl.errors import ConfigError
from distrl.networks.differentiation import Clip, PureLoss
from distrl.networks.optimizers import global_norm
from distrl.types import Array

logger = logging.getLogger(__name__)


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


class Gradients:
    """See `backend.Gradients`."""

    def __init__(self, loss: PureLoss, clip: Clip) -> None:
        self._loss = loss
        self._clip = clip
        self._compiled = tf.function(self._call, autograph=False)
        self.traces = 0

    def __call__(self, data: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        return self._compiled(data)  # type: ignore[no-any-return]

    def _call(self, data: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        self.traces += 1
        loss, named, _, gradients = differentiate(self._loss, data)
        return loss, named, self._clip(gradients)


class Outputs:
    """See `backend.Outputs`."""

    def __init__(self, loss: PureLoss) -> None:
        self._loss = loss
        self._compiled = tf.function(self._call, autograph=False)
        self.traces = 0

    def __call__(self, data: Any) -> dict[str, Any]:
        return self._compiled(data)  # type: ignore[no-any-return]

    def _call(self, data: Any) -> dict[str, Any]:
        self.traces += 1
        _, (named, _) = self._loss([], [variable.value for variable in self._loss.others], data)
        return named


class Step:
    """See `backend.Step`. XLA (`jit_compile`) is off: on a CPU no faster for small networks, and slow to start."""

    def __init__(self, loss: PureLoss, optimizer: Any, clip: Clip, replicas: int) -> None:
        if replicas > 1:
            raise ConfigError(
                f"learner.replicas: {replicas} devices need learner.backend: jax; the TensorFlow learner has one"
            )
        self._loss = loss
        self._optimizer = optimizer
        self._clip = clip
        self._names: tuple[str, ...] = ()
        self._compiled = tf.function(self._step, jit_compile=False, autograph=False)
        self.traces = 0

    def __call__(self, data: Any) -> dict[str, float]:
        # One vector, so that there is one transfer from the device however many metrics there are.
        values = self._compiled(data).numpy().tolist()
        return dict(zip(self._names, values, strict=True))

    def _step(self, data: Any) -> Any:
        self.traces += 1  # runs while tracing only
        loss, named, others, gradients = differentiate(self._loss, data)
        norm = global_norm(gradients)
        learning_rate = tf.identity(self._optimizer.learning_rate)  # before the update counts
        finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        tf.cond(finite, lambda: self._apply(gradients, others), lambda: False)
        metrics = {**named, "loss": loss, "gradient_norm": norm, "learning_rate": learning_rate}
        self._names = tuple(metrics)
        return tf.stack([tf.cast(value, tf.float32) for value in metrics.values()])

    def _apply(self, gradients: list[Any], others: list[Any]) -> bool:
        self._optimizer.apply(self._clip(gradients), self._loss.trainable)
        for variable, value in zip(self._loss.others, others, strict=True):
            variable.assign(value)
        return True


class Apply:
    """See `backend.Apply`."""

    def __init__(self, optimizer: Any, variables: Sequence[Any]) -> None:
        self._optimizer = optimizer
        self._variables = list(variables)
        self._compiled = tf.function(self._apply, autograph=False)

    def __call__(self, gradients: Sequence[Array], scaler: float) -> None:
        self._compiled([np.asarray(gradient) for gradient in gradients], np.float32(scaler))

    def _apply(self, gradients: list[Any], scaler: Any) -> None:
        self._optimizer.apply([gradient * scaler for gradient in gradients], self._variables)


def differentiate(loss: PureLoss, data: Any) -> tuple[Any, dict[str, Any], list[Any], list[Any]]:
    """Loss, named arrays, new values of the variables not trained, and gradients of those that are."""
    values = [tf.convert_to_tensor(variable.value) for variable in loss.trainable]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values)
        total, (named, others) = loss(values, [variable.value for variable in loss.others], data)
    gradients = tape.gradient(total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    # A gathered embedding's gradient is sparse; optimizers, clipping and accumulation want the dense one.
    return total, named, others, [tf.convert_to_tensor(gradient) for gradient in gradients]
