"""A loss as a pure function of its variables' values, which is what TensorFlow and JAX can both differentiate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras

from distrl.networks.actions.family import Tensor

LossFunction = Callable[[Any], tuple[Tensor, dict[str, Tensor]]]
"""data -> (scalar loss to minimise, name -> array to look at). Reads Keras variables, may assign those not trained."""


class Objective(NamedTuple):
    """What an update minimises.

    Attributes:
        function: Of a batch.
        others: Variables that it reads or assigns beside the weights that it is differentiated by.
    """

    function: LossFunction
    others: list[Any]


Clip = Callable[[Sequence[Tensor]], list[Tensor]]
"""All gradients of a network -> clipped ones."""

Reduce = Callable[[list[Tensor]], list[Tensor]]
"""The gradients of all parts -> those that are applied, such as their mean over processes. Runs inside the step."""

Pair = tuple[Any, Any]
"""A variable, and the one that its new value is taken from."""


@dataclass(frozen=True)
class Part:
    """Variables that one optimizer moves.

    Attributes:
        trainable: Variables that the loss is differentiated by.
        optimizer: Built on them.
        clip: From all their gradients to clipped ones.
        every: The period: k moves them with every k-th update. Updates are counted by a part that moves with each.
    """

    trainable: Sequence[Any]
    optimizer: Any
    clip: Clip = list
    every: int = 1


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
    """`function` without side effects: what it assigns comes out instead of being assigned.

    Attributes:
        trainable: Variables that the loss is differentiated by.
        others: Variables that `function` may assign: moving averages, states of random generators.
        constants: Variables that it reads and that nobody assigns within, such as a target network's.
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

    def __call__(
        self, trainable: Sequence[Tensor], others: Sequence[Tensor], data: Any, constants: Sequence[Tensor] = ()
    ) -> tuple[Tensor, tuple[dict[str, Tensor], list[Tensor]]]:
        """Loss, and what else there is: named arrays, and the new values of `others`.

        Args:
            trainable: Values of `self.trainable`.
            others: Values of `self.others`.
            data: What `function` takes.
            constants: Values of `self.constants`; none: those that the variables have when they are read.
        """
        mapping = [
            *zip(self.trainable, trainable, strict=True),
            *zip(self.others, others, strict=True),
            *zip(self.constants, constants, strict=bool(constants)),
        ]
        # Losses that layers add while they are called, such as activity regularisation, are the function's to read.
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            loss, named = self._function(data)
        after = [scope.get_current_value(variable) for variable in self.others]
        return loss, (named, after)
