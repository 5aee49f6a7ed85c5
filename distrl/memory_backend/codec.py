"""Hop 4: encode an unroll or a version of the weights, and decode it with every array checked against the run's schema.

Checks run in the order of the ledger's drop reasons: `decode` (bytes), `schema` (names, dtypes, shapes, ranges,
agreement with the header), `nonfinite` (NaN or infinity). An unroll that leaves `decode_unroll` can be trained on.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from distrl import wire
from distrl.errors import DecodeError, NonFiniteError, NonFiniteUnrollError, SchemaError
from distrl.memory_backend.compression import decompressed
from distrl.memory_backend.layouts import Layouts
from distrl.types import (
    ATTRIBUTES,
    EPISODE_FIELDS,
    EPISODE_METRICS,
    GROUPS,
    Array,
    Form,
    Unroll,
    UnrollHeader,
    Weights,
)
from distrl.unroll_schema import LEAST, UnrollSchema

WireDtype = Literal["float32", "float16", "bfloat16"]
"""Data type of weights on the wire. 16 bits halve the bytes, for some loss of precision."""
_WRITTEN = (*GROUPS, *ATTRIBUTES, *EPISODE_FIELDS)


def encode_unroll(unroll: Unroll) -> bytes:
    """Encode the arrays of an unroll, uncompressed; its header travels as plain fields of the stream entry.

    Raises:
        TypeError: An array of a kind that has no encoding (objects, strings, structures).
    """
    return wire.pack({name: getattr(unroll, name) for name in _WRITTEN} | unroll.extras)


def decode_unroll(header: UnrollHeader, payload: bytes, schema: UnrollSchema, layouts: Layouts | None = None) -> Unroll:
    """Decode and check an unroll; its arrays are read-only views of the payload, or of copies.

    Args:
        payload: Bytes of `encode_unroll`, or the same compressed by any method of `compression.compressor`.
        layouts: Layouts of unrolls of this schema that were decoded before; they make the next one cheaper.

    Raises:
        DecodeError: The bytes are not on the strict decoder's allow-list, or claim to decompress to more than an unroll
            can have; these are not decompressed.
        SchemaError: Names, dtypes, shapes, range of choices or episode lengths differ from the run's, a value is below
            the least of its field, or `header.env_steps` is not the number of valid steps.
        NonFiniteUnrollError: NaN or infinity in a floating array.
    """
    unpack = wire.unpack if layouts is None else layouts.unpack
    plain = decompressed(payload, min(schema.most_bytes, wire.MAX_BYTES))
    tree = unpack(plain, max_items=wire.items_of(schema.max_arrays))
    if not isinstance(tree, dict) or tree.keys() != schema.fields:
        raise SchemaError(f"an unroll has the fields {sorted(schema.fields)}, not {named(tree)}")
    check_group("observations", tree["observations"], schema.observations)
    check_group("actions", tree["actions"], schema.actions)
    check_group("recurrent_state", tree["recurrent_state"], schema.recurrent_state)
    check_reward_moments(tree["reward_moments"], schema.reward_moments, header)
    for name, (dtype, shape) in schema.steps.items():
        _check_array(name, tree[name], dtype, shape)
    check_episodes(tree, schema.unroll_length_steps * schema.environments, schema.episodes)
    _check_values(tree, schema, header)
    _check_unroll_finite(tree, schema)
    extras = {name: tree.pop(name) for name in schema.extras}
    return Unroll(header=header, extras=extras, **tree)  # exactly its fields, checked above


def encode_weights(weights: Weights, dtypes: Mapping[str, WireDtype] | None = None) -> bytes:
    """Encode one version of the weights in the order of the arrays.

    Args:
        dtypes: Array name -> dtype on the wire of float32 arrays; arrays without an entry stay unchanged.

    Raises:
        NonFiniteError: A weight is beyond its dtype.
    """
    wanted = dtypes or {}
    arrays = {name: narrowed(name, array, wanted.get(name, "float32")) for name, array in weights.arrays.items()}
    halves = {name: wanted[name] for name, array in weights.arrays.items() if arrays[name] is not array}
    return wire.pack({"version": weights.version, "arrays": arrays, "halves": halves})


def decode_weights(blob: bytes) -> Weights:
    """Invert `encode_weights`: 16-bit arrays become float32 again, all others are read-only views.

    Raises:
        DecodeError: `blob` is not an encoded version of weights.
    """
    tree = wire.unpack(blob)
    if not isinstance(tree, dict) or tree.keys() != {"version", "arrays", "halves"}:
        raise DecodeError(f"weights have the fields version, arrays and halves, not {named(tree)}")
    version, arrays, halves = tree["version"], tree["arrays"], tree["halves"]
    if type(version) is not int or version < 0:
        raise DecodeError(
            f"weights version must be a non-negative integer, not {version if type(version) is int else named(version)}"
        )
    if not isinstance(arrays, dict) or not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise DecodeError("weights must be named arrays")
    if not isinstance(halves, dict) or not halves.keys() <= arrays.keys():
        raise DecodeError("the 16-bit arrays of weights must be among their arrays")
    if not all(isinstance(dtype, str) for dtype in halves.values()):  # comparing an array with text gives an array
        raise DecodeError("the dtypes of 16-bit weights must be text")
    floats = {name: widened(name, arrays[name], dtype) for name, dtype in halves.items()}
    return Weights(version, {**arrays, **floats})


def named(tree: Any) -> str:
    """Return the names or the type of an unchecked tree, short enough for a message."""
    return str(sorted(name[:200] for name in tree) if isinstance(tree, dict) else type(tree).__name__)[:200]


def check_group(name: str, arrays: Any, expected: Mapping[str, Form]) -> None:
    """Raise SchemaError unless `arrays` have exactly the expected names, dtypes and shapes."""
    if not isinstance(arrays, dict) or arrays.keys() != expected.keys():
        raise SchemaError(f"{name} must be {sorted(expected)}, not {named(arrays)}")
    for key, (dtype, shape) in expected.items():
        _check_array(f"{name}/{key}", arrays[key], dtype, shape)


def check_reward_moments(moments: Any, expected: Mapping[str, Form], header: UnrollHeader) -> None:
    """Raise SchemaError unless these can be moments of the header's number of steps; NaN is checked elsewhere."""
    check_group("reward_moments", moments, expected)
    if not expected:
        return
    if moments["count"] != header.env_steps:
        raise SchemaError(f"reward_moments are of {moments['count']} steps, the header says {header.env_steps}")
    if moments["squares"] < 0.0:
        raise SchemaError("reward_moments/squares is below 0")


