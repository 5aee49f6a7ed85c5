"""JAX's half of `backend.py`, and the only one that shares a batch among several devices of one host."""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distrl.errors import ConfigError
from distrl.networks.framework.cache import cache_directory, processor
from distrl.networks.framework.differentiation import Clip, Pair, Part, PureLoss, Reduce, counting_part
from distrl.networks.framework.optimizers import global_norm
from distrl.types import Array

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
    _keep_compiled()
    platform = jax.default_backend()
    if device == "gpu" and platform != "gpu":
        raise ConfigError("learner.device: gpu, but JAX sees no GPU; use auto or cpu, or install JAX for your GPU")
    if device == "cpu" and platform != "cpu":
        logger.warning("learner.device: cpu, but JAX is already running on %s and stays there", platform)


def _keep_compiled() -> None:
    """Compiled programs, of single operations too, are kept for later processes on machines like this one.

    Without that a learner compiles some seventy of them before its first update. JAX's own settings come first:
    JAX_COMPILATION_CACHE_DIR names another folder, JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_directory("jax") / f"{jax.__version__}-{processor()}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def fastest_dtype() -> Literal["float32"]:
    """See `backend.fastest_dtype`. On a CPU, XLA took as long for the Nature CNN in bfloat16 as in float32."""
    return "float32"


_BY_ROW = ("recurrent_state", "importance_weights")
"""Fields of a batch without an axis of time, which its other fields have first."""


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

    def split(self, batch: Any) -> Any:
        """[T, N] and [T+1, N, …] are split along N, recurrent state [N, …] along its first axis.

        Args:
            batch: A `Batch`, or another named tuple with such fields; also while tracing.
        """
        if self.everywhere is None:
            return batch
        placed = {
            name: jax.device_put(value, self._by_row if name in _BY_ROW else self._by_column)
            for name, value in batch._asdict().items()
        }
        return type(batch)(**placed)

    def copy(self, values: Any) -> Any:
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
    """See `steps.Step`.

    Buffers are not donated: copies of a network share theirs after a pull, and an update that is refused keeps its own.
    """

    def __init__(self, loss: PureLoss, parts: Sequence[Part], replicas: int, reduce: Reduce) -> None:
        self._loss = loss
        self._parts = parts
        self._reduce = reduce
        self._count = counting_part(parts).optimizer
        states = [variable for part in parts for variable in part.optimizer.variables]
        self.variables = [*loss.trainable, *loss.others, *states]
        self.shards = Shards(replicas)
        self.names: tuple[str, ...] = ()
        # Said outright: an output that XLA left on one device, or in parts, would be another input to the next step.
        self._compiled = jax.jit(self._step, out_shardings=self.shards.everywhere)
        self.traces = 0

    def __call__(self, data: Any) -> dict[str, Any]:
        # Whatever was assigned since the last step, from a checkpoint or as statistics, is on one device alone.
        values = self.shards.copy(_values(self.variables))
        constants = self.shards.copy(_values(self._loss.constants))
        after, scalars, arrays = self._compiled(values, constants, self.shards.split(data))
        for variable, value in zip(self.variables, after, strict=True):
            variable.assign(value)
        told = dict(zip(self.names, np.asarray(scalars).tolist(), strict=True))
        return told | {name: np.asarray(array) for name, array in arrays.items()}

    def _step(self, before: list[Any], constants: list[Any], data: Any) -> tuple[list[Any], Any, dict[str, Any]]:
        self.traces += 1  # runs while tracing only
        after, metrics, arrays, finite = self.advance(before, constants, data)
        kept = [jnp.where(finite, new, old) for new, old in zip(after, before, strict=True)]
        return kept, metrics, arrays

    def advance(self, before: list[Any], constants: list[Any], data: Any) -> tuple[list[Any], Any, dict[str, Any], Any]:
        """One step while tracing: values after it, its scalars, float32 [names], its arrays; whether it is finite."""
        end = len(self._loss.trainable)
        start_of_state = end + len(self._loss.others)
        trainable, others, state = before[:end], before[end:start_of_state], before[start_of_state:]
        (loss, (scalars, arrays, others_after)), gradients = jax.value_and_grad(self._call, has_aux=True)(
            trainable, others, constants, data
        )
        gradients = self._reduce(gradients)
        norm = global_norm(gradients)
        learning_rate, number = self._rate_and_number(state)
        trained, state_after = self._apply(state, gradients, trainable, number)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        after = [*trained, *others_after, *state_after]
        metrics = jnp.stack([jnp.asarray(value, jnp.float32) for value in (*scalars, loss, norm, learning_rate)])
        return after, metrics, arrays, finite

    def _call(
        self, trainable: list[Any], others: list[Any], constants: list[Any], data: Any
    ) -> tuple[Any, tuple[list[Any], dict[str, Any], list[Any]]]:
        loss, (named, after) = self._loss(trainable, others, data, constants)
        arrays = {name: value for name, value in named.items() if jnp.ndim(value) > 0}
        scalars = {name: value for name, value in named.items() if name not in arrays}
        # As a list, since JAX would put a dictionary into alphabetical order.
        self.names = (*scalars, "loss", "gradient_norm", "learning_rate")
        return loss, (list(scalars.values()), arrays, after)

    def _apply(
        self, state: list[Any], gradients: list[Any], trainable: list[Any], number: Any
    ) -> tuple[list[Any], list[Any]]:
        """Trainable variables and all optimizers' states after the update of this number, in order."""
        trained: list[Any] = []
        states: list[Any] = []
        for part in self._parts:
            of_part = slice(len(trained), len(trained) + len(part.trainable))
            before = state[len(states) : len(states) + len(part.optimizer.variables)]
            still = trainable[of_part]
            moved, after = part.optimizer.stateless_apply(before, part.clip(gradients[of_part]), still)
            if part.every > 1:
                due = number % part.every == 0
                moved = [jnp.where(due, new, old) for new, old in zip(moved, still, strict=True)]
                after = [jnp.where(due, new, old) for new, old in zip(after, before, strict=True)]
            trained += moved
            states += after
        return trained, states

    def _rate_and_number(self, state: list[Any]) -> tuple[Any, Any]:
        """The learning rate of this update and the first part, before it counts, and the update's number from 1."""
        variables = [variable for part in self._parts for variable in part.optimizer.variables]
        with keras.StatelessScope(state_mapping=list(zip(variables, state, strict=True))):
            return jnp.asarray(self._parts[0].optimizer.learning_rate), self._count.iterations.value + 1


