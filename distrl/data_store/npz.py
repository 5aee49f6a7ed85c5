"""Arrays by name as the bytes of an .npz file that `numpy.load(allow_pickle=False)` reads; no pickle either way.

Written without time stamps and without compression: the same arrays always make the same bytes, and a file's size
bounds the size of what it holds.
"""

import io
import math
import re
import zipfile
from collections.abc import Mapping
from tokenize import TokenError

import numpy as np
from numpy.lib import format as npy

from distrl.types import Array

_NAME = re.compile(r"[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)*")
_KINDS = "biufc"  # booleans, integers, floats, complex numbers


def encode(arrays: Mapping[str, Array]) -> bytes:
    """The .npz file of `arrays`.

    Args:
        arrays: name -> array of booleans or numbers, any shape. Names may have '/' inside.

    Raises:
        ValueError: A name has other characters, or an array holds something else than booleans and numbers.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, given in arrays.items():
            array = np.asarray(given)
            if array.dtype.kind not in _KINDS:
                raise ValueError(f"array {name!r} has dtype {array.dtype}, which is neither a boolean nor a number")
            with archive.open(zipfile.ZipInfo(_member(name)), "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def decode(content: bytes) -> dict[str, Array]:
    """The arrays of an .npz file, in its order; they own their memory.

    Raises:
        ValueError: Not a zip archive, or a member is compressed, has a forbidden name, dtype or length, or is twice
            there.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            arrays: dict[str, Array] = {}
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if info.filename != _member(name) or name in arrays:
                    raise ValueError(f"archive member {info.filename!r} is not the name of one array")
                if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                    raise ValueError(f"archive member {info.filename!r} is compressed")
                arrays[name] = _array(name, archive.read(info))
            return arrays
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, SyntaxError, TokenError) as error:
        raise ValueError(f"not an archive of arrays: {error}") from error


def _member(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"array name {name!r} is not made of letters, digits, '_', '.', ':', '-' and inner '/'")
    return f"{name}.npy"


def _array(name: str, content: bytes) -> Array:
    """Like `npy.read_array`, which would reserve whatever size a header claims before it looks for the data."""
    stream = io.BytesIO(content)
    major, _ = npy.read_magic(stream)
    if major not in (1, 2):
        raise ValueError(f"array {name!r} has npy format version {major}")
    header = npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
    shape, fortran_order, dtype = header(stream)
    if dtype.kind not in _KINDS:
        raise ValueError(f"array {name!r} has dtype {dtype}, which is neither a boolean nor a number")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError(f"array {name!r} of {dtype} {list(shape)} has {len(content) - stream.tell()} bytes")
    flat = np.frombuffer(content, dtype, offset=stream.tell()).copy()
    return flat.reshape(shape, order="F" if fortran_order else "C")
