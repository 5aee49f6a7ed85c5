"""What a gradient actor computes: the gradient of its own unroll under the weights that acted, for others to apply."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distrl.networks.actions.family import Tensor
from distrl.networks.framework.backend import Gradients
from distrl.networks.framework.optimizers import clip_gradients
from distrl.networks.network import Architecture, NetworkCopy
from distrl.networks.objective import UnrollLoss, over_unrolls
from distrl.networks.parts.normalization import RunningMoments
from distrl.types import Array, Batch, Differentiated

_AFTER = "after/"  # what a variable that no gradient moves has become, among the named arrays


class GradientStep:
    """Loss, gradient and clipping of one copy, compiled together; its trainable weights stay as they are.

    Args:
        network: The copy whose weights acted.
        loss: (outputs, batch) -> one scalar per head, and metrics; traced once.
    """

    def __init__(self, network: Architecture, loss: UnrollLoss) -> None:
        self._network = network
        self._averages = moving_averages(network)
        self._generators = network.random_states
        self._names = names_of(network, network.model.trainable_variables)
        function = over_unrolls(network.assembly, network.parameters, loss)
        moved = {**self._averages, **{str(index): variable for index, variable in enumerate(self._generators)}}

        def with_state(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
            total, metrics = function(batch)
            # Inside the function a variable's value is what it has been assigned there.
            return total, {**metrics, **{f"{_AFTER}{name}": variable.value for name, variable in moved.items()}}

        self._gradients = Gradients(
            with_state,
            network.model.trainable_variables,
            network.state_variables,
            lambda gradients: clip_gradients(gradients, network.parameters),
        )

    @property
    def traces(self) -> int:
        """How often it was compiled: once per batch shape."""
        return self._gradients.traces

    def __call__(self, batch: Batch) -> Differentiated:
        """The gradient of one batch; random generators and moving averages move on."""
        loss, told, gradients = self._gradients(batch)
        after = {name.removeprefix(_AFTER): told.pop(name) for name in [*told] if name.startswith(_AFTER)}
        for index, generator in enumerate(self._generators):
            generator.assign(after[str(index)])
        for name, variable in self._averages.items():
            variable.assign(after[name])
        return Differentiated(
            gradients=dict(zip(self._names, gradients, strict=True)),
            averages={name: after[name] for name in self._averages},
            metrics={"loss": loss, **{name: float(value) for name, value in told.items()}},
            moments=self._moments(batch),
        )

    def reseed(self, seeds: np.random.SeedSequence) -> None:
        """Starts the random generators of dropout and noise from `seeds`."""
        for generator, child in zip(self._generators, seeds.spawn(len(self._generators)), strict=True):
            state = child.generate_state(int(np.prod(generator.shape)), np.uint32)
            generator.assign(state.reshape(generator.shape).astype(generator.dtype))

    def _moments(self, batch: Batch) -> dict[str, dict[str, Array]]:
        """Of the valid rows of every normalised input; the last row is the first of the next unroll."""
        moments = {}
        for name, shape in normalized_inputs(self._network).items():
            of_rows = RunningMoments(shape)
            of_rows.add(batch.observations[name][:-1][batch.valid])
            moments[name] = of_rows.state()
        return moments


def names_of(network: Architecture, variables: Sequence[Any]) -> list[str]:
    """The names of these variables of the network, in their order."""
    names = {id(variable): name for name, variable in network.variables.items()}
    return [names[id(variable)] for variable in variables]


def moving_averages(network: Architecture) -> dict[str, Any]:
    """The weights that batch normalisation moves while training, by name."""
    statistics = {id(weight) for _, layer in network.assembly.normalizations for weight in layer.weights}
    averages = [weight for weight in network.model.non_trainable_weights if id(weight) not in statistics]
    return dict(zip(names_of(network, averages), averages, strict=True))


def normalized_inputs(network: NetworkCopy) -> Mapping[str, tuple[int, ...]]:
    """Input name -> shape of one row, of every input that the network normalises."""
    keys = {key for key, _ in network.assembly.normalizations}
    return {key: tuple(shape.shape[1:]) for key, shape in network.model.input.items() if key in keys}
