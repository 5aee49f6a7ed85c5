"""Spaces, observations and actions of remote environments in the form that travels.

A space is a plain map (`config/remote_environment.py`). A value is a tree in the shape of its space:

| space                           | value                                                              |
|---------------------------------|--------------------------------------------------------------------|
| Box, MultiDiscrete, MultiBinary | an array in msgpack-numpy's encoding, or plain lists of numbers    |
| Discrete                        | a whole number                                                     |
| Text                            | text                                                               |
| Dict                            | a map with the same keys                                           |
| Tuple                           | a sequence of the same length                                      |
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from pydantic import ValidationError

from distrl.config import remote_environment as plain
from distrl.config.remote_environment import Description
from distrl.errors import ConfigError, SchemaError
from distrl.nest import Tree
from distrl.types import Array

_DTYPES = ("float32", "float64", "float16", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_TEXT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def described(space: Space[Any], path: str) -> dict[str, Any]:
    """The space as a plain map."""
    if isinstance(space, Box):
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"type": "Box", "shape": list(space.shape), "dtype": space.dtype.name, **bounds}
    if isinstance(space, Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, Text):
        charset = "".join(sorted(space.character_set))
        return {"type": "Text", "max_length": space.max_length, "min_length": space.min_length, "charset": charset}
    if isinstance(space, Dict):
        children = {name: described(child, f"{path}/{name}") for name, child in space.spaces.items()}
        return {"type": "Dict", "spaces": children}
    if isinstance(space, Tuple):
        return {"type": "Tuple", "spaces": [described(child, f"{path}/{i}") for i, child in enumerate(space.spaces)]}
    raise ConfigError(f"the space at '{path}' cannot be served: it is a {type(space).__name__}")


def read_spaces(message: Mapping[str, Any], peer: str) -> plain.Spaces:
    """Read a server's reply to `describe`."""
    try:
        return plain.Spaces.model_validate(message)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(map(str, first["loc"]))
        raise ConfigError(f"{peer} describes its spaces wrongly at '{where}': {first['msg']}") from error


def space_of(description: Description, path: str) -> Space[Any]:
    """The gymnasium space that a description means."""
    try:
        return _space(description, path)
    except ConfigError:
        raise
    except (ValueError, TypeError, AssertionError, OverflowError) as error:
        raise ConfigError(f"the space at '{path}' cannot be made of {description!r:.200}: {error}") from error


def encoded(space: Space[Any], value: Any, path: str) -> Tree:
    """A value of the space in the form that travels."""
    if isinstance(space, Box | MultiDiscrete | MultiBinary):
        return _array(space, value, path)
    if isinstance(space, Discrete):
        return _whole(value, path)
    if isinstance(space, Text):
        return str(value)
    return _each(space, value, path, encoded)


def decoded(space: Space[Any], tree: Any, path: str) -> Any:
    """The value of the space, in fresh arrays: shape and kind are checked, bounds of a Box are not."""
    if isinstance(space, Box | MultiDiscrete | MultiBinary):
        return _array(space, tree, path).copy()  # the decoder's are read-only, and environments may write into actions
    if isinstance(space, Discrete):
        value = _whole(tree, path)
        if not space.start <= value < space.start + space.n:
            raise SchemaError(f"'{path}' is {value}, outside {space}")
        return np.int64(value)
    if isinstance(space, Text):
        if type(tree) is not str:
            raise SchemaError(f"'{path}' must be text, not a {type(tree).__name__}")
        return tree
    return _each(space, tree, path, decoded)


