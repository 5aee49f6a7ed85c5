"""Diagnostics of one batch outside any update: losses, gradients, activations, and the zeros of relu layers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from keras import ops

from distrl import nest
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.framework.backend import Gradients, Outputs
from distrl.networks.framework.differentiation import Objective
from distrl.networks.network import Network
from distrl.networks.objective import regularization
from distrl.types import Array, Batch


class Differential(NamedTuple):
    """Loss and gradients of a batch.

    Attributes:
        loss: The loss that training minimises.
        regularization: "<network>/<number>" -> one of the terms of `loss`.
        gradients: Name of a weight -> its gradient, before any clipping.
    """

    loss: float
    regularization: dict[str, float]
    gradients: dict[str, Array]


class LossInspection:
    """Computes loss, regularization and gradients of a batch; changes nothing, random generators included.

    Args:
        networks: Networks by name; gradients are by all of their online weights.
    """

    def __init__(self, networks: Mapping[str, Copies], objective: Objective) -> None:
        online = [network.online for network in networks.values()]
        self._names = [name for copy in online for name in copy.names_of(copy.model.trainable_variables)]
        self._networks = networks
        self._objective = objective
        trainable = [variable for copy in online for variable in copy.model.trainable_variables]
        self._compiled = Gradients(self._with_terms, trainable, objective.others)

    def __call__(self, batch: Batch) -> Differential:
        """Inspect a whole batch at once, also if an update takes it in minibatches or several times."""
        loss, terms, gradients = self._compiled(batch)
        named = dict(zip(self._names, gradients, strict=True))
        return Differential(loss, {name: float(term) for name, term in terms.items()}, named)

    def _with_terms(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        loss, _ = self._objective.function(batch)
        terms = {
            f"{name}/{index}": term
            for name, network in self._networks.items()
            for index, term in enumerate(regularization(network.online))
        }
        return loss, terms


class Activations:
    """Computes the outputs of every layer that ends in an activation, in inference."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._compiled = Outputs(self._outputs, network.model.variables)

    def __call__(self, batch: Batch) -> dict[str, Array]:
        """Return layer -> outputs for the valid rows of a batch [T, N], as [rows, ...]."""
        return {name: rows[:-1][batch.valid] for name, rows in self._compiled(batch).items()}

    def _outputs(self, batch: Any) -> tuple[Any, dict[str, Tensor]]:
        return 0.0, self._network.activations(batch.observations, batch.recurrent_state, batch.valid)


def few_sequences(batch: Batch, rows: int) -> Batch:
    """Return the first sequences of a batch [T, N], at least one, with at most that many rows and without weights."""
    count = max(rows // batch.valid.shape[0], 1)
    bare = batch._replace(recurrent_state={}, reward_moments={}, importance_weights=None)
    few: Batch = nest.map(lambda each: each[:, :count], bare)
    return few._replace(recurrent_state={name: state[:count] for name, state in batch.recurrent_state.items()})


class ReluZeros:
    """Computes the share of zeros in the outputs of every relu layer of a network, in inference."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._compiled = Outputs(self._shares, network.model.variables)

    def __call__(self, batch: Batch) -> dict[str, float]:
        """Return layer -> share of zeros over the valid rows of a batch [T, N], in the network's order.

        The result is empty without valid rows, and without relu layers outside a user's own model.
        """
        layers = self._network.relu_layers
        if not layers or not batch.valid.any():
            return {}
        shares = self._compiled(batch)
        return {layer: float(shares[layer]) for layer in layers}

    def _shares(self, batch: Any) -> tuple[Any, dict[str, Tensor]]:
        outputs = self._network.activations(batch.observations, batch.recurrent_state, batch.valid)
        valid = ops.cast(batch.valid, "float32")
        return 0.0, {name: _share_of_zeros(outputs[name][:-1], valid) for name in self._network.relu_layers}


def _share_of_zeros(rows: Tensor, valid: Tensor) -> Tensor:
    """Rows [T, N, ...], valid float32 [T, N] -> share of zeros in the valid rows."""
    zeros = ops.cast(ops.equal(rows, 0.0), "float32")
    of_rows = ops.mean(ops.reshape(zeros, (*valid.shape, -1)), axis=-1)  # [T, N, ...] -> [T, N]
    return ops.sum(of_rows * valid) / ops.sum(valid)