class Epochs:
    """Several steps in one call of `steps.Step`: a scan, which goes on without effect after it has stopped."""

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
        self._compiled = jax.jit(self._call, out_shardings=self._one.shards.everywhere)
        self.traces = 0

    def __call__(self, data: Any, order: Array) -> tuple[tuple[str, ...], Array, int]:
        variables, shards = self._one.variables, self._one.shards
        after, told, looked_at, steps = self._compiled(shards.copy(_values(variables)), shards.copy(data), order)
        for variable, value in zip(variables, after, strict=True):
            variable.assign(value)
        return self._one.names, np.asarray(told)[np.asarray(looked_at)], int(steps)

    def _call(self, before: list[Any], data: Any, order: Any) -> tuple[list[Any], Any, Any, Any]:
        self.traces += 1  # runs while tracing only

        def body(carried: tuple[list[Any], Any], items: Any) -> tuple[tuple[list[Any], Any], tuple[Any, Any, Any]]:
            values, goes_on = carried
            minibatch = self._one.shards.split(self._take(data, items))
            after, scalars, _, goes = self._one.advance(values, [], minibatch)
            if self._stop is not None:
                goes &= scalars[self._one.names.index(self._stop[0])] <= self._stop[1]
            goes &= goes_on
            kept = [jnp.where(goes, new, old) for new, old in zip(after, values, strict=True)]
            return (kept, goes), (scalars, goes_on, goes)

        (after, _), (told, looked_at, applied) = jax.lax.scan(body, (before, jnp.asarray(True)), jnp.asarray(order))
        finite = jnp.all(jnp.isfinite(told[:, -3:-1]) | ~looked_at[:, None])  # loss and norm
        kept = [jnp.where(finite, new, old) for new, old in zip(after, before, strict=True)]
        return kept, told, looked_at, jnp.where(finite, jnp.sum(applied), 0)


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


class Mix:
    """See `backend.Mix`."""

    def __init__(self, mixed: Sequence[Pair], copied: Sequence[Pair]) -> None:
        self._targets, self._sources = [target for target, _ in mixed], [source for _, source in mixed]
        self._copied = list(copied)
        self._compiled = jax.jit(self._mix)

    def __call__(self, shares: Array) -> None:
        mixed = self._compiled(_values(self._targets), _values(self._sources), shares) if self._targets else []
        for target, value in zip(self._targets, mixed, strict=True):
            target.assign(value)
        for target, source in self._copied:
            target.assign(source.value)

    def _mix(self, targets: list[Any], sources: list[Any], shares: Any) -> list[Any]:
        return [shares[0] * source + shares[1] * target for target, source in zip(targets, sources, strict=True)]


class Read:
    """See `backend.Read`: JAX asks for all of them before it waits for the first."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = list(variables)

    def __call__(self) -> list[Array]:
        return [np.array(value) for value in jax.device_get(_values(self._variables))]


class Write:
    """See `backend.Write`."""

    def __init__(self, variables: Sequence[Sequence[Any]]) -> None:
        self._variables = [list(equal) for equal in variables]

    def __call__(self, arrays: Sequence[Array]) -> None:
        for equal, array in zip(self._variables, arrays, strict=True):
            value = jnp.array(array)  # a copy: asarray may keep the caller's memory
            for variable in equal:
                variable.assign(value)


def _values(variables: Sequence[Any]) -> list[Any]:
    return [variable.value for variable in variables]
