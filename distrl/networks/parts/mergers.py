"""Mergers: several vectors become one."""

from collections.abc import Mapping
from typing import Any, Literal

import keras

from distrl.errors import ConfigError


def merge(embeddings: Mapping[str, Any], kind: Literal["Concat", "Sum"], prefix: str = "") -> Any:
    """Joins vectors in the order of their names, whatever the order of the mapping.

    Args:
        embeddings: Name -> Keras tensor float32 [batch, width], at least one; a single one stays as it is.
        kind: Concat puts them side by side, Sum adds them.
        prefix: Of the layer's name, which is ``<prefix>merger``.

    Returns:
        Keras tensor float32 [batch, sum of widths], or [batch, width] for Sum.

    Raises:
        ConfigError: Sum of different widths; names them all.
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
