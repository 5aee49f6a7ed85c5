"""JAX behind `backend.py`; only JAX shares a batch among several devices of one host."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distrl.errors import ConfigError
from distrl.networks.framework.cache import cache_directory, processor
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
from distrl.types import Array

logger = logging.getLogger(__name__)
COMPILED = "compiled or read from the cache"
VERSION: str = jax.__version__
_COMPILERS = "--xla_gpu_force_compilation_parallelism"
"""XLA's flag for the threads that compile for a GPU, which otherwise are as many as compute. All machines have the same
number: it is part of a cached program's key."""


def configure(*, device: str, threads: int, deterministic: bool, seed: int) -> None:
    """Set JAX up for this process; for the arguments see `tensorflow_backend.configure`.

    `seed` is unused, as JAX has no generator of its own. JAX reads the environment variables at its first operation.
    """
    os.environ["NPROC"] = str(threads)  # the only setting of the size of XLA's thread pools
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # default: three quarters of a GPU's memory
    flags = os.environ.get("XLA_FLAGS", "")
    if deterministic:
        flags += " --xla_gpu_deterministic_ops=true"  # operations on CPUs are deterministic anyway
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    elif _COMPILERS not in flags:
        flags += f" {_COMPILERS}=8"
    os.environ["XLA_FLAGS"] = flags.strip()
    _keep_compiled()
    platform = jax.default_backend()
    if device == "gpu" and platform != "gpu":
        raise ConfigError("learner.device: gpu, but JAX sees no GPU; use auto or cpu, or install distrl[jax-cuda]")
    if device == "cpu" and platform != "cpu":
        logger.warning("learner.device: cpu, but JAX is already running on %s and stays there", platform)


def _keep_compiled() -> None:
    """Cache compiled programs, also of single operations, for later processes on machines like this one.

    Without it a learner compiles some seventy programs before its first update. JAX's own settings have priority:
    JAX_COMPILATION_CACHE_DIR names another folder, JAX_ENABLE_COMPILATION_CACHE=false turns the cache off.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_directory("jax") / f"{jax.__version__}-{processor()}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def accelerator() -> str | None:
    """See `backend`."""
    return None if jax.default_backend() == "cpu" else str(jax.devices()[0].device_kind)


def on_accelerator() -> AbstractContextManager[Any]:
    """See `backend`."""
    device: AbstractContextManager[Any] = jax.default_device(jax.devices()[0])
    return device


def cpu_dtype() -> Literal["float32", "bfloat16"]:
    """Return float32: on a CPU, XLA took as long for the Nature CNN in bfloat16."""
    return "float32"


def loops() -> bool:
    """Return whether the device is a CPU. On a GPU, where each operation of a loop is launched, it is not measured."""
    return jax.default_backend() == "cpu"


def building() -> AbstractContextManager[Any]:
    """Make what is computed inside on the CPU, also beside a GPU, for which initial weights are some fifty programs.

    The first step moves the variables to its device.
    """
    cpu = _cpu()
    return nullcontext() if cpu is None else jax.default_device(cpu)


def _cpu() -> Any | None:
    """Return JAX's CPU; None if JAX_PLATFORMS leaves it out."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None


