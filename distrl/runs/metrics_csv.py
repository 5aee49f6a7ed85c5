"""metrics.csv read back: the whole table, or single columns in blocks."""

import csv
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from distrl.errors import ConfigError
from distrl.files import open_regular
from distrl.metrics.snapshot import TEXTS, Snapshot, columns_of
from distrl.runs.last_row import LONGEST_LINE, Header, read_header

Numbers: TypeAlias = NDArray[np.float64]
Bytes: TypeAlias = NDArray[np.uint8]
Table: TypeAlias = Mapping[str, Numbers]
"""Name of a column of numbers -> float64 [rows], NaN for unknown values; in the file's order."""

BLOCK_BYTES = 2 * 2**20
MOST_ROWS = 2**20
"""Values that a thinned column holds, a power of two."""
_LONGEST_CELL = 400
_SHOWN = 60
_MOST_PADDED = 4 * BLOCK_BYTES
"""Cells are padded to equal lengths only up to that many bytes: one long cell among many short ones costs no memory."""
_COMMA, _NEWLINE, _SPACE = b",\n "
_NULL = np.frombuffer(b"null", np.uint8)


def read_table(path: Path) -> Table:
    """Read a file metrics.csv; the table is empty while it has no row. A row that is being written is left out."""
    try:
        with open_regular(path) as file:
            header = read_header(file, path)
            columns = {name: Column(sys.maxsize) for name in header.names if name not in TEXTS}
            extend_columns(file, path, header, columns, header.end, file.seek(0, os.SEEK_END))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return {name: column.values for name, column in columns.items()}


def table_of_snapshots(snapshots: Sequence[Snapshot]) -> Table:
    """Return the table that metrics.csv would have of these snapshots."""
    names = dict.fromkeys(name for snapshot in snapshots for name in snapshot if name in columns_of(snapshot))
    return {
        name: np.array([_number(snapshot.get(name)) for snapshot in snapshots], np.float64)
        for name in names
        if name not in TEXTS
    }


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


