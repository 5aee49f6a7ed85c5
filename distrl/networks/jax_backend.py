"""JAX's half of `backend.py`, and the only one that shares a batch among several devices of one host."""

import logging
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distrl.errors import ConfigError
from distrl.networks.differentiation import Clip, PureLoss
from distrl.networks.optimizers import global_norm
from distrl.types import Array, Batch

logger = logging.getLogger(__name__)


def configure(*, device: str, threads: int, deterministic: bool, seed: int) -> None:
    """See `backend.configure`. There is nothing to seed: JAX has no generator of its own.

    The variables are read when JAX opens its devices, at the first operation of the process.
    """
    os.environ["NPROC"] = str(threads)  # XLA takes the size of its thread pools from nowhere else
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else three quarters of a GPU's memory
    if deterministic:
        # On CPUs operations repeat as they are.
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    platform = jax.default_backend()
    if device == "gpu" and platform != "gpu":
        raise ConfigError("learner.device: gpu, but JAX sees no GPU; use auto or cpu, or install JAX for your GPU")
    if device == "cpu" and platform != "cpu":
        logger.warning("learner.device: cpu, but JAX is already running on %s and stays there", platform)


class Shards:
    """Spreads batches over the first `replicas` devices, along the axis of sequences, and variables over all of them.

    The loss stays what it is: one mean over the whole batch, whose sums XLA takes over all devices. So k replicas make
    the same update as one. That they also share the work needs arrays whose axis of sequences is never merged into a
    faster one: networks flatten batches sequence by sequence.

    Attributes:
        everywhere: The sharding of what every device has a copy of; None with one replica, where JAX decides.

    Raises:
        ConfigError: There are fewer devices.
    """

    def __init__(self, replicas: int) -> None:
        self.everywhere: NamedSharding | None = None
        if replicas == 1:
            return
        devices = jax.devices()
        if len(devices) < replicas:
            kind = devices[0].platform
            virtual = f"; XLA_FLAGS=--xla_force_host_platform_device_count={replicas} makes virtual ones"
            raise ConfigError(
                f"learner.replicas: {replicas}, but JAX sees {len(devices)} device(s) of kind {kind}"
                f"{virtual if kind == 'cpu' else ''}"
            )
        mesh = Mesh(np.array(devices[:replicas]), ("sequences",))
        self.everywhere = NamedSharding(mesh, PartitionSpec())
        self._by_column = NamedSharding(mesh, PartitionSpec(None, "sequences"))
        self._by_row = NamedSharding(mesh, PartitionSpec("sequences"))

    def split(self, batch: Batch) -> Batch:
        """[T, N] and [T+1, N, …] are split along N, recurrent state [N, …] along its first axis."""
        if self.everywhere is None:
            return batch
        placed = {
            name: jax.device_put(value, self._by_row if name == "recurrent_state" else self._by_column)
            for name, value in batch._asdict().items()
        }
        return Batch(**placed)

    def copy(self, values: list[Any]) -> list[Any]:
        """A copy on every device; those that are there already, as after the first step, stay."""
        return values if self.everywhere is None else jax.device_put(values, self.everywhere)