def as_one_program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled as a whole; JAX compiles each operation outside of one."""
    return jax.jit(function)


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

    def split_array(self, array: Array) -> Any:
        """Copy [T, N, ...], split as in `split`; the copy may still go on. Until its end it refers to `array`."""
        return jax.device_put(array, None if self.everywhere is None else self._by_column)

    def copy(self, values: Any) -> Any:
        """Return copies on every device; values that are there already, as after the first step, are not copied."""
        return values if self.everywhere is None else jax.device_put(values, self.everywhere)


def copy_ahead(replicas: int) -> tuple[Callable[[Array], Any], Callable[..., Any]] | None:
    """See `backend`. JAX stages the memory of NumPy arrays through page-locked memory of its own."""
    return None if jax.default_backend() == "cpu" else (Shards(replicas).split_array, compiled)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """See `backend`."""
    return jax.jit(function)


def compiled_gradients(loss: PureLoss, clip: Clip) -> Callable[[Any], tuple[Any, dict[str, Any], list[Any], list[Any]]]:
    """See `backend`."""

    @jax.jit
    def call(trainable: list[Any], others: list[Any], data: Any) -> tuple[Any, dict[str, Any], list[Any], list[Any]]:
        (value, (named, after)), gradients = jax.value_and_grad(loss, has_aux=True)(trainable, others, data)
        return value, named, after, clip(gradients)

    return lambda data: call(_values(loss.trainable), _values(loss.others), data)


def compiled_outputs(loss: PureLoss) -> Callable[[Any], dict[str, Any]]:
    """See `backend`."""

    @jax.jit
    def call(others: list[Any], data: Any) -> dict[str, Any]:
        _, (named, _) = loss([], others, data)
        return named

    return lambda data: call(_values(loss.others), data)


def value_and_gradients(function: ScalarFunction, values: list[Any]) -> tuple[Any, list[Any]]:
    """See `backend`."""
    value, gradients = jax.value_and_grad(function)(values)
    return value, gradients


def hessian_product(function: ScalarFunction, values: list[Any]) -> Callable[[list[Any]], list[Any]]:
    """See `backend`. Forward over reverse; what does not depend on the vectors is computed once."""
    _, product = jax.linearize(jax.grad(function), values)
    return product


class Step:
    """See `steps.Step`.

    Buffers are not donated: copies of a network share theirs after a pull, and an update that is refused keeps its own.
    On a CPU it would save 0.6 % of the memory of Pong's update (Nature CNN, 640 steps), and no time.
    """

    def __init__(self, loss: PureLoss, parts: Sequence[Part], replicas: int, reduce: Reduce) -> None:
        self._loss = loss
        self.constants = loss.constants
        self._parts = parts
        self._reduce = reduce
        self._count = counting_part(parts).optimizer
        states = [variable for part in parts for variable in part.optimizer.variables]
        self.variables = [*loss.trainable, *loss.others, *states]
        self.shards = Shards(replicas)
        self.names: tuple[str, ...] = ()
        # Explicit: an output that XLA left on one device, or in parts, would retrace the next step.
        self._compiled = jax.jit(self._step, out_shardings=self.shards.everywhere)

    def __call__(self, data: Any) -> dict[str, Any]:
        # Values assigned since the last step, from a checkpoint or as statistics, are on one device.
        values = self.shards.copy(_values(self.variables))
        constants = self.shards.copy(_values(self.constants))
        after, scalars, arrays = self._compiled(values, constants, self.shards.split(data))
        for variable, value in zip(self.variables, after, strict=True):
            variable.assign(value)
        metrics = dict(zip(self.names, np.asarray(scalars).tolist(), strict=True))
        return metrics | {name: np.asarray(array) for name, array in arrays.items()}

    def compile(self, data: Any) -> None:
        """Compile a call with data of this form."""
        values, constants = self.shards.copy(_values(self.variables)), self.shards.copy(_values(self.constants))
        self._compiled.lower(values, constants, self.shards.split(data)).compile()

    def _step(self, before: list[Any], constants: list[Any], data: Any) -> tuple[list[Any], Any, dict[str, Any]]:
        after, metrics, arrays, finite = self.advance(before, constants, data)
        kept = [jnp.where(finite, new, old) for new, old in zip(after, before, strict=True)]
        return kept, metrics, arrays

    def advance(self, before: list[Any], constants: list[Any], data: Any) -> tuple[list[Any], Any, dict[str, Any], Any]:
        """Take one step while tracing: return values after it, scalars, float32 [names], arrays, and if finite."""
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
        # A list, because JAX sorts the keys of a dictionary.
        self.names = (*scalars, "loss", "gradient_norm", "learning_rate")
        return loss, (list(scalars.values()), arrays, after)

    def _apply(
        self, state: list[Any], gradients: list[Any], trainable: list[Any], number: Any
    ) -> tuple[list[Any], list[Any]]:
        """Return trainable variables and all optimizers' states after the update with this number, in order."""
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
        """Return the first part's learning rate in this update, and the update's number from 1."""
        variables = [variable for part in self._parts for variable in part.optimizer.variables]
        with keras.StatelessScope(state_mapping=list(zip(variables, state, strict=True))):
            return jnp.asarray(self._parts[0].optimizer.learning_rate), self._count.iterations.value + 1


