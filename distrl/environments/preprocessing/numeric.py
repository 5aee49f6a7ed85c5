"""Steps that change numbers and leave shapes as they are; and one-hot, which adds an axis."""

import math
from dataclasses import replace

import numpy as np

from distrl.config import preprocessing as steps
from distrl.environments.preprocessing.fit import MOST_NUMBERS, Fitted, Function, UnfitError, as_dtype, finite, is_whole
from distrl.types import Array, ArraySpec

_ALMOST = 1e-6
"""Rounding down must not make 254 of a 255 that arithmetic left at 254.999…"""


def clip(step: steps.ClipStep, given: ArraySpec) -> Fitted:
    """Cut to the limits; a limit that is missing is none, and 0 is a limit like any other."""
    dtype = given.dtype
    if np.dtype(dtype).kind == "b":
        raise UnfitError("it is true or false")
    for limit in (step.low, step.high):
        if limit is not None and is_whole(dtype) and not float(limit).is_integer():
            raise UnfitError(f"{limit} is no limit of whole numbers; put to_dtype before it")
    low = None if step.low is None else finite(step.low, dtype)
    high = None if step.high is None else finite(step.high, dtype)
    spec, apply = elementwise(given, dtype, lambda rows: np.asarray(np.clip(rows, low, high)))
    return Fitted(
        replace(
            spec,
            low=float(low) if spec.low is None and low is not None else spec.low,
            high=float(high) if spec.high is None and high is not None else spec.high,
        ),
        apply,
    )


def scale(step: steps.ScaleStep, given: ArraySpec) -> Fitted:
    """Multiply or divide by one number, in the dtype of the result."""
    dtype = floating(given.dtype)
    number, operation = (step.divide, np.divide) if step.multiply is None else (step.multiply, np.multiply)
    assert number is not None  # the step's own check
    operand = factor(number, dtype)
    return elementwise(given, dtype, lambda rows: operation(rows, operand, dtype=dtype))


def to_dtype(step: steps.ToDtypeStep, given: ArraySpec) -> Fitted:
    """Convert after a cut to the dtype's range; to whole numbers by cutting fractions off."""
    return elementwise(given, step.dtype, _conversion(given.dtype, step.dtype))


def _conversion(source: str, target: str) -> Function:
    if np.dtype(source).kind == "b":
        return lambda rows: rows.astype(target)
    if not is_whole(target):
        largest = _largest(target)
        if _largest(source) <= largest:
            return lambda rows: rows.astype(target)
        lowest, highest = as_dtype(-largest, source), as_dtype(largest, source)
        return lambda rows: np.clip(rows, lowest, highest).astype(target)
    limits = np.iinfo(target)
    if is_whole(source):
        low, high = as_dtype(int(limits.min), source), as_dtype(int(limits.max), source)
        return lambda rows: np.clip(rows, low, high).astype(target)
    # 2^63 - 1 has no float64, and the next larger number would overflow.
    top = float(limits.max) if int(float(limits.max)) == limits.max else float(np.nextafter(float(limits.max), 0.0))
    return lambda rows: np.clip(rows.astype(np.float64), float(limits.min), top).astype(target)


def _largest(dtype: str) -> float:
    return float(np.iinfo(dtype).max if is_whole(dtype) else np.finfo(dtype).max)


def to_uint8(step: steps.ToUint8Step, given: ArraySpec) -> Fitted:
    """``floor((x - low) * 255 / (high - low))``, cut to 0 … 255."""
    low, high = bounds_of(given, step.low, step.high)

    def apply(rows: Array) -> Array:
        levels = (rows.astype(np.float64) - low) * 255.0 / (high - low) + _ALMOST
        return np.clip(levels, 0.0, 255.0).astype(np.uint8)

    spec = elementwise(replace(given, vocabulary=None), "uint8", apply).spec  # levels are no tokens
    return Fitted(
        replace(spec, low=0.0 if spec.low is None else spec.low, high=255.0 if spec.high is None else spec.high), apply
    )


def center(step: steps.CenterStep, given: ArraySpec) -> Fitted:
    """``2 (x - low) / (high - low) - 1``."""
    dtype = floating(given.dtype)
    low, high = (finite(bound, dtype) for bound in bounds_of(given, step.low, step.high))
    with np.errstate(over="ignore"):
        half = np.asarray((high - low) / 2, dtype)
    if half == 0:
        raise UnfitError(f"its range ends where it begins, at {low:g} in {dtype}; give the step low and high")
    if not np.isfinite(half):
        raise UnfitError(f"its range from {low:g} to {high:g} is too wide; give the step low and high")
    return elementwise(given, dtype, lambda rows: np.subtract(rows, low, dtype=dtype) / half - as_dtype(1, dtype))


