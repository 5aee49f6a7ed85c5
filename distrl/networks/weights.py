"""Values of variables: copies, checks, stable names, and which variables are mixed."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from distrl.types import Array


def to_numpy(variable: Any) -> Array:
    """Return a copy that shares no memory with the tensor or variable."""
    # keras.ops.convert_to_numpy asks TensorFlow for a copy in a way that NumPy 2 warns about.
    return np.array(np.asarray(variable))


def is_mixed(variable: Any) -> bool:
    """Return whether mixing rates apply to this variable: only to trainable floating-point weights."""
    return bool(variable.trainable) and np.issubdtype(np.dtype(variable.dtype), np.floating)


def check_rate(rate: float) -> None:
    """Raise ValueError unless `rate` is in [0, 1]."""
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"rate must be in [0, 1], not {rate}")


def checked_array(variable: Any, given: Array) -> Array:
    """Return `given` in the dtype of `variable`.

    Raises:
        ValueError: The shape differs, or a value is not finite or does not fit the dtype; names the variable.
    """
    array, dtype = np.asarray(given), np.dtype(variable.dtype)
    if array.shape != tuple(variable.shape):
        raise ValueError(f"weight {variable.path} has shape {tuple(variable.shape)}, given {array.shape}")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"weight {variable.path}: the given values are not numbers but {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        fitting = array.astype(dtype)
    if not (np.isfinite(array).all() and np.isfinite(fitting).all()):
        raise ValueError(f"weight {variable.path}: the given values are not finite")
    if dtype.kind in "iu" and (fitting != array).any():
        raise ValueError(f"weight {variable.path}: {dtype} cannot hold the given values")
    return fitting


_KERAS_COUNTS = "seed_generator"
"""Name of random generators inside Keras' own layers, which Keras numbers through the process."""


def stable_names(variables: Sequence[Any], counted: Sequence[str]) -> list[str]:
    """Return names of a model's variables that are the same in every copy and process: their Keras paths.

    Args:
        variables: In the model's order.
        counted: Layers of users' own classes. Keras numbers the layers inside them through the process, as "dense_7";
            they are renumbered "dense", "dense_1" in the order of the variables.
    """
    renamed: dict[tuple[str, str], dict[str, str]] = {}
    taken: dict[str, int] = {}
    names = []
    for variable in variables:
        parts = variable.path.split("/")
        inside = False
        for index, part in enumerate(parts):
            base = re.sub(r"_\d+$", "", part)
            if inside or base == _KERAS_COUNTS:
                known = renamed.setdefault(("/".join(parts[:index]), base), {})
                parts[index] = known.setdefault(part, f"{base}_{len(known)}" if known else base)
            inside = inside or part in counted
        name = "/".join(parts)
        taken[name] = taken.get(name, 0) + 1
        names.append(name if taken[name] == 1 else f"{name}_{taken[name] - 1}")
    return names
