"""Middlewares: from the embeddings to the features that heads share. Mergers join several embeddings first.

Recurrent state is explicit: a step takes it and returns the next one, nothing is kept between calls. A sequence is the
same cell run over time; the state restarts at zero after every row that is not valid, as the actor's does.
"""

from collections.abc import Mapping
from typing import Any, Literal

import keras
from keras import ops

from distrl.config.network import (
    OUTPUT,
    GraphMiddlewareParameters,
    GRUMiddlewareParameters,
    InitialWeights,
    LSTMMiddlewareParameters,
    order,
)
from distrl.errors import ConfigError
from distrl.networks.parts.initializers import Orthogonal, layer_seed
from distrl.networks.parts.layers import apply_scheme
from distrl.networks.parts.schemes import resolve


def merge(embeddings: Mapping[str, Any], kind: Literal["Concat", "Sum"], prefix: str = "") -> Any:
    """Join vectors in the order of their names, whatever the order of the mapping.

    Args:
        embeddings: Name -> Keras tensor float32 [batch, width], at least one; a single one stays as it is.
        prefix: The layer is called ``<prefix>merger``.

    Returns:
        Keras tensor float32 [batch, sum of widths], or [batch, width] for Sum.

    Raises:
        ConfigError: The vectors to add have different widths; names them all.
    """
    tensors = [embeddings[name] for name in sorted(embeddings)]
    if len(tensors) == 1:
        return tensors[0]
    if kind == "Concat":
        return keras.layers.Concatenate(axis=-1, name=f"{prefix}merger")(tensors)
    if len({tuple(tensor.shape[1:]) for tensor in tensors}) > 1:
        widths = ", ".join(f"{name} {embeddings[name].shape[-1]}" for name in sorted(embeddings))
        raise ConfigError(f"merger Sum needs inputs of one width, these have: {widths}")
    return keras.layers.Add(name=f"{prefix}merger")(tensors)


