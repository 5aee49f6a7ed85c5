"""The trunk of a network: observations by name -> the features that heads share."""

import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
from keras import ops

from distrl.config.graph import GraphMiddlewareParameters
from distrl.config.layers import CustomLayer
from distrl.config.network import (
    EmbedderParameters,
    GRUMiddlewareParameters,
    LSTMMiddlewareParameters,
    NetworkParameters,
)
from distrl.errors import ConfigError
from distrl.networks.parts import embedders, layers, middlewares
from distrl.networks.parts.middlewares import RecurrentMiddleware
from distrl.networks.parts.normalization import ObservationNormalization
from distrl.networks.parts.schemes import resolve
from distrl.types import ArraySpec


class Trunk:
    """Embedders, merger and middleware, or the user's own model and a middleware.

    Attributes:
        features: Keras tensor [batch, width], the input of the heads.
        state_inputs: Recurrent state by name, Keras tensors float32 [batch, width]; empty without memory.
        next_state: The state after the step, by the same names.
        normalizations: Input name -> its normalisation layer, where there is one.
        activated: Names of the layers that end in an activation.

    Args:
        prefix: First part of all names, "" for a network's only trunk.
    """

    def __init__(
        self,
        parameters: NetworkParameters,
        inputs: Mapping[str, Any],
        arrays: Mapping[str, ArraySpec],
        *,
        prefix: str,
        seed: int,
    ) -> None:
        self._parameters, self._inputs, self._arrays = parameters, inputs, arrays
        self._prefix, self._seed = prefix, seed
        self.normalizations: dict[str, ObservationNormalization] = {}
        self._memory: RecurrentMiddleware | None = None
        self.state_inputs: dict[str, Any] = {}
        self.next_state: dict[str, Any] = {}
        embedding = self._embedding()
        if len(embedding.shape) != 2:
            raise ConfigError(
                f"network.middleware_parameters: ends in {list(embedding.shape[1:])}, but heads take one vector"
            )
        self._encoder = keras.Model(dict(inputs), embedding, name=f"{prefix}encoder")
        found = {layer.name: layer.output for layer in self._encoder.layers if layers.is_activated(layer)}
        self.activated = list(found)
        self._activations = keras.Model(dict(inputs), found, name=f"{prefix}activations") if found else None
        self.features = embedding
        middleware = parameters.middleware_parameters
        if isinstance(middleware, LSTMMiddlewareParameters | GRUMiddlewareParameters):
            self._memory = RecurrentMiddleware(middleware, prefix=prefix, seed=seed)
            self.state_inputs = {name: keras.Input((width,), name=name) for name, width in self._memory.state.items()}
            self.features, self.next_state = self._memory.step(embedding, self.state_inputs)

    def unroll(self, flat: Mapping[str, Any], state: Mapping[str, Any], valid: Any, *, training: bool) -> Any:
        """Return the features of every row of a batch of unrolls.

        Args:
            flat: Inputs by name, [N*(T+1), ...], sequence by sequence.
            state: Name -> [N, width], before row 0.
            valid: bool [T, N].

        Returns:
            [N*(T+1), width].
        """
        embedding = self._encoder(dict(flat), training=training)
        if self._memory is None:
            return embedding
        features = self._memory.sequence(_by_row(embedding, valid.shape[1]), state, valid)
        return ops.reshape(ops.swapaxes(features, 0, 1), (-1, features.shape[-1]))

    def state_after(self, flat: Mapping[str, Any], state: Mapping[str, Any], valid: Any) -> dict[str, Any]:
        """Return the state after T rows, in inference; empty without memory. `flat` has [N*T, ...]."""
        if self._memory is None:
            return {}
        embedding = self._encoder(dict(flat), training=False)
        return self._memory.state_after(_by_row(embedding, valid.shape[1]), state, valid)

    def activations(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of the layers `activated` in inference: layer -> [rows, ...]; `flat` as for `unroll`."""
        return {} if self._activations is None else dict(self._activations(dict(flat), training=False))

    def _embedding(self) -> Any:
        parameters, prefix, seed = self._parameters, self._prefix, self._seed
        middleware = parameters.middleware_parameters
        if isinstance(middleware, GraphMiddlewareParameters):
            return middlewares.build(self._embeddings(), middleware, prefix=prefix, seed=seed)
        if parameters.model is not None:
            merged = _users_model(parameters.model, parameters.model_arguments, self._inputs, f"{prefix}model", seed)
        else:
            embeddings = self._embeddings()
            try:
                merged = middlewares.merge(embeddings, parameters.embedding_merger_type, prefix=prefix)
            except ConfigError as error:
                raise ConfigError(f"network.embedding_merger_type: {error}") from error
        path = "network.middleware_parameters"
        stack = resolve(middleware.scheme, "middleware")
        layers.check_block(middleware, stack, path)
        return layers.apply_scheme(
            merged, stack, block=middleware, prefix=f"{prefix}middleware", seed=seed, path=f"{path}.scheme"
        )

    def _embeddings(self) -> dict[str, Any]:
        return {name: self._embed(name, tensor) for name, tensor in self._inputs.items()}

    def _embed(self, name: str, given: Any) -> Any:
        parameters = self._parameters.input_embedders_parameters.get(name, EmbedderParameters())
        normalization = None
        if parameters.normalize:
            layer = f"{self._prefix}normalization_{embedders.layer_name(name)}"
            normalization = self.normalizations[name] = ObservationNormalization(name=layer)
        return embedders.embed(
            given,
            parameters,
            name=name,
            seed=self._seed,
            normalization=normalization,
            vocabulary=embedders.vocabulary_of(self._arrays[name], parameters, name),
            prefix=self._prefix,
        )


_WITHIN = (
    r"Error encountered:\s*(.*?)\s*(?:Arguments received|$)",
    r"Exception encountered .*?\n\n(.*?)\s*Arguments received",
)
"""Patterns of the text of an exception that Keras raises again with other text."""


def _by_row(embedding: Any, sequences: int) -> Any:
    """[N*rows, width], sequence by sequence -> [rows, N, width]."""
    return ops.swapaxes(ops.reshape(embedding, (sequences, -1, embedding.shape[-1])), 0, 1)


def _own_words(error: Exception) -> str:
    """Return, in one line, the text of an error of the user's code without Keras' text around it, and its place."""
    text = str(error.args[0]) if error.args else str(error)
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    found = [words[1] for pattern in _WITHIN if (words := re.search(pattern, text, re.DOTALL)) is not None]
    text = found[0] if found else text
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{' '.join(text.split())} ({Path(place.filename).name}, line {place.lineno})"


def _users_model(path: str, arguments: Mapping[str, Any], inputs: Mapping[str, Any], name: str, seed: int) -> Any:
    """Apply the user's own keras.Model to all inputs: [batch, width].

    Raises:
        ConfigError: The model cannot be made or called, or returns something else.
    """
    try:
        with layers.seeded(layers.layer_seed(seed, name)):
            merged = layers.custom_layer(CustomLayer(layer=path, arguments=dict(arguments)), name=name)(dict(inputs))
    except ConfigError as error:
        raise ConfigError(f"network.model: {error}") from error
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(f"network.model: {path}: {type(error).__name__}: {_own_words(error)}") from error
    shape = getattr(merged, "shape", None)
    if shape is None or len(shape) != 2 or shape[1] is None:
        what = f"a tensor [batch, {', '.join(map(str, shape[1:]))}]" if shape is not None else type(merged).__name__
        raise ConfigError(f"network.model: {path} must return [batch, width] of one width, not {what}")
    return merged
