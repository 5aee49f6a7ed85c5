"""Parts of an update of several networks at once: each moved by its own optimizer, in one compiled step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras import ops

from distrl.config.optimizers import OptimizerParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.framework.differentiation import Part
from distrl.networks.framework.optimizers import clip_gradients, create_optimizer, state_variables
from distrl.networks.network import NetworkCopy
from distrl.networks.weights import is_mixed
from distrl.networks.wrapper import NetworkWrapper


def part_of(network: NetworkWrapper) -> Part:
    """The online copy's weights and the network's optimizer, clipping as its parameters say.

    Raises:
        ConfigError: Its optimizer is LBFGS, which takes no single gradients.
    """
    online, parameters = network.online, network.parameters
    return Part(
        online.model.trainable_variables, online.optimizer, lambda gradients: clip_gradients(gradients, parameters)
    )


def states_of(networks: Sequence[NetworkWrapper]) -> list[Any]:
    """What a step of these networks may assign beside their weights; of the target copies, everything."""
    slow = [variable for network in networks if network.target for variable in network.target.model.variables]
    return [*(variable for network in networks for variable in network.online.state_variables), *slow]


def follow(network: NetworkWrapper, rate: float) -> None:
    """`NetworkWrapper.update_target_network` as a part of a step, which `states_of` makes it assign.

    At the beginning of a step it does what it would at the end of the one before, without a call of its own.
    """
    assert network.target is not None
    for slow, fast in zip(network.target.model.weights, network.online.model.weights, strict=True):
        mixed = rate * fast.value + (1.0 - rate) * slow.value if is_mixed(slow) else fast.value
        slow.assign(ops.stop_gradient(mixed))


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
def held(copy: NetworkCopy) -> Iterator[None]:
    """Make the copy's weights constants to the gradient, which still passes to the copy's inputs.

    What the copy assigns inside is discarded, and so are losses that layers add (`add_loss`) inside. Other networks
    called inside are trained and assign as they do outside.
    """
    with _Held(copy.model.variables):
        yield


class TrainedNumber:
    """One number that is trained beside networks, by an Adam of its own.

    Attributes:
        variable: float32 [].
        optimizer: Adam with the constants of its paper (Kingma and Ba 2015).

    Args:
        initial: Before the first update.
    """

    def __init__(self, name: str, initial: float, learning_rate: float) -> None:
        self.variable = keras.Variable(np.float32(initial), name=name)
        self.optimizer = create_optimizer(
            OptimizerParameters(learning_rate=learning_rate, adam_optimizer_beta2=0.999, optimizer_epsilon=1e-8)
        )
        self.optimizer.build([self.variable])

    def set_learning_rate(self, rate: float) -> None:
        """Of the updates from now on."""
        self.optimizer.learning_rate = rate

    @property
    def part(self) -> Part:
        """As a part of a step."""
        return Part([self.variable], self.optimizer)

    @property
    def variables(self) -> dict[str, Any]:
        """What a checkpoint must hold, by name: for `NetworkWrapper.beside`."""
        return {self.variable.path: self.variable} | state_variables(self.optimizer)
