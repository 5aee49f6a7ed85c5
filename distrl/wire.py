"""The msgpack encoder and strict decoder: trees of arrays to bytes and back, without pickle.

Arrays and NumPy scalars travel in msgpack-numpy's plain encoding: maps with the *binary* keys ``nd``, ``type``,
``kind``, ``shape`` and ``data``. msgpack-numpy's own decoder is never used: it unpickles object arrays and builds
arrays of Python objects over foreign bytes. `unpack` is an allow-list and raises `DecodeError` for everything else.

    allowed   None, bool, int (64 bits), float, str, bytes, maps with str keys, sequences (decoded as tuples), arrays
    arrays    kinds b, i, u, f, c of the sizes in `_DTYPES`, either byte order; shape * itemsize == length of the data
    refused   other dtypes, extension types, timestamps, other or repeated keys, trailing bytes, trees beyond the limits
"""

import math
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np

from distrl.errors import DecodeError
from distrl.nest import Tree

MAX_BYTES = 256 * 2**20
MAX_DEPTH = 16
MAX_ITEMS = 65_536

_MAX_DIMENSIONS = 32
_ARRAY_ITEMS = 48
"""Most elements of one array's description, with its name."""
_LONGEST_KEPT = 256
"""Longest key that is cached: foreign trees may have keys of any length."""
_MOST_KEPT = 4096
"""Most cached keys; one more clears the cache."""
_SHORT = 512
"""Longest map or sequence that is decoded before the nesting is checked. msgpack itself allows a depth of 1024,
allocates a whole container when it reads its head, and calls the hooks only at its end: 5 KB of heads alone would
allocate 66 MB, and a container without end could hold any number of uncounted elements."""
_ARRAY_KEYS = frozenset({b"nd", b"type", b"kind", b"shape", b"data"})
_SCALAR_KEYS = frozenset({b"nd", b"type", b"data"})
# Type strings are looked up, never given to np.dtype(): its parser accepts structured and object types.
_DTYPES = {
    order + code: np.dtype(order + code)
    for orders, codes in (
        ("|", ("b1", "i1", "u1")),
        ("<>", ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")),
    )
    for order in orders
    for code in codes
}


def pack(tree: Tree) -> bytes:
    """Encode a tree.

    Args:
        tree: dicts with str keys, tuples, lists, NumPy arrays and scalars (bool, integer, float, complex kinds), None,
            bool, int, float, str, bytes.

    Raises:
        TypeError: A leaf or a key of another kind; object, string and structured arrays among them.
        OverflowError: An int beyond 64 bits.
    """
    return b"".join(pieces(tree))


def pieces(tree: Tree) -> list[Any]:
    """Return the parts that `pack` joins: bytes, and arrays themselves if they are contiguous."""
    parts: list[Any] = []
    _write(tree, parts)
    return parts


def unpack(
    data: bytes | memoryview, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, max_items: int = MAX_ITEMS
) -> Tree:
    """Decode what `pack` wrote; safe on untrusted bytes.

    Args:
        data: The encoded tree.
        max_bytes: Longest accepted `data`, in bytes.
        max_depth: Deepest accepted nesting of maps and sequences; an array counts as a leaf.
        max_items: Most accepted elements of all maps and sequences, array descriptions included; bounds the memory
            that decoding takes beyond `data` itself.

    Returns:
        The tree; sequences are tuples, arrays are read-only views of the decoded bytes.

    Raises:
        DecodeError: `data` is not on the allow-list. The function raises no other exception.
    """
    if len(data) > max_bytes:
        raise DecodeError(f"{len(data)} bytes exceed the limit of {max_bytes} bytes")
    try:
        try:
            plain = _decoded(data, max_items, min(max_items, _SHORT))
        except ValueError:  # a longer container, or not msgpack at all
            _check_nesting(data, max_depth, max_items)
            plain = _decoded(data, max_items, max_items)
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise DecodeError(f"not msgpack: {type(error).__name__}: {str(error)[:200]}") from error
    return _checked(plain, max_depth)


def items_of(arrays: int) -> int:
    """Return `max_items` for a tree of so many arrays, or plain values, and a few maps around them."""
    return _ARRAY_ITEMS * (arrays + 8)


def _write(tree: Tree, parts: list[Any]) -> None:
    """Append the encoded tree without copying the data of arrays."""
    if isinstance(tree, np.ndarray):
        parts += (_head(tree.dtype, tree.shape), tree if tree.flags.c_contiguous else tree.tobytes())
    elif isinstance(tree, dict):
        parts.append(_map_head(len(tree)))
        for key, child in tree.items():
            if type(key) is not str:
                raise TypeError(f"map keys must be str, not {key!r}")
            parts.append(_key(key) if len(key) <= _LONGEST_KEPT else msgpack.packb(key))
            _write(child, parts)
    elif isinstance(tree, tuple | list):
        parts.append(msgpack.Packer().pack_array_header(len(tree)))
        for child in tree:
            _write(child, parts)
    elif isinstance(tree, np.generic):
        _check_dtype(tree.dtype)
        parts.append(msgpack.packb(msgpack_numpy.encode(tree)))
    elif tree is None or isinstance(tree, bool | int | float | str | bytes):
        parts.append(msgpack.packb(tree))
    else:
        raise TypeError(f"{type(tree).__name__} has no encoding")


@lru_cache(maxsize=1024)
def _head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the encoding of an array up to its data; it ends with the length of the data in bytes."""
    _check_dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    code, digits = (b"\xc4", 1) if size < 2**8 else (b"\xc5", 2) if size < 2**16 else (b"\xc6", 4)
    described = {b"nd": True, b"type": dtype.str, b"kind": b"", b"shape": shape, b"data": b""}
    return bytes(msgpack.packb(described))[:-2] + code + size.to_bytes(digits, "big")


@lru_cache(maxsize=1024)
def _key(key: str) -> bytes:
    return bytes(msgpack.packb(key))


@lru_cache(maxsize=64)
def _map_head(size: int) -> bytes:
    return bytes(msgpack.Packer().pack_map_header(size))


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if dtype.str not in _DTYPES:
        raise TypeError(f"dtype {dtype} has no encoding; use bool, integer, float or complex arrays")


def _decoded(data: bytes | memoryview, max_items: int, longest: int) -> Any:
    """Decode into msgpack's types; ValueError if a container has more than `longest` elements, among other errors."""
    count = _ItemCount(max_items)
    return msgpack.unpackb(
        data,
        raw=False,
        object_pairs_hook=count.map,
        list_hook=count.sequence,
        ext_hook=_refuse_extension,
        max_array_len=longest,
        max_map_len=longest,
    )


_kept: set[str | bytes] = set(_ARRAY_KEYS)


def _keep(keys: Collection[Any]) -> None:
    """Keep the keys of a map alive for later messages.

    msgpack interns every key. Keys that die with their message would enter Python's table of interned strings again
    with every message, and Python rebuilds that table (2 MB in an actor) whenever it is full.
    """
    if len(keys) > _MOST_KEPT:
        return
    if len(_kept) + len(keys) > _MOST_KEPT:
        _kept.clear()
    _kept.update(key for key in keys if len(key) <= _LONGEST_KEPT)


class _ItemCount:
    """Hooks of msgpack that count elements while they are decoded, before a small message becomes a large tree."""

    def __init__(self, max_items: int) -> None:
        self._left = max_items
        self._max_items = max_items

    def map(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        self._spend(2 * len(pairs))
        result = dict(pairs)
        if len(result) != len(pairs):
            raise DecodeError("a map repeats a key")
        if not result.keys() <= _kept:
            _keep(result.keys())
        return result

    def sequence(self, items: list[Any]) -> list[Any]:
        self._spend(len(items))
        return items

    def _spend(self, items: int) -> None:
        self._left -= items + 1  # the container itself counts too: empty maps are not free
        if self._left < 0:
            raise DecodeError(f"more than {self._max_items} elements")


_LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_NUMBER_BYTES = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def _check_nesting(data: bytes | memoryview, max_depth: int, max_items: int) -> None:
    """Raise DecodeError if containers are nested too deeply or have too many elements in all; build none of them.

    msgpack reports all other errors.
    """
    at, to_come, left = 0, [1], max_items
    while to_come and at < len(data):
        if not to_come[-1]:
            to_come.pop()
            continue
        to_come[-1] -= 1
        elements, at = _after_head(data, at)
        if elements:
            to_come.append(elements)
            left -= elements
        if left < 0:
            raise DecodeError(f"more than {max_items} elements")
        if len(to_come) > max_depth + 3:  # 3: the root, and an array's map and shape
            raise DecodeError("nested too deeply")


def _after_head(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return (elements of the container that begins here, position of the first of them or of the next value)."""
    head = data[at]
    at += 1
    if head in _LENGTH_BYTES:
        end = at + _LENGTH_BYTES[head]
        length = int.from_bytes(data[at:end], "big")
        if head < 0xDC:
            return 0, end + length
        return length if head < 0xDE else 2 * length, end
    if 0x80 <= head < 0x90:
        return 2 * (head & 0x0F), at
    if 0x90 <= head < 0xA0:
        return head & 0x0F, at
    if 0xA0 <= head < 0xC0:
        return 0, at + (head & 0x1F)
    return 0, at + _NUMBER_BYTES.get(head, 0)


def _refuse_extension(code: int, _data: bytes) -> Any:
    raise DecodeError(f"extension type {code}")


def _checked(plain: Any, depth_left: int) -> Tree:
    """Convert msgpack's types into the tree's, or raise DecodeError."""
    if plain is None or type(plain) in (bool, int, float, str, bytes):
        return plain
    if depth_left <= 0:
        raise DecodeError("nested too deeply")
    if type(plain) is list:
        return tuple([_checked(child, depth_left - 1) for child in plain])
    if type(plain) is not dict:
        raise DecodeError(f"{type(plain).__name__} is not allowed")
    if b"nd" in plain:
        return _array(plain)
    for key in plain:
        if type(key) is not str:
            raise DecodeError(f"map keys must be str, not {_short(key)}")
    return {key: _checked(child, depth_left - 1) for key, child in plain.items()}


def _array(plain: dict[Any, Any]) -> Any:
    """Return one array or NumPy scalar as a view of its bytes."""
    is_array = plain[b"nd"]
    if plain.keys() != (_ARRAY_KEYS if is_array is True else _SCALAR_KEYS) or type(is_array) is not bool:
        raise DecodeError(f"not an array's keys: {str(sorted(map(_short, islice(plain, 10))))[:200]}")
    if plain.get(b"kind", b"") != b"":
        raise DecodeError(f"array kind {_short(plain[b'kind'])} is refused: only plain arrays are decoded")
    name, data = plain[b"type"], plain[b"data"]
    dtype = _DTYPES.get(name) if type(name) is str else None
    if dtype is None:
        raise DecodeError(f"dtype {_short(name)} is refused")
    if type(data) is not bytes:
        raise DecodeError("an array's data must be bytes")
    shape = _shape(plain[b"shape"]) if is_array else ()
    if math.prod(shape) * dtype.itemsize != len(data):  # Python integers: no overflow
        raise DecodeError(f"shape {shape} of {name} is not {len(data)} bytes")
    if dtype.kind == "b" and data.translate(None, b"\x00\x01"):  # NumPy's behaviour is undefined for others
        raise DecodeError("a bool is neither 0 nor 1")
    array = np.ndarray(shape, dtype, data)
    return array if is_array else array[()]


def _short(value: Any) -> str:
    """Return a few characters of a value for a message; the value may have millions."""
    if isinstance(value, dict | list):
        return type(value).__name__
    return str(value[:50] if isinstance(value, str | bytes) else value)[:50]


def _shape(plain: Any) -> tuple[int, ...]:
    if type(plain) is not list or len(plain) > _MAX_DIMENSIONS:
        raise DecodeError("an array's shape must be a short sequence")
    for size in plain:
        if type(size) is not int or not 0 <= size <= MAX_BYTES:
            raise DecodeError(f"{_short(size)} is no size of an array's axis")
    if (
        math.prod(max(size, 1) for size in plain) > MAX_BYTES
    ):  # an empty array's other axes must still fit NumPy's index
        raise DecodeError("an array's shape is too large")
    return tuple(plain)
