"""A loss as a pure function of its variables' values, which both TensorFlow and JAX can differentiate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras

from distrl.networks.actions.family import Tensor

LossFunction = Callable[[Any], tuple[Tensor, dict[str, Tensor]]]
"""data -> (scalar loss, name -> metric). Reads Keras variables and may assign those that are not trained."""


class Objective(NamedTuple):
    """The function of a batch that an update minimises.

    Attributes:
        others: Variables that it reads or assigns beside the weights by which it is differentiated.
    """

    function: LossFunction
    others: list[Any]


Clip = Callable[[Sequence[Tensor]], list[Tensor]]
"""All gradients of a network -> clipped ones."""

Reduce = Callable[[list[Tensor]], list[Tensor]]
"""The gradients of all parts -> those that are applied, such as their mean over processes. Runs inside the step."""

ScalarFunction = Callable[[list[Tensor]], Tensor]
"""Values of variables -> scalar."""

Pair = tuple[Any, Any]
"""A variable, and the source of its new value."""


@dataclass(frozen=True)
class Part:
    """Variables that one optimizer moves.

    Attributes:
        trainable: Variables by which the loss is differentiated.
        optimizer: Built on them.
        clip: All their gradients -> clipped ones.
        every: The period: k moves them with every k-th update. Updates are counted by a part that moves with each.
    """

    trainable: Sequence[Any]
    optimizer: Any
    clip: Clip = list
    every: int = 1


class Prepared(NamedTuple):
    """The result of a prelude.

    Attributes:
        values: New values of the variables that it moves, in their order.
        data: Arrays from which minibatches are taken.
        scalars: Name -> metric. If one of them is not finite, the whole update is refused.
    """

    values: list[Tensor]
    data: Any
    scalars: dict[str, Tensor]


@dataclass(frozen=True)
class Prelude:
    """The part of an update over minibatches that runs before the first of them, in the same compiled call.

    Attributes:
        function: data of the update -> `Prepared`, in `keras.ops` and `backend`'s functions for use while tracing. It
            assigns nothing, and reads only variables of the step.
        moves: The variables that get new values, constants to the minibatches' loss.
    """

    function: Callable[[Any], Prepared]
    moves: Sequence[Any]


def counting_part(parts: Sequence[Part]) -> Part:
    """The first part that every update moves: the count of its optimizer, saved with it, is that of the updates.

    Raises:
        ValueError: There is none.
    """
    for part in parts:
        if part.every == 1:
            return part
    raise ValueError("every part of the step has a period; one must move with every update")


class PureLoss:
    """`function` without side effects: it returns new values of variables instead of assigning them.

    Attributes:
        trainable: Variables by which the loss is differentiated.
        others: Variables that `function` may assign: moving averages, states of random generators.
        constants: Variables that `function` only reads, such as a target network's.
        traces: Number of calls, which happen while tracing.
    """

    def __init__(
        self,
        function: LossFunction,
        trainable: Sequence[Any],
        others: Sequence[Any],
        constants: Sequence[Any] = (),
    ) -> None:
        self._function = function
        self.trainable = list(trainable)
        self.others = list(others)
        self.constants = list(constants)
        self.traces = 0

    def __call__(
        self, trainable: Sequence[Tensor], others: Sequence[Tensor], data: Any, constants: Sequence[Tensor] = ()
    ) -> tuple[Tensor, tuple[dict[str, Tensor], list[Tensor]]]:
        """Return the loss, and named arrays with the new values of `others`.

        Args:
            constants: Values of `self.constants`; none: the variables' own values.
        """
        self.traces += 1
        mapping = [
            *zip(self.trainable, trainable, strict=True),
            *zip(self.others, others, strict=True),
            *zip(self.constants, constants, strict=bool(constants)),
        ]
        # The function can read losses that layers add while they are called, such as activity regularisation.
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            loss, named = self._function(data)
        after = [scope.get_current_value(variable) for variable in self.others]
        return loss, (named, after)
