"""What differs between numeric frameworks: set-up, and the compiled step that differentiates and applies.

The only module beside `bundle.py` that knows TensorFlow.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from distrl.errors import ConfigError
from distrl.types import Batch

logger = logging.getLogger(__name__)

LossFunction = Callable[[dict[str, Any], Batch], tuple[Any, dict[str, Any]]]
"""(outputs: name -> [T+1, N, ...], batch [T, N]) -> (loss to minimise, name -> scalar metric)."""

Unroll = Callable[[dict[str, Any], dict[str, Any], Any], dict[str, Any]]
"""`Architecture.unroll`."""


def configure(*, device: Literal["auto", "cpu", "gpu"], threads: int, deterministic: bool, seed: int) -> None:
    """Sets TensorFlow up for this process. Call it before anything computes.

    Args:
        device: cpu hides all GPUs; gpu demands one; auto takes one if there is one.
        threads: Numeric threads within and between operations.
        deterministic: Operations give the same bits in every run, at some cost in speed on GPUs.
        seed: Of TensorFlow's own random operations.

    Raises:
        ConfigError: A GPU is demanded and there is none.
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


class CompiledStep:
    """Forward, loss, backward and optimizer as one compiled function; one trace per batch shape.

    XLA (`jit_compile`) is off: for small networks on a CPU it is no faster and doubles the time to the first update.

    Attributes:
        traces: How often the step was traced. More than one per batch shape means lost time.

    Args:
        unroll: From observations, recurrent state and valid to outputs.
        variables: Trainable variables that the loss is differentiated by.
        optimizer: Built on the variables it is applied to; clips by itself.
        loss_function: Traced once.
        global_variables: Where gradients are applied instead of `variables`, which are then set to them.
    """

    def __init__(
        self,
        *,
        unroll: Unroll,
        variables: Sequence[Any],
        optimizer: Any,
        loss_function: LossFunction,
        global_variables: Sequence[Any] | None = None,
    ) -> None:
        self._unroll = unroll
        self._variables = list(variables)
        self._optimizer = optimizer
        self._loss_function = loss_function
        self._global_variables = None if global_variables is None else list(global_variables)
        self._metric_names: tuple[str, ...] = ()
        self._compiled = tf.function(self._step, jit_compile=False, autograph=False)
        self.traces = 0

    def __call__(self, batch: Batch) -> dict[str, float | bool]:
        """One update, applied unless loss or gradients are NaN or infinite.

        Args:
            batch: NumPy arrays. They are copied to the device: 0.1 to 0.2 ms for 8,192 rows of four floats.

        Returns:
            The loss function's metrics, and loss, gradient_norm (global, before clipping), learning_rate (of this
            update) and finite: False if the update was not applied and every variable is as it was.
        """
        # One vector, so that there is one transfer from the device however many metrics there are.
        values = self._compiled(batch).numpy().tolist()
        metrics: dict[str, float | bool] = dict(zip(self._metric_names, values, strict=True))
        metrics["finite"] = bool(np.isfinite(metrics["loss"]) and np.isfinite(metrics["gradient_norm"]))
        return metrics

    def _step(self, batch: Batch) -> Any:
        self.traces += 1  # runs while tracing only
        with tf.GradientTape() as tape:
            outputs = self._unroll(batch.observations, batch.recurrent_state, batch.valid)
            loss, metrics = self._loss_function(outputs, batch)
        values = [variable.value for variable in self._variables]
        gradients = tape.gradient(loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        norm = tf.linalg.global_norm(gradients)
        learning_rate = tf.identity(self._optimizer.learning_rate)  # before the update counts
        finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        tf.cond(finite, lambda: self._apply(gradients), lambda: False)
        metrics = {**metrics, "loss": loss, "gradient_norm": norm, "learning_rate": learning_rate}
        self._metric_names = tuple(metrics)
        return tf.stack([tf.cast(value, tf.float32) for value in metrics.values()])

    def _apply(self, gradients: list[Any]) -> bool:
        if self._global_variables is None:
            self._optimizer.apply(gradients, self._variables)
            return True
        self._optimizer.apply(gradients, self._global_variables)
        for variable, source in zip(self._variables, self._global_variables, strict=True):
            variable.assign(source.value)
        return True
