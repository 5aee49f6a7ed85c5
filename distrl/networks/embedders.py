"""Embedders: one observation in, one vector out. Flatten, scale, then dense layers."""

import re
from typing import Any

import keras

from distrl.config.network import EmbedderParameters
from distrl.networks.layers import dense


def layer_name(observation: str) -> str:
    """An observation's name as part of a Keras name, in which not every character is allowed."""
    return re.sub(r"\W", "_", observation)


def embed(observation: Any, parameters: EmbedderParameters, *, name: str, seed: int) -> Any:
    """Applies the embedder of one observation.

    Args:
        observation: Keras tensor [batch, ...] of any numeric dtype.
        parameters: Rescaling and layers.
        name: Name of the observation; layers are called ``embedder_<name>_…``.
        seed: The network's seed.

    Returns:
        Keras tensor float32 [batch, width].
    """
    prefix = f"embedder_{layer_name(name)}"
    # [batch, ...] -> [batch, product]; Rescaling also casts bytes and integers to float32
    flat = keras.layers.Flatten(name=f"{prefix}_flatten")(observation)
    embedding = keras.layers.Rescaling(1.0 / parameters.input_rescaling, name=f"{prefix}_rescaling")(flat)
    for index, units in enumerate(parameters.units):
        embedding = dense(units, parameters.activation, name=f"{prefix}_dense_{index}", seed=seed)(embedding)
    return embedding
