"""Named arrays as an .npz file that `numpy.load(allow_pickle=False)` reads, without pickle in either direction.

Files have no time stamps and no compression: the same arrays always make the same bytes, and a file's size bounds the
size of its arrays.
"""

import io
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from tokenize import TokenError
from typing import IO, Any, Protocol

import numpy as np
from numpy.lib import format as npy

from distrl.types import Array

_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]+(/[^/\\\x00-\x1f\x7f]+)*")
_KINDS = "biufc"  # booleans, integers, floats, complex numbers
_CHUNK_BYTES = 1 << 20


def encode(arrays: Mapping[str, Array]) -> bytes:
    """Return the .npz file of `arrays`.

    Args:
        arrays: name -> array of booleans or numbers, any shape. Names may have '/' inside.

    Raises:
        ValueError: A name has other characters, or an array holds other values than booleans and numbers.
    """
    buffer = io.BytesIO()
    write(buffer, arrays)
    return buffer.getvalue()


class Sink(Protocol):
    """Where `write` writes, from the beginning to the end."""

    def write(self, content: Any, /) -> int: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def write(file: Sink, arrays: Mapping[str, Array]) -> None:
    """Encode into an open file, one array after the other; also into one that only takes bytes, and cannot seek."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, given in arrays.items():
            array = np.asarray(given)
            if array.dtype.kind not in _KINDS:
                raise ValueError(f"array {name!r} has dtype {array.dtype}, which is neither a boolean nor a number")
            with archive.open(zipfile.ZipInfo(_member(name)), "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def decode(content: bytes) -> dict[str, Array]:
    """Return the arrays of an .npz file in its order; they own their memory.

    Raises:
        ValueError: Not a zip archive, or a member is compressed, has a forbidden name, dtype or length, or occurs
            twice.
    """
    with opened(io.BytesIO(content)) as arrays:
        return dict(arrays)


@contextmanager
def opened(file: IO[bytes]) -> Iterator["Arrays"]:
    """Read an open .npz file whose arrays are read one by one, also into existing memory.

    Raises:
        ValueError: As `decode`, when the directory or an array is read.
        OSError: It cannot be read.
    """
    with ExitStack() as closing:
        with _reading():
            arrays = Arrays(closing.enter_context(zipfile.ZipFile(file)), file.seek(0, io.SEEK_END))
        yield arrays


@contextmanager
def _reading() -> Iterator[None]:
    """Raise ValueError for each error with which zipfile and NumPy refuse an archive."""
    try:
        yield
    except (zipfile.BadZipFile, RuntimeError, EOFError, OverflowError) as error:
        raise ValueError(f"not an archive of arrays: {error}") from error


class Arrays(Mapping[str, Array]):
    """The members of an archive as arrays, read on access; `form` reads only a header.

    Args:
        size_bytes: Size of the archive.
    """

    def __init__(self, archive: zipfile.ZipFile, size_bytes: int) -> None:
        self._archive = archive
        self._members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.filename != _member(name) or name in self._members:
                raise ValueError(f"archive member {info.filename!r} is not the name of one array")
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise ValueError(f"archive member {info.filename!r} is compressed")
            self._members[name] = info
        # Sizes that a directory claims are reserved before the data is looked for.
        if sum(info.file_size for info in self._members.values()) > size_bytes:
            raise ValueError("not an archive of arrays: its members are larger than itself")

    def __getitem__(self, name: str) -> Array:
        with _reading(), self._archive.open(self._members[name]) as file:
            shape, fortran_order, dtype = _header(name, file, self._members[name].file_size)
            flat = np.empty(math.prod(shape), dtype)
            _fill(flat, file)
        return flat.reshape(shape, order="F" if fortran_order else "C")

    def form(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return data type and shape."""
        with _reading(), self._archive.open(self._members[name]) as file:
            shape, _, dtype = _header(name, file, self._members[name].file_size)
        return dtype, shape

    def read_into(self, name: str, array: Array) -> None:
        """Read into `array`, which is contiguous and of the same form; after an error its content is undefined.

        Raises:
            ValueError: As `decode`, or it is of another form.
        """
        with _reading(), self._archive.open(self._members[name]) as file:
            shape, fortran_order, dtype = _header(name, file, self._members[name].file_size)
            if (dtype, shape, fortran_order) != (array.dtype, array.shape, False):
                raise ValueError(f"array {name!r} of {dtype} {list(shape)} is not of {array.dtype} {list(array.shape)}")
            _fill(array.reshape(-1), file)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def _member(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name.split("/"):
        raise ValueError(f"array name {name!r} is not made of printable characters and inner '/'")
    return f"{name}.npy"


def _header(name: str, file: IO[bytes], size_bytes: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether in Fortran order, and dtype; check that exactly the data follows."""
    major, _ = npy.read_magic(file)
    if major not in (1, 2):
        raise ValueError(f"array {name!r} has npy format version {major}")
    header = npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
    try:
        shape, fortran_order, dtype = header(file)
    # It is a Python literal: the parser, and NumPy with what comes of it, fail in each of these ways.
    except (SyntaxError, TokenError, RecursionError, MemoryError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"array {name!r} has no header of an array: {type(error).__name__}: {error}") from error
    if dtype.kind not in _KINDS:
        raise ValueError(f"array {name!r} has dtype {dtype}, which is neither a boolean nor a number")
    left = size_bytes - file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != left:
        raise ValueError(f"array {name!r} of {dtype} {list(shape)} has {left} bytes")
    return shape, fortran_order, dtype


def _fill(flat: Array, file: IO[bytes]) -> None:
    """Read the rest of the file into the contiguous `flat`, [n], without a second copy."""
    data, read = flat.view(np.uint8), 0
    while read < len(data):
        chunk = file.read(min(len(data) - read, _CHUNK_BYTES))
        if not chunk:
            raise EOFError("an array ends early")
        data[read : read + len(chunk)] = np.frombuffer(chunk, np.uint8)
        read += len(chunk)