class Gradients:
    """See `backend.Gradients`."""

    def __init__(self, loss: PureLoss, clip: Clip) -> None:
        self._loss = loss
        self._clip = clip
        self._compiled = jax.jit(self._call)
        self.traces = 0

    def __call__(self, data: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        return self._compiled(_values(self._loss.trainable), _values(self._loss.others), data)  # type: ignore[no-any-return]

    def _call(self, trainable: list[Any], others: list[Any], data: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        self.traces += 1  # runs while tracing only
        (loss, (named, _)), gradients = jax.value_and_grad(self._loss, has_aux=True)(trainable, others, data)
        return loss, named, self._clip(gradients)


class Outputs:
    """See `backend.Outputs`."""

    def __init__(self, loss: PureLoss) -> None:
        self._loss = loss
        self._compiled = jax.jit(self._call)
        self.traces = 0

    def __call__(self, data: Any) -> dict[str, Any]:
        return self._compiled(_values(self._loss.others), data)  # type: ignore[no-any-return]

    def _call(self, others: list[Any], data: Any) -> dict[str, Any]:
        self.traces += 1  # runs while tracing only
        _, (named, _) = self._loss([], others, data)
        return named


class Step:
    """See `backend.Step`.

    Buffers are not donated: copies of a network share theirs after a pull, and an update that is refused keeps its own.
    """

    def __init__(self, loss: PureLoss, optimizer: Any, clip: Clip, replicas: int) -> None:
        self._loss = loss
        self._optimizer = optimizer
        self._clip = clip
        self._variables = [*loss.trainable, *loss.others, *optimizer.variables]
        self._shards = Shards(replicas)
        self._names: tuple[str, ...] = ()
        # Said outright: an output that XLA left on one device, or in parts, would be another input to the next step.
        self._compiled = jax.jit(self._step, out_shardings=self._shards.everywhere)
        self.traces = 0

    def __call__(self, data: Any) -> dict[str, float]:
        # Whatever was assigned since the last step, from a checkpoint or as statistics, is on one device alone.
        values = self._shards.copy(_values(self._variables))
        after, metrics = self._compiled(values, self._shards.split(data))
        for variable, value in zip(self._variables, after, strict=True):
            variable.assign(value)
        return dict(zip(self._names, np.asarray(metrics).tolist(), strict=True))

    def _step(self, before: list[Any], data: Any) -> tuple[list[Any], Any]:
        self.traces += 1  # runs while tracing only
        end = len(self._loss.trainable)
        start_of_state = end + len(self._loss.others)
        trainable, others, state = before[:end], before[end:start_of_state], before[start_of_state:]
        (loss, (named, others_after)), gradients = jax.value_and_grad(self._call, has_aux=True)(trainable, others, data)
        norm = global_norm(gradients)
        learning_rate = self._learning_rate(state)
        trained, state_after = self._optimizer.stateless_apply(state, self._clip(gradients), trainable)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        after = [*trained, *others_after, *state_after]
        kept = [jnp.where(finite, new, old) for new, old in zip(after, before, strict=True)]
        metrics = jnp.stack([jnp.asarray(value, jnp.float32) for value in (*named, loss, norm, learning_rate)])
        return kept, metrics

    def _call(self, trainable: list[Any], others: list[Any], data: Any) -> tuple[Any, tuple[list[Any], list[Any]]]:
        loss, (named, after) = self._loss(trainable, others, data)
        # As a list, since JAX would put a dictionary into alphabetical order.
        self._names = (*named, "loss", "gradient_norm", "learning_rate")
        return loss, (list(named.values()), after)

    def _learning_rate(self, state: list[Any]) -> Any:
        """Of this update, before it counts."""
        with keras.StatelessScope(state_mapping=list(zip(self._optimizer.variables, state, strict=True))):
            return jnp.asarray(self._optimizer.learning_rate)


class Apply:
    """See `backend.Apply`."""

    def __init__(self, optimizer: Any, variables: Sequence[Any]) -> None:
        self._optimizer = optimizer
        self._variables = list(variables)
        self._compiled = jax.jit(self._apply)

    def __call__(self, gradients: Sequence[Array], scaler: float) -> None:
        state, variables = self._optimizer.variables, self._variables
        after, state_after = self._compiled(_values(variables), _values(state), list(gradients), np.float32(scaler))
        for variable, value in zip([*variables, *state], [*after, *state_after], strict=True):
            variable.assign(value)

    def _apply(self, values: list[Any], state: list[Any], gradients: list[Any], scaler: Any) -> tuple[Any, Any]:
        scaled = [gradient * scaler for gradient in gradients]
        return self._optimizer.stateless_apply(state, scaled, values)  # type: ignore[no-any-return]


def _values(variables: Sequence[Any]) -> list[Any]:
    return [variable.value for variable in variables]