def _check_array(name: str, array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SchemaError(f"{name} must be {dtype} {shape}, not {found}")


def check_episodes(tree: Mapping[str, Any], steps: int, forms: Mapping[str, Form]) -> None:
    """Raise SchemaError unless arrays of these forms are of episodes that can end within `steps` steps.

    Raises:
        NonFiniteUnrollError: A metric is infinite; NaN stands for an unknown one.
    """
    for name, dtype in EPISODE_FIELDS.items():
        if not isinstance(tree[name], np.ndarray) or tree[name].dtype != dtype or tree[name].ndim != 1:
            raise SchemaError(f"{name} must be {dtype} [E]")
    counts = [len(tree[name]) for name in EPISODE_FIELDS]
    if len(set(counts)) > 1 or counts[0] > steps:
        numbers = ", ".join(f"{count} {name}" for name, count in zip(EPISODE_FIELDS, counts, strict=True))
        raise SchemaError(f"{numbers} in {steps} steps")
    lengths, successes = tree["episode_lengths_steps"], tree["episode_successes"]
    if lengths.size and lengths.min() < 1:
        raise SchemaError(f"episode_lengths_steps must be positive, not {lengths.min()}")
    if successes.size and not (successes.min() >= -1 and successes.max() <= 1):
        raise SchemaError(f"episode_successes must be -1, 0 or 1, not {successes.min()}…{successes.max()}")
    for name in forms.keys() - EPISODE_FIELDS.keys():
        dtype, shape = forms[name]
        _check_array(name, tree[name], dtype, (len(lengths), *shape))
    if EPISODE_METRICS in forms and np.isinf(tree[EPISODE_METRICS]).any():
        raise NonFiniteUnrollError(f"{EPISODE_METRICS} is infinite")


def _check_values(tree: dict[str, Any], schema: UnrollSchema, header: UnrollHeader) -> None:
    for name, highest in schema.highest_choices.items():
        check_choices(f"actions/{name}", tree["actions"][name], highest)
    for name in schema.steps:
        check_least(name, tree[name])
    valid_steps = int(np.count_nonzero(tree["valid"]))
    if valid_steps != header.env_steps:
        raise SchemaError(f"the header says {header.env_steps} steps, {valid_steps} are valid")


def check_choices(name: str, choices: Array, highest: Sequence[int]) -> None:
    """Raise SchemaError unless all choices, [T, B] or [T, B, n] or with axes before these, are within their space."""
    # Each by itself only if the highest of all does not settle it: comparing takes three times as long.
    if choices.min() < 0 or (choices.max() > min(highest) and (choices > highest).any()):
        allowed = ", ".join(f"0…{number}" for number in highest)[:200]
        raise SchemaError(f"{name} are {choices.min()}…{choices.max()}, allowed are {allowed}")


def check_least(name: str, array: Array) -> None:
    """Raise SchemaError if the field `name` of steps has a least value, and one of `array` is below it."""
    least = LEAST.get(name)
    if least is not None and (array < least).any():  # NaN is left to others
        raise SchemaError(f"{name} must be at least {least:g}, not {array.min()}")


def _check_unroll_finite(tree: dict[str, Any], schema: UnrollSchema) -> None:
    arrays = [(name, tree[name]) for name in schema.steps]
    arrays += [(name, tree[name]) for name in EPISODE_FIELDS]
    arrays += [(f"{group}/{name}", array) for group in GROUPS for name, array in tree[group].items()]
    check_finite(arrays)


def check_finite(arrays: Iterable[tuple[str, Array]]) -> None:
    """Raise NonFiniteUnrollError at the first of the named arrays that holds NaN or infinity."""
    for name, array in arrays:
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise NonFiniteUnrollError(f"{name} is not finite")


def narrowed(name: str, array: Array, dtype: WireDtype) -> Array:
    """Return a float32 array in 16 bits; an array of another dtype, or with `dtype` float32, is returned as it is.

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
    """Invert `narrowed`: return float32.

    Raises:
        DecodeError: `narrowed` cannot have made the array.
    """
    if dtype == "float16" and array.dtype == np.float16:
        return array.astype(np.float32)
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return np.asarray(array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    raise DecodeError(f"weights {name} are {array.dtype}, described as {str(dtype)[:20]}")