class Epochs:
    """Several steps in one call, as a scan that continues without effect after it has stopped.

    On a CPU, XLA computes convolutions inside of a scan in one thread and without its library: four minibatches of
    Pong's network took 126 s on two cores, and 11 s one after the other (https://github.com/jax-ml/jax/issues/12868).
    There each minibatch is a call of its own.
    """

    def __init__(
        self, step: Step, take: Callable[[Any, Any], Any], stop: tuple[str, float] | None, prelude: Prelude | None
    ) -> None:
        self._one = step
        self._take = take
        self._stop = stop
        self._prelude = prelude
        self._moved = [] if prelude is None else list(prelude.moves)
        self._first_names: tuple[str, ...] = ()
        everywhere = step.shards.everywhere
        # Also parts of the whole, so that none is traced twice.
        self._first, self._body = jax.jit(self._prepare), jax.jit(self._take_step, out_shardings=everywhere)
        self._end = jax.jit(self._judge, out_shardings=everywhere)
        self._whole = jax.jit(self._call, out_shardings=everywhere)
        self._is_scan: bool | None = None  # not known before data of the right form is there

    def __call__(self, data: Any, order: Array) -> tuple[tuple[str, ...], Array, int, dict[str, float]]:
        given = self._given(data)
        call = self._whole if self._scans(*given, order) else self._call_by_minibatch
        after, rows, evaluated, steps, scalars = call(*given, order)
        for variable, value in zip([*self._one.variables, *self._moved], after, strict=True):
            variable.assign(value)
        first = dict(zip(self._first_names, np.asarray(scalars).tolist(), strict=True))
        return self._one.names, np.asarray(rows)[np.asarray(evaluated)], int(steps), first

    def compile(self, data: Any, order: Array) -> None:
        """Compile a call with data and order of this form."""
        given = self._given(data)
        if self._scans(*given, order):
            self._whole.lower(*given, order).compile()
        else:
            self._first.lower(*given).compile()
            self._body.lower(*self._of_body(*given, order)).compile()

    def _given(self, data: Any) -> tuple[list[Any], list[Any], Any]:
        shards = self._one.shards
        return shards.copy(_values(self._one.variables)), shards.copy(_values(self._one.constants)), shards.copy(data)

    def _scans(self, before: list[Any], constants: list[Any], data: Any, order: Array) -> bool:
        """Return whether all minibatches are one program."""
        if self._is_scan is None:
            body = None if accelerator() else self._body.trace(*self._of_body(before, constants, data, order))
            self._is_scan = body is None or "conv_general_dilated" not in str(body.jaxpr)
        return self._is_scan

    def _of_body(self, before: list[Any], constants: list[Any], data: Any, order: Array) -> tuple[Any, ...]:
        """Return the forms of the arguments of `_take_step`."""
        constants, _, _, data, _ = jax.eval_shape(self._first, before, constants, data)
        return constants, data, (before, jnp.asarray(True)), order[0]

    def _call(self, before: list[Any], constants: list[Any], data: Any, order: Any) -> Any:
        constants, moved, still, data, first = self._first(before, constants, data)
        body = partial(self._body, constants, data)
        (after, _), seen = jax.lax.scan(body, (before, jnp.asarray(True)), jnp.asarray(order))
        return self._end(before, after, moved, still, first, seen)

    def _call_by_minibatch(self, before: list[Any], constants: list[Any], data: Any, order: Array) -> Any:
        constants, moved, still, data, first = self._first(before, constants, data)
        carried, seen = (before, jnp.asarray(True)), []
        for items in order:
            carried, results = self._body(constants, data, carried, items)
            seen.append(results)
        together = tuple(map(np.stack, zip(*jax.device_get(seen), strict=True)))
        return self._end(before, carried[0], moved, still, first, together)

    def _take_step(
        self, constants: list[Any], data: Any, carried: tuple[list[Any], Any], items: Any
    ) -> tuple[tuple[list[Any], Any], tuple[Any, Any, Any]]:
        """Take one minibatch: return values and whether the steps go on; and scalars, if evaluated, and if applied."""
        values, goes_on = carried
        minibatch = self._one.shards.split(self._take(data, items))
        after, scalars, _, goes = self._one.advance(values, constants, minibatch)
        if self._stop is not None:
            goes &= scalars[self._one.names.index(self._stop[0])] <= self._stop[1]
        goes &= goes_on
        kept = [jnp.where(goes, new, old) for new, old in zip(after, values, strict=True)]
        return (kept, goes), (scalars, goes_on, goes)

    def _judge(
        self, before: list[Any], after: list[Any], moved: list[Any], still: list[Any], first: Any, seen: tuple[Any, ...]
    ) -> tuple[list[Any], Any, Any, Any, Any]:
        """Return values after all minibatches, or before them if a number is not finite, and what was measured."""
        rows, evaluated, applied = seen
        finite = jnp.all(jnp.isfinite(rows[:, -3:-1]) | ~evaluated[:, None])  # loss and norm
        finite &= jnp.all(jnp.isfinite(first))
        kept = [jnp.where(finite, new, old) for new, old in zip([*after, *moved], [*before, *still], strict=True)]
        return kept, rows, evaluated, jnp.where(finite, jnp.sum(applied), 0), first

    def _prepare(
        self, before: list[Any], constants: list[Any], data: Any
    ) -> tuple[list[Any], list[Any], list[Any], Any, Any]:
        """Do the prelude: return constants after it, moved values after and before, data and scalars in one array."""
        if self._prelude is None:
            return constants, [], [], data, jnp.zeros(0)
        pairs = list(zip([*self._one.variables, *self._one.constants], [*before, *constants], strict=True))
        with keras.StatelessScope(state_mapping=pairs):
            values, data, scalars = self._prelude.function(self._one.shards.split(data))
        known = {id(variable): value for variable, value in pairs}
        still = [known[id(variable)] for variable in self._moved]
        known |= {id(variable): value for variable, value in zip(self._moved, values, strict=True)}
        self._first_names = tuple(scalars)  # JAX sorts the keys of a dictionary
        told = jnp.stack([jnp.asarray(scalar, jnp.float32) for scalar in scalars.values()])
        return [known[id(variable)] for variable in self._one.constants], values, still, data, told


