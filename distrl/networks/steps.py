"""The compiled update: parts with their own optimizers, over a whole batch or minibatch by minibatch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

from distrl import nest
from distrl.config.optimizers import OptimizerParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.framework.backend import CompiledEpochs, CompiledStep, Metrics
from distrl.networks.framework.differentiation import LossFunction, Part, Prelude, PureLoss, Reduce
from distrl.networks.framework.optimizers import create_optimizer, state_variables
from distrl.networks.network import Network
from distrl.types import Batch, IntArray


class TrainStep(Protocol):
    """One update from one batch."""

    def __call__(self, batch: Batch) -> Metrics:
        """Make the update; see `Step`."""

    def compile(self, batch: Batch) -> None:
        """Compile the update for batches of this form; nothing else changes."""


@dataclass(frozen=True)
class Minibatches:
    """How a step divides its data.

    Attributes:
        take: (data, int32 [M]) -> the minibatch of these items, in `keras.ops`.
        order: data -> int32 [K, M], the items of the K minibatches, in NumPy, before each update.
        stop: Name of one of the function's scalars and a bound: from the first minibatch where the scalar is larger, no
            gradient is applied. None: all are applied.
        prelude: Runs before the first minibatch, which is taken from the data that it returns. None: there is none.
    """

    take: Callable[[Any, Any], Any]
    order: Callable[[Any], IntArray]
    stop: tuple[str, float] | None = None
    prelude: Prelude | None = None


class Step:
    """Forward, loss, backward, clipping and optimizers as one compiled function; one trace per shape of data.

    k replicas make the same update as one, up to rounding: means are taken over the whole batch or minibatch.

    Args:
        function: batch -> (scalar loss, name -> metric), in `keras.ops`. It may assign `others`. With several parts it
            is one sum of losses, whose terms protect variables by `held` or `stop_gradient`. Over minibatches its
            metrics are scalars.
        parts: Variables by which it is differentiated, each group with its optimizer and period.
        others: Variables that `function` may assign.
        constants: Other variables that `function` reads, or that a prelude reads or moves.
        replicas: Devices of this host that share a batch, or every minibatch; more than one only on JAX.
        reduce: Runs between gradient and optimizers, before clipping.
        minibatches: None: one step over all data.

    Raises:
        ConfigError: There are fewer devices, or the framework is TensorFlow.
    """

    def __init__(
        self,
        function: LossFunction,
        parts: Sequence[Part],
        others: Sequence[Any],
        constants: Sequence[Any] = (),
        *,
        replicas: int = 1,
        reduce: Reduce = list,
        minibatches: Minibatches | None = None,
    ) -> None:
        trainable = [variable for part in parts for variable in part.trainable]
        loss = PureLoss(function, trainable, others, constants)
        self._minibatches = minibatches
        step = CompiledStep(loss, parts, replicas, reduce)
        self._compiled: Any = step
        if minibatches is not None:
            self._compiled = CompiledEpochs(step, minibatches.take, minibatches.stop, minibatches.prelude)

    def __call__(self, batch: Any) -> Metrics:
        """Make one update, unless loss or gradients, of any minibatch, or a prelude's scalar are NaN or infinite.

        Args:
            batch: Argument of `function`, or of `take`; its NumPy arrays are copied.

        Returns:
            The function's metrics, and loss, gradient_norm (global, over all parts, before clipping), learning_rate (of
            this update and the first part) and finite: False if no variable was changed. Over minibatches: means over
            those that were evaluated, the learning_rate of the first, optimizer_steps, the number of applied ones, and
            the prelude's scalars.
        """
        first: dict[str, float] = {}
        if self._minibatches is None:
            metrics: Metrics = dict(self._compiled(batch))
        else:
            names, rows, steps, first = self._compiled(batch, self._minibatches.order(batch))
            metrics = {name: float(np.mean(rows[:, at], dtype=np.float64)) for at, name in enumerate(names)}
            metrics["learning_rate"] = float(rows[0, names.index("learning_rate")])
            metrics["optimizer_steps"] = int(steps)
        numbers = [metrics["loss"], metrics["gradient_norm"], *first.values()]
        metrics["finite"] = bool(np.isfinite(numbers).all())
        return metrics | first

    def compile(self, batch: Any) -> None:
        """Compile the update for data of this form, such as zeros; no variable changes."""
        if self._minibatches is None:
            self._compiled.compile(batch)
        else:
            self._compiled.compile(batch, self._minibatches.order(batch))


def equal_parts(minibatches: int) -> Minibatches:
    """Divide the sequences of a batch [T, N] into equal parts, in order."""

    def order(batch: Batch) -> IntArray:
        sequences: IntArray = np.arange(batch.valid.shape[1], dtype=np.int32)
        return sequences.reshape(minibatches, -1)

    return Minibatches(sequences_of, order)


_BY_ROW = ("recurrent_state", "reward_moments")
"""Fields whose arrays have no axis of time."""


def sequences_of(data: Any, items: Any) -> Any:
    """Select the sequences `items`, int32 [M], of a batch or another named tuple of arrays [T, N, ...]: [T, M, ...]."""
    by_row: dict[str, dict[str, Any]] = {name: {} for name in _BY_ROW if name in data._fields}
    taken = nest.map(lambda rows: ops.take(rows, items, axis=1), data._replace(**by_row))
    states = {name: ops.take(state, items, axis=0) for name, state in data.recurrent_state.items()}
    return taken._replace(recurrent_state=states)


class _Held(keras.StatelessScope):  # type: ignore[misc]  # Keras has no type information
    """A scope in which some variables are constants; Keras would hide the surrounding scope's values of all others."""

    def __init__(self, variables: Sequence[Any]) -> None:
        constants = [(variable, ops.stop_gradient(variable.value)) for variable in variables]
        super().__init__(state_mapping=constants)
        self._held = {id(variable) for variable in variables}

    def get_current_value(self, variable: Any) -> Tensor | None:
        own = super().get_current_value(variable)
        if own is not None or self.original_scope is None:
            return own
        return self.original_scope.get_current_value(variable)

    def add_update(self, update: tuple[Any, Tensor]) -> None:
        if id(update[0]) in self._held or self.original_scope is None:
            super().add_update(update)
        else:
            self.original_scope.add_update(update)


