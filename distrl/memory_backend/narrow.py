"""Weights in 16 bits on their way to the actors: half the bytes, for some loss of precision."""

from typing import Any, Literal

import numpy as np

from distrl.errors import DecodeError, NonFiniteError
from distrl.types import Array

WireDtype = Literal["float32", "float16", "bfloat16"]


def narrowed(name: str, array: Array, dtype: WireDtype) -> Array:
    """A float32 array in 16 bits; the array itself where it is of another dtype or `dtype` is float32.

    float16 has 11 bits of precision and ends at 65504; bfloat16 has 8 bits and the range of float32. NumPy has no
    bfloat16: it travels as uint16, the upper half of the float32's bits, rounded to nearest, ties to even.

    Raises:
        NonFiniteError: A value is beyond the dtype.
    """
    if array.dtype != np.float32 or dtype == "float32":
        return array
    if dtype == "float16":
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        if not np.isfinite(half).all():
            raise NonFiniteError(f"weights {name} do not fit float16, which ends at 65504; use wire_dtype: bfloat16")
        return half
    bits = array.view(np.uint32) if array.ndim else np.frombuffer(array.tobytes(), np.uint32).reshape(())
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    half = np.asarray((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    if not np.isfinite(widened(name, half, "bfloat16")).all():
        raise NonFiniteError(f"weights {name} do not fit bfloat16, which ends at 3.39e38")
    return half


def widened(name: str, array: Array, dtype: Any) -> Array:
    """The inverse of `narrowed`: float32.

    Raises:
        DecodeError: The array is not what `narrowed` makes of `dtype`.
    """
    if dtype == "float16" and array.dtype == np.float16:
        return array.astype(np.float32)
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return np.asarray(array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    raise DecodeError(f"weights {name} are {array.dtype}, described as {str(dtype)[:20]}")
