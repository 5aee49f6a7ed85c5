"""Functions shared by all steps for observations. A step is fitted to an array's spec before anything runs.

Fitting returns the spec of the result and a function from batches [B, ...] to batches. Rows are independent of each
other: a batch of B equals B batches of one.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from distrl.types import Array, ArraySpec

Function = Callable[[Array], Array]
"""[B, ...] -> [B, ...]."""

MOST_NUMBERS = 16_777_216
"""Most numbers of one observation that a step makes larger: 64 MiB of float32."""


class UnfitError(Exception):
    """The step cannot be applied; the message is the reason."""


class Fitted(NamedTuple):
    """The spec of a step's result, and the function that computes it."""

    spec: ArraySpec
    apply: Function


def is_whole(dtype: str) -> bool:
    """Return whether numbers of this dtype have no fractions."""
    return np.dtype(dtype).kind in "iu"


def finite(number: float, dtype: str) -> Array:
    """Return a number as an array () of a dtype."""
    array = as_dtype(number, dtype)
    if not np.isfinite(array):
        raise UnfitError(f"{number:g} is more than {dtype} can hold")
    return array


def as_dtype(number: float, dtype: str) -> Array:
    """Return the nearest number that the dtype can hold, as an array ()."""
    if is_whole(dtype):
        limits = np.iinfo(dtype)
        number = min(max(int(number), int(limits.min)), int(limits.max))
    with np.errstate(over="ignore"):  # infinity, then
        return np.asarray(number, dtype)