def compiled_apply(optimizer: Any, variables: Sequence[Any]) -> Callable[..., None]:
    """See `backend`."""

    @jax.jit
    def call(values: list[Any], state: list[Any], gradients: list[Any], scaler: Any) -> tuple[Any, Any]:
        return optimizer.stateless_apply(state, [gradient * scaler for gradient in gradients], values)  # type: ignore[no-any-return]

    def apply(gradients: Sequence[Array], scaler: float = 1.0) -> None:
        state = optimizer.variables
        after, state_after = call(_values(variables), _values(state), list(gradients), np.float32(scaler))
        for variable, value in zip([*variables, *state], [*after, *state_after], strict=True):
            variable.assign(value)

    return apply


def compiled_mix(mixed: Sequence[Pair], copied: Sequence[Pair]) -> Callable[[float], None]:
    """See `backend`."""
    targets, sources = [target for target, _ in mixed], [source for _, source in mixed]

    @jax.jit
    def call(slow: list[Any], fast: list[Any], shares: Any) -> list[Any]:
        return [shares[0] * source + shares[1] * target for target, source in zip(slow, fast, strict=True)]

    def mix(rate: float) -> None:
        shares = np.array([rate, 1.0 - rate], np.float32)  # both are rounded once, from double precision
        values = call(_values(targets), _values(sources), shares) if targets else []
        for target, value in zip(targets, values, strict=True):
            target.assign(value)
        for target, source in copied:
            target.assign(source.value)

    return mix


def compiled_read(variables: Sequence[Any]) -> Callable[[], list[Array]]:
    """See `backend`."""
    # JAX requests all values before it waits for the first.
    return lambda: [np.array(value) for value in jax.device_get(_values(variables))]


def compiled_write(groups: Sequence[Sequence[Any]]) -> Callable[[Sequence[Array]], None]:
    """See `backend`."""

    def write(arrays: Sequence[Array]) -> None:
        for equal, array in zip(groups, arrays, strict=True):
            value = jnp.array(array)  # a copy: asarray may keep the caller's memory
            for variable in equal:
                variable.assign(value)

    return write


def _values(variables: Sequence[Any]) -> list[Any]:
    return [variable.value for variable in variables]
