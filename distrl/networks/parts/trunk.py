"""A network up to its features: embedders, merger and middleware, and the flat rows that run through them."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from distrl.config.network import (
    EmbedderParameters,
    GraphMiddlewareParameters,
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

    Args:
        inputs: The network's inputs by name.
        met: The same with categories one-hot, which the embedders or the user's own model get.
        arrays: Specs of `met`.
        prefix: First part of all names, "" for a network's only trunk.
    """

    def __init__(
        self,
        parameters: NetworkParameters,
        inputs: Mapping[str, Any],
        met: Mapping[str, Any],
        arrays: Mapping[str, ArraySpec],
        *,
        prefix: str,
        seed: int,
    ) -> None:
        self._parameters, self._met, self._arrays = parameters, met, arrays
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
        embedding = self._encoder(self._own(flat), training=training)
        if self._memory is None:
            return embedding
        features = self._memory.sequence(by_row(embedding, valid.shape[1]), state, valid)
        return ops.reshape(ops.swapaxes(features, 0, 1), (-1, features.shape[-1]))

    def state_after(self, flat: Mapping[str, Any], state: Mapping[str, Any], valid: Any) -> dict[str, Any]:
        """Return the state after T rows, in inference; empty without memory. `flat` has [N*T, ...]."""
        if self._memory is None:
            return {}
        embedding = self._encoder(self._own(flat), training=False)
        return self._memory.state_after(by_row(embedding, valid.shape[1]), state, valid)

    def _own(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        return {name: flat[name] for name in self._met}

    def _embedding(self) -> Any:
        parameters, prefix, seed = self._parameters, self._prefix, self._seed
        middleware, initial = parameters.middleware_parameters, parameters.begins
        if isinstance(middleware, GraphMiddlewareParameters):
            return middlewares.build(self._embeddings(), middleware, prefix=prefix, seed=seed, initial=initial)
        if parameters.model is not None:
            merged = layers.users_model(parameters.model, parameters.model_arguments, self._met, f"{prefix}model", seed)
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
            merged,
            stack,
            block=middleware,
            prefix=f"{prefix}middleware",
            seed=seed,
            path=f"{path}.scheme",
            initial=initial,
        )

    def _embeddings(self) -> dict[str, Any]:
        configured = self._parameters.input_embedders_parameters
        chosen = {name: configured.get(name, EmbedderParameters()) for name in self._met}
        return {name: self._embed(name, self._met[name], given) for name, given in chosen.items() if given is not None}

    def _embed(self, name: str, given: Any, parameters: EmbedderParameters) -> Any:
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
            highest=self._arrays[name].high,
            prefix=self._prefix,
            initial=self._parameters.begins,
        )


def by_sequence(rows: Any) -> Any:
    """Flatten sequence by sequence, so that devices which share a batch along N also share the flat rows."""
    shape = rows.shape
    # [T+1, N, ...] -> [N, T+1, ...] -> [N*(T+1), ...]
    return ops.reshape(ops.swapaxes(rows, 0, 1), (int(np.prod(shape[:2])), *shape[2:]))


def by_row(rows: Any, sequences: int) -> Any:
    """Invert `by_sequence`."""
    # [N*(T+1), ...] -> [N, T+1, ...] -> [T+1, N, ...]
    return ops.swapaxes(ops.reshape(rows, (sequences, -1, *rows.shape[1:])), 0, 1)
