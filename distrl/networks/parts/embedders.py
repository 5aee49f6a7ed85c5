"""Embedders: one observation in, one vector out.

Numbers are scaled as configured, tokens (whole numbers that stand for words) are looked up in a table; a scheme's
layers follow.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
from keras import ops

from distrl.config.network import EmbedderParameters, InitialWeights
from distrl.errors import ConfigError
from distrl.networks.parts.initializers import layer_seed
from distrl.networks.parts.layers import apply_scheme, check_block
from distrl.networks.parts.schemes import image_scheme, resolve
from distrl.types import ArraySpec

Kind = Literal["vector", "image", "tensor", "tokens"]

BYTE_RESCALING = 255.0
"""Divisor of images of bytes without an upper bound, unless the configuration sets another."""
PADDING = 0
LARGEST_VOCABULARY = 2**24


def layer_name(observation: str) -> str:
    """Return the name of an observation, or of an action, as part of a Keras name, which has ASCII letters and digits.

    Names in other scripts differ by a hash of theirs.
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", observation)
    return name if observation.isascii() else f"{name}_{hashlib.sha256(observation.encode()).hexdigest()[:12]}"


def embed(
    observation: Any,
    parameters: EmbedderParameters,
    *,
    name: str,
    seed: int,
    normalization: Callable[[Any], Any] | None = None,
    vocabulary: int | None = None,
    highest: float | None = None,
    prefix: str = "",
    initial: InitialWeights = "orthogonal",
) -> Any:
    """Apply the embedder of one observation: cast, normalise, rescale, offset, clip, layers, flatten.

    Tokens are looked up and pooled in place of all steps before the layers.

    Args:
        name: Name of the observation; layers are called ``<prefix>embedder_<name>_…``.
        normalization: The layer that normalises this observation by running statistics, if there is one.
        highest: Upper bound of the observation; images of bytes are divided by it.
        initial: How dense layers and convolutions begin.

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
        x = _embedded_tokens(observation, parameters, vocabulary, name=prefix, seed=seed)
    else:
        rescaling = _usual_rescaling(observation, kind, highest) if normalization is None else 1.0
        x = _scaled(observation, parameters, rescaling, normalization)
    if kind == "vector":
        x = keras.layers.Flatten(name=f"{prefix}_flatten")(x)  # [batch, ...] -> [batch, product]
    try:
        layers = resolve(_scheme(parameters, kind, x.shape[1:]), "image" if kind == "image" else "vector")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    check_block(parameters, layers, path.removesuffix(".scheme"))
    x = apply_scheme(x, layers, block=parameters, prefix=prefix, seed=seed, path=path, initial=initial)
    return x if len(x.shape) == 2 else keras.layers.Flatten(name=f"{prefix}_flatten")(x)


def expanded(given: Any, array: ArraySpec) -> Any:
    """Return an input as networks meet it: categories [batch, k] as one-hot rows, all else as it is.

    Returns:
        Keras tensor as `ArraySpec.expanded` says; a number beyond its choices is a row of zeros.
    """
    categories = array.categories
    if categories is None:
        return given
    which, number = categories.columns
    # float32 holds all of these numbers, and has a kernel for each operation on every device.
    taken = ops.take(ops.cast(given, "float32"), which, axis=-1)  # [batch, k] -> [batch, width]
    return ops.cast(ops.equal(taken, number.astype("float32")), "float32")


def embedder_kind(observation: Any, parameters: EmbedderParameters, vocabulary: int | None = None) -> Kind:
    """Return the kind of an observation: the configured one.

    With auto, a vocabulary means tokens, [height, width, channels] an image, and everything else a vector.
    """
    if parameters.kind != "auto":
        return parameters.kind
    if vocabulary is not None:
        return "tokens"
    return "image" if len(observation.shape) == 4 else "vector"


def vocabulary_of(array: ArraySpec, parameters: EmbedderParameters, name: str) -> int | None:
    """Return the number of different tokens in an input; None if it has no tokens.

    A text's specification holds the number; whole numbers from 0 up to a bound are tokens if the configuration says so.

    Raises:
        ConfigError: `kind: tokens`, but the input is not whole numbers [length] from 0 up to a bound.
    """
    if array.vocabulary is not None or parameters.kind != "tokens":
        return array.vocabulary
    bounded = array.low is not None and array.low >= 0 and array.high is not None and array.high < LARGEST_VOCABULARY
    if array.dtype.startswith(("int", "uint")) and len(array.shape) == 1 and bounded and array.high is not None:
        return int(array.high) + 1
    raise ConfigError(
        f"network.input_embedders_parameters.{name}.kind: tokens are whole numbers [length] from 0 to at most "
        f"{LARGEST_VOCABULARY - 1}, not {array.dtype} {list(array.shape)} from {array.low} to {array.high}"
    )


def _embedded_tokens(
    tokens: Any, parameters: EmbedderParameters, vocabulary: int | None, *, name: str, seed: int
) -> Any:
    """Look tokens up in a trained table; with `pooling: mean`, return their mean without padding (zeros for none).

    Args:
        tokens: Keras tensor of whole numbers [batch, length]; those beyond the table take its last row.
        name: The table is the weight ``<name>_words/embeddings``.

    Returns:
        Keras tensor [batch, embedding_width], or [batch, length, embedding_width] without pooling.
    """
    if vocabulary is None:
        raise ValueError("tokens have a vocabulary")
    # Rows have the scale of one-hot and normalised observations, which stand beside them.
    initializer = keras.initializers.RandomNormal(stddev=1.0, seed=layer_seed(seed, f"{name}_words"))
    table = keras.layers.Embedding(
        vocabulary, parameters.embedding_width, embeddings_initializer=initializer, name=f"{name}_words"
    )
    indices = ops.clip(ops.cast(tokens, "int32"), 0, vocabulary - 1)
    rows = table(indices)  # [batch, length, embedding_width]
    is_word = ops.cast(ops.not_equal(indices, PADDING), rows.dtype)[..., None]
    rows = rows * is_word
    if parameters.pooling == "none":
        return rows
    return ops.sum(rows, axis=1) / ops.maximum(ops.sum(is_word, axis=1), 1.0)


_FOR_NUMBERS = ("input_rescaling", "input_offset", "input_clipping", "normalize")
_FOR_TOKENS = ("embedding_width", "pooling")


def _check_parameters(parameters: EmbedderParameters, kind: Kind, path: str) -> None:
    """Raise ConfigError if an option is set that has no effect on this kind of observation."""
    for name in _FOR_NUMBERS if kind == "tokens" else _FOR_TOKENS:
        if parameters.is_changed(name):
            what = "tokens, which are no quantities" if kind == "tokens" else f"a {kind}; for tokens only"
            raise ConfigError(f"{path}.{name} has no effect on {what}")


def _scheme(parameters: EmbedderParameters, kind: str, shape: Sequence[int]) -> Any:
    if kind == "image" and len(shape) == 3:
        return image_scheme(parameters.scheme, shape)
    if parameters.scheme != "auto":
        return parameters.scheme
    return "Medium" if kind == "image" else "Empty"


def _usual_rescaling(observation: Any, kind: Kind, highest: float | None) -> float:
    """Return the divisor where the configuration sets none: images of bytes from 0 to a bound become 0 to 1."""
    if kind != "image" or observation.dtype != "uint8":
        return 1.0
    return highest or BYTE_RESCALING  # a bound of 0 divides nothing


def _scaled(
    observation: Any, parameters: EmbedderParameters, usual: float, normalization: Callable[[Any], Any] | None
) -> Any:
    """(x / rescaling - offset), clipped; float32 [batch, ...]. A normalised image is no longer in bytes."""
    x = ops.cast(observation, "float32")
    if normalization is not None:
        x = normalization(x)
    rescaling = usual if parameters.input_rescaling is None else parameters.input_rescaling
    if rescaling != 1.0:
        x = x / rescaling
    if parameters.input_offset != 0.0:
        x = x - parameters.input_offset
    if parameters.input_clipping is not None:
        x = ops.clip(x, *parameters.input_clipping)
    return x