def _space(description: Description, path: str) -> Space[Any]:
    match description:
        case plain.BoxDescription():
            return _box(description)
        case plain.DiscreteDescription():
            return Discrete(description.n, start=description.start)
        case plain.MultiDiscreteDescription():
            nvec = np.asarray(description.nvec, np.int64)
            start = None if description.start is None else np.asarray(description.start, np.int64)
            return MultiDiscrete(nvec, start=start)
        case plain.MultiBinaryDescription():
            shape = description.shape
            return MultiBinary(shape[0] if len(shape) == 1 else list(shape))
        case plain.TextDescription():
            charset = _TEXT if description.charset is None else description.charset
            return Text(description.max_length, min_length=description.min_length, charset=charset)
        case plain.DictDescription():
            children = {name: space_of(child, f"{path}/{name}") for name, child in description.spaces.items()}
            return Dict(children)
        case plain.TupleDescription():
            return Tuple([space_of(child, f"{path}/{i}") for i, child in enumerate(description.spaces)])
    raise TypeError(f"{type(description).__name__} has no space")


def _box(description: plain.BoxDescription) -> Box:
    if description.dtype not in _DTYPES:
        raise ValueError(f"dtype {description.dtype[:50]} is none of {', '.join(_DTYPES)}")
    dtype = np.dtype(description.dtype)
    least: Any = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    most: Any = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
    low, high = _bounds(description.low, least, description), _bounds(description.high, most, description)
    return Box(low, high, description.shape, dtype)


def _bounds(given: Any, unbounded: Any, description: plain.BoxDescription) -> Array:
    """One bound for each number; `unbounded` where none is given."""
    shape, dtype = description.shape, description.dtype
    if isinstance(given, tuple):
        return np.array([unbounded if bound is None else bound for bound in given], dtype).reshape(shape)
    return np.full(shape, unbounded if given is None else given, dtype)


def _bound(bounds: Array) -> float | list[float | None] | None:
    """One number where all agree, None where there is no bound."""
    flat = [bound if isinstance(bound, int) or math.isfinite(bound) else None for bound in bounds.ravel().tolist()]
    return flat[0] if flat and flat.count(flat[0]) == len(flat) else flat


def _array(space: Space[Any], value: Any, path: str) -> Array:
    dtype = space.dtype
    assert dtype is not None  # these spaces have one
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal length
        raise SchemaError(f"'{path}' is no array: {error}") from error
    if array.shape != space.shape:
        raise SchemaError(f"'{path}' has shape {array.shape}, its space says {space.shape}")
    if array.dtype.kind not in ("biu" if dtype.kind in "biu" else "biuf"):
        raise SchemaError(f"'{path}' has dtype {array.dtype}, its space says {dtype}")
    if array.size and array.dtype != dtype and _beyond(array, dtype):
        raise SchemaError(f"'{path}' has numbers beyond those of {dtype}")
    return np.ascontiguousarray(array, dtype) if array.ndim else array.astype(dtype)


def _beyond(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a number is too large for `dtype`. Infinities and NaN are floats of every size."""
    if dtype.kind == "f":
        most = float(np.finfo(dtype).max)  # compared as Python's floats: NumPy would round the limit to the array's
        finite = array[np.isfinite(array)]
        return bool(finite.size) and not -most <= float(finite.min()) <= float(finite.max()) <= most
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return not limits.min <= int(array.min()) <= int(array.max()) <= limits.max
    return False


def _whole(value: Any, path: str) -> int:
    """A whole number, also as an array of one, as games send that have nothing but arrays."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if type(value) is bool or not isinstance(value, int | np.integer):
        raise SchemaError(f"'{path}' must be one whole number, not {str(value)[:50]}")
    return int(value)


def _each(space: Space[Any], value: Any, path: str, convert: Any) -> Any:
    """A Dict or a Tuple, part by part."""
    if isinstance(space, Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            raise SchemaError(f"'{path}' must have the keys {sorted(space.spaces)}, not {str(found)[:200]}")
        return {name: convert(child, value[name], f"{path}/{name}") for name, child in space.spaces.items()}
    if isinstance(space, Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise SchemaError(f"'{path}' must have {len(space.spaces)} parts")
        return tuple(convert(child, value[i], f"{path}/{i}") for i, child in enumerate(space.spaces))
    raise ConfigError(f"the space at '{path}' cannot travel: it is a {type(space).__name__}")