class Column:
    """The values of one column: all of them up to `most`, then the least and greatest of equal stretches.

    Columns of the same file have equal lengths after the same number of rows. In a column that never falls, the least
    and the greatest of a stretch are its first and its last value, so that points keep their order.
    """

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._buffer = np.empty(0)
        self._length = 0
        self._stretch = 1  # rows that became two values; 1: every row is a value
        self._tail = np.empty(0)  # rows that do not fill a stretch yet

    @property
    def values(self) -> Numbers:
        """The values that are held; later calls of `extend` leave the array unchanged."""
        held = self._buffer[: self._length]
        return np.concatenate([held, self._tail]) if len(self._tail) else held

    @property
    def is_thinned(self) -> bool:
        """Whether further rows change which of the earlier ones are held."""
        return self._stretch > 1

    @property
    def nbytes(self) -> int:
        return 8 * (self._length + len(self._tail))

    def extend(self, rows: Numbers) -> None:
        """Append rows; thin what is held each time `most` is reached."""
        rows = np.concatenate([self._tail, rows])
        while True:
            a_stretch = 1 if self._stretch == 1 else 2
            whole = min(len(rows) // self._stretch, (self._most - self._length) // a_stretch) * self._stretch
            self._append(rows[:whole] if self._stretch == 1 else _thinned(rows[:whole], self._stretch))
            rows = rows[whole:]
            if self._length < self._most:
                break
            self._buffer = _thinned(self._buffer, 4)
            self._length = len(self._buffer)
            self._stretch = max(2 * self._stretch, 4)
        self._tail = rows

    def _append(self, values: Numbers) -> None:
        end = self._length + len(values)
        if end > len(self._buffer):
            larger = np.empty(min(max(end, 2 * len(self._buffer)), self._most))
            larger[: self._length] = self._buffer[: self._length]
            self._buffer = larger
        self._buffer[self._length : end] = values
        self._length = end


def extend_columns(file: BinaryIO, path: Path, header: Header, columns: dict[str, Column], begin: int, end: int) -> int:
    """Append the rows from one byte of a file up to another; return the byte after the last whole row."""
    places = {header.names.index(name): column for name, column in columns.items()}
    at = begin
    for block in _blocks(file, path, begin, end):
        try:
            for place, column in zip(places, _cells(block, [*places], len(header.names)), strict=True):
                places[place].extend(column)
        except (ValueError, csv.Error) as error:
            raise ConfigError(f"{path} is not a table of metrics: {error} (after byte {at:,})") from error
        at += len(block)
    return at


def _blocks(file: BinaryIO, path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Yield blocks of whole lines."""
    file.seek(begin)
    left, rest = end - begin, b""
    while left > 0 and (read := file.read(min(BLOCK_BYTES, left))):
        left -= len(read)
        whole, newline, after = read.rpartition(b"\n")
        if newline:
            yield rest + whole + newline
        rest = after if newline else rest + after
        if len(rest) > LONGEST_LINE:
            raise ConfigError(f"{path} is not a table of metrics: a row is longer than {LONGEST_LINE:,} bytes")


def _cells(block: bytes, places: Sequence[int], width: int) -> list[Numbers]:
    """Return the cells at some places of each line, as numbers; a line that has not `width` numbers is a ValueError."""
    if b'"' in block:
        rows = [*csv.reader(block.decode(errors="replace").splitlines())]
        if odd := next((row for row in rows if len(row) != width), None):
            raise ValueError(_odd_row(",".join(odd), len(odd), width))
        return [np.array([float(row[place] or "nan") for row in rows]) for place in places]
    letters = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero((letters == _COMMA) | (letters == _NEWLINE))
    lines = block.count(b"\n")
    if len(ends) != lines * width or (letters[ends[width - 1 :: width]] != _NEWLINE).any():
        line = next(line for line in block.split(b"\n") if line.count(b",") != width - 1)
        raise ValueError(_odd_row(line.decode(errors="replace"), line.count(b",") + 1, width))
    begins = np.concatenate([[0], ends[:-1] + 1])
    return [_numbers(block, letters, begins[place::width], ends[place::width]) for place in places]


def _odd_row(row: str, cells: int, width: int) -> str:
    return f"row {row[:_SHOWN]!r} has {cells} {'cell' if cells == 1 else 'cells'}, not {width}"


def _numbers(block: bytes, letters: Bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Numbers:
    """Return cells as numbers, NaN for empty ones; read as one JSON array, several times as fast as by `float`."""
    lengths = ends - begins
    longest = max(int(lengths.max(initial=0)), len(_NULL))
    if longest > _LONGEST_CELL:
        raise ValueError(f"a cell of {longest:,} letters is no number")
    if len(begins) * longest > _MOST_PADDED:
        return _numbers_one_by_one(block, begins, ends)
    places = np.arange(longest)
    text = np.full((len(begins), longest + 1), _SPACE, np.uint8)
    text[:, :longest] = letters.take(begins[:, None] + places, mode="clip")
    text[:, :longest][places >= lengths[:, None]] = _SPACE
    text[lengths == 0, : len(_NULL)] = _NULL
    text[:, longest] = _COMMA
    try:
        values = np.array(from_json(b"[" + text.tobytes()[:-1] + b"]"), np.float64)
    except (ValueError, TypeError, OverflowError):  # numbers that JSON does not know: nan, +1, 1.; or 400 digits
        values = _numbers_one_by_one(block, begins, ends)
    if values.ndim != 1:
        raise ValueError("a cell is no number")
    return values


def _numbers_one_by_one(block: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Numbers:
    return np.array([float(block[begin:end] or b"nan") for begin, end in zip(begins, ends, strict=True)])


def _thinned(values: Numbers, stretch: int) -> Numbers:
    """Return the least and greatest of each stretch in their order; NaN only where all values are."""
    groups = values.reshape(-1, stretch)
    unknown = np.isnan(groups)
    least, greatest = (
        np.where(unknown, np.inf, groups).argmin(axis=1),
        np.where(unknown, -np.inf, groups).argmax(axis=1),
    )
    at = np.stack([np.minimum(least, greatest), np.maximum(least, greatest)], axis=1)
    thinned: Numbers = np.take_along_axis(groups, at, axis=1).ravel()
    return thinned
