"""Checks, while an update is traced, of what the methods that a subclass may replace have returned."""

from typing import TypeVar

import keras

from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor

T = TypeVar("T")


def stated(of: object, method: str, value: Tensor, shape: tuple[int | None, ...]) -> Tensor:
    """Return what a method has returned, if it is float32 of the shape that its caller counts on.

    A scalar or a row too few would often be broadcast, and the training would go on with another loss.

    Args:
        of: The algorithm whose method it is.
        shape: None where the size is known only when the update runs.

    Raises:
        ConfigError: It is something else; one line.
    """
    found = getattr(value, "shape", None)
    if found is None:
        problem = type(value).__name__
    else:
        dtype, sizes = keras.backend.standardize_dtype(value.dtype), tuple(found)
        fits = len(sizes) == len(shape) and all(
            None in pair or pair[0] == pair[1] for pair in zip(sizes, shape, strict=True)
        )
        if fits and dtype == "float32":
            return value
        problem = f"{dtype} {list(sizes)}"
    raise ConfigError(
        f"{_name(of)}.{method} has returned {problem}; return float32 {list(shape)} (docs/change_one_thing.md)"
    )


def stated_fields(of: object, method: str, value: T, kind: type[T]) -> T:
    """Return what a method has returned, if it is a named tuple of this kind; else raise ConfigError."""
    if isinstance(value, kind):
        return value
    raise ConfigError(
        f"{_name(of)}.{method} has returned {type(value).__name__}; return {kind.__name__} (docs/change_one_thing.md)"
    )


def _name(of: object) -> str:
    return f"{type(of).__module__}:{type(of).__name__}"
