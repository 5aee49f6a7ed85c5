"""Functions shared by all steps for observations. A step is fitted to an array's spec before anything runs.

Fitting returns the spec of the result and a function from batches [B, ...] to batches. Rows are independent of each
other: a batch of B equals B batches of one.
"""

from collections.abc import Callable
from dataclasses import replace
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


def elementwise(given: ArraySpec, dtype: str, apply: Function) -> Fitted:
    """Fit a monotone function of single elements. It maps the bounds too, so that they include its rounding."""
    images = [None if bound is None else _image(bound, given.dtype, apply) for bound in (given.low, given.high)]
    low, high = images
    if low is not None and high is not None:
        low, high = min(low, high), max(low, high)
    elif _falls(apply, given.dtype):
        low, high = high, low
    return Fitted(replace(given, dtype=dtype, low=low, high=high), apply)


def floating(dtype: str) -> str:
    """Return the dtype of a result with fractions: floating ones stay, others become float32."""
    return dtype if np.dtype(dtype).kind == "f" else "float32"


def is_whole(dtype: str) -> bool:
    """Return whether numbers of this dtype have no fractions."""
    return np.dtype(dtype).kind in "iu"


def axis_of(axis: int, shape: tuple[int, ...]) -> int:
    """Return the axis counted from 0, without the batch's."""
    if not -len(shape) <= axis < len(shape):
        raise UnfitError(f"there is no axis {axis}")
    return axis % len(shape)


def bounds_of(given: ArraySpec, low: float | None, high: float | None) -> tuple[float, float]:
    """Return the lowest and highest number: the step's, else the observation's own bounds."""
    low = given.low if low is None else low
    high = given.high if high is None else high
    if low is None or high is None:
        raise UnfitError(f"it has no {'lower' if low is None else 'upper'} bound; give the step low and high")
    if low >= high:
        raise UnfitError(f"low: {low:g} is not below high: {high:g}")
    return low, high


def finite(number: float, dtype: str) -> Array:
    """Return a number as an array () of a dtype."""
    array = as_dtype(number, dtype)
    if not np.isfinite(array):
        raise UnfitError(f"{number:g} is more than {dtype} can hold")
    return array


def factor(number: float, dtype: str) -> Array:
    """Return a factor or divisor as an array () of a dtype."""
    array = finite(number, dtype)
    if array == 0:
        raise UnfitError(f"{number:g} is 0 in {dtype}")
    return array


def _image(bound: float, dtype: str, apply: Function) -> float | None:
    """Return a bound's image; None if it is not finite."""
    with np.errstate(over="ignore"):
        image = float(apply(as_dtype(bound, dtype)[None])[0])
    return image if np.isfinite(image) else None


def _falls(apply: Function, dtype: str) -> bool:
    """Return whether the function is decreasing."""
    zero, one = apply(np.array([0, 1], dtype))
    return bool(one < zero)


def as_dtype(number: float, dtype: str) -> Array:
    """Return the nearest number that the dtype can hold, as an array ()."""
    if is_whole(dtype):
        limits = np.iinfo(dtype)
        number = min(max(int(number), int(limits.min)), int(limits.max))
    with np.errstate(over="ignore"):  # infinity, then
        return np.asarray(number, dtype)