def normalize(step: steps.NormalizeStep, given: ArraySpec) -> Fitted:
    """``(x - min) / (max - min)`` over all elements of a row; 0 where they are equal."""
    dtype = floating(given.dtype)

    def apply(rows: Array) -> Array:
        lowest, highest = _extremes(rows)
        span = highest - lowest
        shares = (rows.astype(np.float64) - lowest) / np.where(span == 0.0, 1.0, span)
        return shares.astype(dtype)

    return Fitted(replace(given, dtype=dtype, low=0.0, high=1.0), apply)


def standardize(step: steps.StandardizeStep, given: ArraySpec) -> Fitted:
    """``(x - mean) / deviation`` over all elements of a row, as a population; 0 where they are equal."""
    dtype = floating(given.dtype)

    def apply(rows: Array) -> Array:
        lowest, highest = _extremes(rows)
        axes = tuple(range(1, rows.ndim))
        # In units of the range, so that squares neither overflow nor vanish.
        span = np.where(highest == lowest, 1.0, highest - lowest)
        shares = (rows.astype(np.float64) - lowest) / span
        apart = shares - shares.mean(axis=axes, keepdims=True)
        deviation = np.sqrt(np.square(apart).mean(axis=axes, keepdims=True))
        return np.where(highest == lowest, 0.0, apart / np.where(highest == lowest, 1.0, deviation)).astype(dtype)

    return Fitted(replace(given, dtype=dtype, low=None, high=None), apply)


def _extremes(rows: Array) -> tuple[Array, Array]:
    """Smallest and largest element of each row, float64 [B, 1, ...]."""
    axes = tuple(range(1, rows.ndim))
    return (
        rows.min(axis=axes, keepdims=True).astype(np.float64),
        rows.max(axis=axes, keepdims=True).astype(np.float64),
    )


def one_hot(step: steps.OneHotStep, given: ArraySpec) -> Fitted:
    """[...] of whole numbers -> float32 [..., categories]; the first category is the lower bound, 0 without one.

    A Discrete or MultiDiscrete becomes the one-hot row that a network makes of it, choice after choice.
    """
    if given.categories is not None:
        if step.categories is not None:
            raise UnfitError("its space says how many categories it has; leave categories out")
        return Fitted(given.expanded, given.categories.rows)
    if not is_whole(given.dtype):
        raise UnfitError("it is not of whole numbers")
    first = 0 if given.low is None else int(given.low)
    categories = step.categories
    if categories is None:
        if given.low is None or given.high is None:
            raise UnfitError("it has no bounds; give the step its number of categories")
        categories = int(given.high) - first + 1
    numbers = math.prod(given.shape) * categories
    if numbers > MOST_NUMBERS:
        raise UnfitError(f"{categories} categories make {numbers} numbers of it; {MOST_NUMBERS} is the most")

    def apply(rows: Array) -> Array:
        last = first + categories - 1
        if rows.min() < first or rows.max() > last:
            raise ValueError(f"one_hot: {rows.min()} … {rows.max()} is not within {first} … {last}")
        marks = np.zeros((*rows.shape, categories), np.float32)
        np.put_along_axis(marks, (rows.astype(np.int64) - first)[..., None], np.float32(1), axis=-1)
        return marks

    return Fitted(ArraySpec((*given.shape, categories), "float32", 0.0, 1.0), apply)


def elementwise(given: ArraySpec, dtype: str, apply: Function) -> Fitted:
    """A monotone function of single elements. The bounds are put through it, so that its rounding is in them."""
    images = [None if bound is None else _image(bound, given.dtype, apply) for bound in (given.low, given.high)]
    low, high = images
    if low is not None and high is not None:
        low, high = min(low, high), max(low, high)
    elif _falls(apply, given.dtype):
        low, high = high, low
    return Fitted(replace(given, dtype=dtype, low=low, high=high), apply)


def _image(bound: float, dtype: str, apply: Function) -> float | None:
    """A bound's image; None where it is not finite."""
    with np.errstate(over="ignore"):
        image = float(apply(as_dtype(bound, dtype)[None])[0])
    return image if np.isfinite(image) else None


def _falls(apply: Function, dtype: str) -> bool:
    """Whether larger numbers come out smaller."""
    zero, one = apply(np.array([0, 1], dtype))
    return bool(one < zero)


def floating(dtype: str) -> str:
    """The dtype of a result with fractions: floating ones stay as they are, others become float32."""
    return dtype if np.dtype(dtype).kind == "f" else "float32"


def bounds_of(given: ArraySpec, low: float | None, high: float | None) -> tuple[float, float]:
    """Lowest and highest number: the step's, else the observation's own bounds."""
    low = given.low if low is None else low
    high = given.high if high is None else high
    if low is None or high is None:
        raise UnfitError(f"it has no {'lower' if low is None else 'upper'} bound; give the step low and high")
    if low >= high:
        raise UnfitError(f"low: {low:g} is not below high: {high:g}")
    return low, high


def factor(number: float, dtype: str) -> Array:
    """A number to multiply with or to divide by, as an array () of a dtype."""
    array = finite(number, dtype)
    if array == 0:
        raise UnfitError(f"{number:g} is 0 in {dtype}")
    return array
