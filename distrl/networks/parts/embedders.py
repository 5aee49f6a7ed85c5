"""Embedders: one observation in, one vector out. Scaled by the configuration, or looked up, then a scheme's layers."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras

from distrl.config.network import EmbedderParameters
from distrl.errors import ConfigError
from distrl.networks.parts.layers import apply_scheme, check_block
from distrl.networks.parts.schemes import resolve
from distrl.networks.parts.tokens import embedded_tokens
from distrl.networks.parts.windows import image_scheme

Kind = Literal["vector", "image", "tensor", "tokens"]

BYTE_RESCALING = 255.0
"""What images of bytes are divided by, unless the configuration says otherwise."""


def layer_name(observation: str) -> str:
    """An observation's name as part of a Keras name, in which not every character is allowed."""
    return re.sub(r"\W", "_", observation)


def embed(
    observation: Any,
    parameters: EmbedderParameters,
    *,
    name: str,
    seed: int,
    normalization: Callable[[Any], Any] | None = None,
    vocabulary: int | None = None,
    prefix: str = "",
) -> Any:
    """Applies the embedder of one observation: cast, normalise, rescale, offset, clip, layers, flatten.

    Tokens are looked up and pooled in the place of all that comes before the layers.

    Args:
        observation: Keras tensor [batch, ...] of any numeric dtype.
        parameters: Scaling and layers.
        name: Name of the observation; layers are called ``<prefix>embedder_<name>_…``.
        seed: The network's seed.
        normalization: The layer that normalises this observation by running statistics, if there is one.
        vocabulary: How many different tokens there are, where the observation is made of tokens.
        prefix: For networks that embed one observation several times.

    Returns:
        Keras tensor float32 [batch, width].

    Raises:
        ConfigError: The scheme, or a parameter, does not fit the observation; names the path of the configuration.
    """
    prefix = f"{prefix}embedder_{layer_name(name)}"
    path = f"network.input_embedders_parameters.{name}.scheme"
    kind = embedder_kind(observation, parameters, vocabulary)
    _check_parameters(parameters, kind, path.removesuffix(".scheme"))
    if kind == "tokens":
        x = embedded_tokens(observation, parameters, vocabulary, name=prefix, seed=seed)
    else:
        x = _scaled(observation, parameters, kind, normalization)
    if kind == "vector":
        x = keras.layers.Flatten(name=f"{prefix}_flatten")(x)  # [batch, ...] -> [batch, product]
    try:
        layers = resolve(_scheme(parameters, kind, x.shape[1:]), "image" if kind == "image" else "vector")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    check_block(parameters, layers, path.removesuffix(".scheme"))
    x = apply_scheme(x, layers, block=parameters, prefix=prefix, seed=seed, path=path)
    return x if len(x.shape) == 2 else keras.layers.Flatten(name=f"{prefix}_flatten")(x)


def embedder_kind(observation: Any, parameters: EmbedderParameters, vocabulary: int | None = None) -> Kind:
    """What an observation is taken for; with `auto`, [height, width, channels] is an image and all else a vector.

    What has a vocabulary is made of tokens.
    """
    if parameters.kind != "auto":
        return parameters.kind
    if vocabulary is not None:
        return "tokens"
    return "image" if len(observation.shape) == 4 else "vector"


_OF_NUMBERS = ("input_rescaling", "input_offset", "input_clipping", "normalize")
_OF_TOKENS = ("embedding_width", "pooling")


def _check_parameters(parameters: EmbedderParameters, kind: Kind, path: str) -> None:
    """Raises ConfigError where something is set that this kind of observation has no use for."""
    without_use = _OF_NUMBERS if kind == "tokens" else _OF_TOKENS
    for name in without_use:
        if getattr(parameters, name) != EmbedderParameters.model_fields[name].default:
            what = "tokens, which are no quantities" if kind == "tokens" else f"a {kind}; it is of tokens"
            raise ConfigError(f"{path}.{name} has no use for {what}")


def _scheme(parameters: EmbedderParameters, kind: str, shape: Sequence[int]) -> Any:
    if kind == "image" and len(shape) == 3:
        return image_scheme(parameters.scheme, shape)
    if parameters.scheme != "auto":
        return parameters.scheme
    return "Medium" if kind == "image" else "Empty"


def _scaled(
    observation: Any, parameters: EmbedderParameters, kind: str, normalization: Callable[[Any], Any] | None
) -> Any:
    """(x / rescaling - offset), clipped; float32 [batch, ...]."""
    x = keras.ops.cast(observation, "float32")
    if normalization is not None:
        x = normalization(x)
    is_byte_image = kind == "image" and observation.dtype == "uint8"
    # A normalised image is no longer in bytes.
    usual = BYTE_RESCALING if is_byte_image and normalization is None else 1.0
    rescaling = usual if parameters.input_rescaling is None else parameters.input_rescaling
    if rescaling != 1.0:
        x = x / rescaling
    if parameters.input_offset != 0.0:
        x = x - parameters.input_offset
    if parameters.input_clipping is not None:
        x = keras.ops.clip(x, *parameters.input_clipping)
    return x