@contextmanager
def held(copy: Network) -> Iterator[None]:
    """Make the copy's weights constants to the gradient, which still passes to the copy's inputs.

    What the copy assigns inside is discarded, and so are losses that layers add (`add_loss`) inside. Other networks
    called inside are trained and assign as they do outside.
    """
    with _Held(copy.model.variables):
        yield


class TrainedNumber:
    """One number that is trained beside networks, by its own Adam.

    Attributes:
        variable: float32 [].
        optimizer: Adam with the constants of its paper (Kingma and Ba 2015).

    Args:
        initial: Value before the first update.
        learning_rate: 0 keeps it there.
    """

    def __init__(self, name: str, initial: float, learning_rate: float) -> None:
        self.variable = keras.Variable(np.float32(initial), name=name)
        self.optimizer = create_optimizer(OptimizerParameters(adam_optimizer_beta2=0.999, optimizer_epsilon=1e-8))
        self.optimizer.build([self.variable])
        self.set_learning_rate(learning_rate)

    def set_learning_rate(self, rate: float) -> None:
        """Set the rate of the updates from now on."""
        self.optimizer.learning_rate = rate

    @property
    def part(self) -> Part:
        """The number as a part of a step."""
        return Part([self.variable], self.optimizer)

    @property
    def variables(self) -> dict[str, Any]:
        """All variables for a checkpoint by name; see `Copies.beside`."""
        return {self.variable.path: self.variable} | state_variables(self.optimizer)
