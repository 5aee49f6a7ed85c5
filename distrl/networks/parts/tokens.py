"""Tokens: from whole numbers that stand for words to vectors, and from many of those to one."""

from typing import Any

import keras
from keras import ops

from distrl.config.network import EmbedderParameters
from distrl.errors import ConfigError
from distrl.networks.parts.layers import layer_seed
from distrl.types import ArraySpec

PADDING = 0
LARGEST_VOCABULARY = 2**24


def vocabulary_of(array: ArraySpec, parameters: EmbedderParameters, name: str) -> int | None:
    """How many different tokens an input is made of; None where it is not made of tokens.

    A text says so itself; whole numbers from 0 up to a bound are tokens if the configuration says so.

    Raises:
        ConfigError: `kind: tokens`, but not for whole numbers [length] from 0 up to a bound.
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


def embedded_tokens(
    tokens: Any, parameters: EmbedderParameters, vocabulary: int | None, *, name: str, seed: int
) -> Any:
    """Looks tokens up in a table that is learned; with `pooling: mean`, the mean of those that are not padding.

    Padding counts for nothing: a text of nothing else, too, is all zeros.

    Args:
        tokens: Keras tensor of whole numbers [batch, length]; those beyond the table take its last row.
        parameters: `embedding_width` and `pooling`.
        vocabulary: Rows of the table.
        name: The table is the weight ``<name>_words/embeddings``.
        seed: The network's seed.

    Returns:
        Keras tensor [batch, embedding_width], or [batch, length, embedding_width] without pooling.
    """
    if vocabulary is None:
        raise ValueError("tokens have a vocabulary")
    # Rows are of the size of one-hot and normalised observations, beside which they stand.
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
