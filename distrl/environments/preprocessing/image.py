"""Steps for images [height, width] or [height, width, channels], by OpenCV (extra `image`).

OpenCV counts sizes as (width, height), takes one image at a time, and drops a last axis of one channel.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from distrl.config import preprocessing as steps
from distrl.environments.preprocessing.fit import MOST_NUMBERS, Fitted, UnfitError, as_dtype
from distrl.errors import require
from distrl.types import Array, ArraySpec

_RESIZABLE = ("uint8", "int16", "uint16", "float32", "float64")
_WEIGHABLE = ("uint8", "float32", "float64")
_CHANNELS = 4
"""Most channels of OpenCV's area interpolation."""
_ALMOST = 1e-4
"""Rounding down must not make 254 of a white pixel whose weights add up to 0.9999999."""


def crop(step: steps.CropStep, given: ArraySpec) -> Fitted:
    """Rows ``y … y + height - 1``, columns ``x … x + width - 1``."""
    height, width, *channels = _image_shape(given)
    for start, extent, size, side in ((step.x, step.width, width, "width"), (step.y, step.height, height, "height")):
        if start + extent > size:
            raise UnfitError(f"{'x' if side == 'width' else 'y'} + {side} is {start + extent}, its {side} is {size}")
    rows, columns = slice(step.y, step.y + step.height), slice(step.x, step.x + step.width)
    shape = (step.height, step.width, *channels)
    return Fitted(replace(given, shape=shape), lambda images: images[:, rows, columns])


def resize(step: steps.ResizeStep, given: ArraySpec) -> Fitted:
    """Another size in the same dtype; values that an interpolation puts beyond the image's bounds are cut to them."""
    height, width, *channels = _image_shape(given)
    _check_dtype(given, _RESIZABLE)
    if step.factor is None:
        assert step.width is not None  # the step's own check
        assert step.height is not None
        new_height, new_width = step.height, step.width
    else:
        new_height, new_width = (max(1, math.floor(side * step.factor + 0.5)) for side in (height, width))
    numbers = new_height * new_width * math.prod(channels)
    if numbers > MOST_NUMBERS:
        raise UnfitError(f"{new_width} x {new_height} make {numbers} numbers of it; {MOST_NUMBERS} is the most")
    cv2 = _opencv()
    interpolation = {
        "area": cv2.INTER_AREA,
        "bilinear": cv2.INTER_LINEAR,
        "nearest": cv2.INTER_NEAREST,
        "bicubic": cv2.INTER_CUBIC,
        "lanczos": cv2.INTER_LANCZOS4,
    }[step.interpolation]
    shape = (new_height, new_width, *channels)
    low, high = (None if bound is None else as_dtype(bound, given.dtype) for bound in (given.low, given.high))
    whole_range = (low is None and high is None) or (given.dtype == "uint8" and (given.low, given.high) == (0, 255))

    def one(image: Array, out: Array) -> None:
        for first in range(0, channels[0] if channels else 1, _CHANNELS):
            part = (..., slice(first, first + _CHANNELS)) if channels else (...,)
            resized = cv2.resize(image[part], (new_width, new_height), interpolation=interpolation)
            out[part] = resized.reshape(out[part].shape)

    def apply(images: Array) -> Array:
        resized = np.empty((len(images), *shape), given.dtype)
        for image, out in zip(images, resized, strict=True):
            one(image, out)
        return resized if whole_range else np.clip(resized, low, high)

    return Fitted(replace(given, shape=shape), apply)


def grayscale(step: steps.GrayscaleStep, given: ArraySpec) -> Fitted:
    """The weighted sum of the channels, in the same dtype; uint8 is rounded down and ends at 255."""
    height, width, *channels = _image_shape(given)
    _check_dtype(given, _WEIGHABLE)
    if channels != [len(step.weights)]:
        raise UnfitError(
            f"it has {channels[0] if channels else 'no'} channels, and there are {len(step.weights)} weights"
        )
    cv2 = _opencv()
    is_uint8 = given.dtype == "uint8"
    # OpenCV rounds to the nearest number; half less is the number below.
    bias = [_ALMOST - 0.5] if is_uint8 else []
    weights = np.array([[*step.weights, *bias]], np.float64)
    low, high = _weighed_bounds(step.weights, given)
    shape = (height, width, 1) if step.keep_axis else (height, width)

    def apply(images: Array) -> Array:
        # [B, H, W, C] -> [B*H, W, C]: every pixel is by itself, so that the batch is one large image
        flat = np.ascontiguousarray(images).reshape(-1, width, len(step.weights))
        grey = np.asarray(cv2.transform(flat, weights)).reshape(len(images), *shape)
        # Sums in another order may differ by a rounding from the bounds.
        return grey if is_uint8 or low is None or high is None else np.clip(grey, low, high)

    return Fitted(replace(given, shape=shape, low=low, high=high), apply)


def _weighed_bounds(weights: tuple[float, ...], given: ArraySpec) -> tuple[float | None, float | None]:
    """Smallest and largest weighted sum of numbers within the bounds."""
    if given.low is None or given.high is None:
        return None, None
    low = math.fsum(weight * (given.low if weight >= 0 else given.high) for weight in weights)
    high = math.fsum(weight * (given.high if weight >= 0 else given.low) for weight in weights)
    if given.dtype == "uint8":
        return tuple(float(min(max(math.floor(bound + _ALMOST), 0), 255)) for bound in (low, high))  # type: ignore[return-value]
    return tuple(float(np.asarray(bound, given.dtype)) for bound in (low, high))  # type: ignore[return-value]


def binary(step: steps.BinaryStep, given: ArraySpec) -> Fitted:
    """uint8: 1 where an element, or the sum of a pixel's channels, is above the threshold."""
    shape = given.shape
    if step.sum_channels:
        if not shape:
            raise UnfitError("it has no axis of channels")
        shape = (*shape[:-1], 1) if step.keep_axis else shape[:-1]
    total = np.float64 if np.dtype(given.dtype).kind == "f" else np.int64

    def apply(rows: Array) -> Array:
        values = rows.sum(axis=-1, dtype=total, keepdims=step.keep_axis) if step.sum_channels else rows
        return np.asarray(values > step.threshold).astype(np.uint8)

    return Fitted(ArraySpec(shape, "uint8", 0.0, 1.0), apply)


def _image_shape(given: ArraySpec) -> tuple[int, ...]:
    if len(given.shape) not in (2, 3):
        raise UnfitError("images are [height, width] or [height, width, channels]")
    return given.shape


def _check_dtype(given: ArraySpec, known: tuple[str, ...]) -> None:
    if given.dtype not in known:
        raise UnfitError(f"images are of {', '.join(known)}; put to_dtype before it")


def _opencv() -> Any:
    require("cv2", "OpenCV, which preprocesses images,", "image")
    import cv2

    cv2.setNumThreads(1)  # an actor is one thread; several would take each other's cores
    return cv2
