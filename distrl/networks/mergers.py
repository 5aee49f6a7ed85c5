"""Mergers: the embeddings of all observations become one vector."""

from collections.abc import Sequence
from typing import Any

import keras


def concatenate(embeddings: Sequence[Any]) -> Any:
    """Joins embeddings in the order of the observations.

    Args:
        embeddings: Keras tensors float32 [batch, width_i], at least one.

    Returns:
        Keras tensor float32 [batch, sum of widths].
    """
    if len(embeddings) == 1:
        return embeddings[0]
    return keras.layers.Concatenate(axis=-1, name="merger")(list(embeddings))