class RecurrentMiddleware:
    """One LSTM or GRU cell.

    Attributes:
        state: Name -> width of the state arrays, which are float32 [batch, width].
    """

    def __init__(
        self, parameters: LSTMMiddlewareParameters | GRUMiddlewareParameters, *, prefix: str, seed: int
    ) -> None:
        name = f"{prefix}middleware_{parameters.kind}"
        settings = {
            "kernel_initializer": keras.initializers.GlorotUniform(layer_seed(seed, f"{name}/kernel")),
            "recurrent_initializer": Orthogonal(seed=layer_seed(seed, f"{name}/recurrent")),
            "seed": layer_seed(seed, name),  # for its unused dropout; Keras would draw one
        }
        if isinstance(parameters, LSTMMiddlewareParameters):
            width = parameters.number_of_lstm_cells
            # Keras starts the forget gate's bias at 1 (Jozefowicz et al. 2015).
            self._cell = keras.layers.LSTMCell(width, name=name, **settings)
            self.state = {f"{prefix}lstm_h": width, f"{prefix}lstm_c": width}
        else:
            width = parameters.number_of_gru_cells
            self._cell = keras.layers.GRUCell(width, name=name, **settings)
            self.state = {f"{prefix}gru_h": width}
        restarting = _RestartingCell(self._cell, f"{name}_restarting")
        self._sequence = keras.layers.RNN(restarting, return_sequences=True, return_state=True)

    def step(self, embedding: Any, state: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return features [batch, cells] of one step, and the state after it, not yet restarted.

        Args:
            embedding: [batch, width].
            state: Name -> float32 [batch, width], before the step.
        """
        features, after = self._cell(embedding, [state[name] for name in self.state])
        return features, dict(zip(self.state, after, strict=True))

    def sequence(self, embeddings: Any, state: Mapping[str, Any], valid: Any) -> Any:
        """Compute the steps of whole unrolls.

        Args:
            embeddings: [T+1, N, width].
            state: Name -> float32 [N, width], before row 0.
            valid: bool [T, N]. After a row that is not valid the state is zero.

        Returns:
            Features [T+1, N, cells].
        """
        ones = ops.ones_like(valid[:1])  # the state after the last row is not used
        features, *_ = self._run(embeddings, state, ops.concatenate([valid, ones], axis=0))
        return ops.transpose(features, (1, 0, 2))

    def state_after(self, embeddings: Any, state: Mapping[str, Any], valid: Any) -> dict[str, Any]:
        """Return the state before the row that follows `embeddings`, [T, N, width]; otherwise as `sequence`."""
        _, *after = self._run(embeddings, state, valid)
        return dict(zip(self.state, after, strict=True))

    def _run(self, embeddings: Any, state: Mapping[str, Any], valid: Any) -> Any:
        """Return features [N, T, cells] and the states after the last row, for `valid` of every row."""
        keep = ops.cast(valid, embeddings.dtype)
        rows = ops.concatenate([embeddings, keep[..., None]], axis=-1)
        rows = ops.transpose(rows, (1, 0, 2))  # [T, N, width + 1] -> [N, T, width + 1], the order of Keras
        before = [ops.cast(state[name], embeddings.dtype) for name in self.state]
        return self._sequence(rows, initial_state=before)


class _RestartingCell(keras.layers.Layer):  # type: ignore[misc]
    """A cell whose state becomes zero after a row whose last number is 0."""

    def __init__(self, cell: Any, name: str) -> None:
        super().__init__(name=name)
        self._cell = cell
        self.state_size = cell.state_size
        self.output_size = cell.output_size

    def build(self, shape: Any) -> None:
        self.built = True

    def call(self, rows: Any, states: Any, training: bool = False) -> tuple[Any, list[Any]]:
        features, after = self._cell(rows[:, :-1], list(states), training=training)
        return features, [state * rows[:, -1:] for state in after]


PATH = "network.middleware_parameters.blocks"


def build(
    embeddings: Mapping[str, Any],
    parameters: GraphMiddlewareParameters,
    *,
    seed: int,
    prefix: str = "",
    initial: InitialWeights = "orthogonal",
) -> Any:
    """Return the result of the block `output`, [batch, features]; layers are called ``<prefix>middleware_<block>_…``.

    Args:
        embeddings: Observation name -> Keras tensor float32 [batch, width].
        initial: How dense layers and convolutions begin.

    Raises:
        ConfigError: A block names an unknown input, has the name of an observation, or does not fit its inputs; or no
            block takes an observation.
    """
    _check_names(embeddings, parameters)
    values = dict(embeddings)
    for name in order(parameters.blocks):
        block, own_prefix = parameters.blocks[name], f"{prefix}middleware_{name}"
        try:
            merged = merge({given: values[given] for given in block.inputs}, block.merger, f"{own_prefix}_")
        except ConfigError as error:
            raise ConfigError(f"{PATH}.{name}: {error}") from error
        layers = resolve(block.layers, "middleware")
        path = f"{PATH}.{name}.layers"
        values[name] = apply_scheme(
            merged, layers, block=parameters, prefix=own_prefix, seed=seed, path=path, initial=initial
        )
    return values[OUTPUT]


def _check_names(embeddings: Mapping[str, Any], parameters: GraphMiddlewareParameters) -> None:
    blocks = parameters.blocks
    if double := sorted(blocks.keys() & embeddings.keys()):
        raise ConfigError(f"{PATH}.{double[0]} has the name of an observation")
    valid = [*embeddings, *(name for name in blocks if name != OUTPUT)]
    for name, block in blocks.items():
        if unknown := [given for given in block.inputs if given not in valid]:
            raise ConfigError(f"{PATH}.{name}.inputs: unknown input {unknown[0]!r}; choose from {', '.join(valid)}")
    taken = {given for block in blocks.values() for given in block.inputs}
    if idle := [name for name in embeddings if name not in taken]:
        raise ConfigError(f"{PATH}: no block takes the observation {idle[0]!r}")
