"""Header and newest row of a run's metrics.csv, without reading the rest of it and without NumPy."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from distrl.errors import ConfigError
from distrl.files import open_regular
from distrl.metrics.snapshot import TEXTS, Value

TAIL_BYTES = 16384
"""Size of the first read; a row is some hundred bytes long."""
LONGEST_LINE = 2**20
"""Longest header or row; a longer one makes the file damaged."""


class Header(NamedTuple):
    """The names of the columns, and the byte at which the first row begins."""

    names: Sequence[str]
    end: int


def read_header(file: BinaryIO, path: Path) -> Header:
    """Read the first line of the file; no names while it is not whole yet."""
    file.seek(0)
    line = file.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        if len(line) == LONGEST_LINE:
            raise ConfigError(f"{path} is not a table of metrics: its first line is longer than {LONGEST_LINE:,} bytes")
        return Header((), 0)
    try:
        return Header(next(csv.reader([line.decode()])), len(line))
    except (ValueError, csv.Error) as error:
        raise ConfigError(f"{path} is not a table of metrics: {error}") from error


def last_row(path: Path) -> dict[str, Value]:
    """Return column -> value, None for unknown ones, of the last whole row; empty if there is none, or no file."""
    if not path.exists():
        return {}
    try:
        with open_regular(path) as file:
            header = read_header(file, path)
            row = _last_line(file, first=header.end) if header.names else b""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from error
    if not row:
        return {}
    try:
        (cells,) = csv.reader([row.decode()])
        return {name: _value(name, cell) for name, cell in zip(header.names, cells, strict=True)}
    except (ValueError, csv.Error) as error:  # not UTF-8, not as many cells, not a number, a line break within a cell
        raise ConfigError(f"{path} is damaged: its last row does not fit its header ({error})") from error


def _last_line(file: BinaryIO, first: int) -> bytes:
    """Return the last whole line that begins at byte `first` or after; b"" if there is none."""
    end = file.seek(0, os.SEEK_END)
    length = TAIL_BYTES
    while True:
        begin = max(first, end - length)
        file.seek(begin)
        whole, newline, _ = file.read(end - begin).rpartition(b"\n")
        _, cut, line = whole.rpartition(b"\n")
        if not newline and begin == first:
            return b""
        if cut or begin == first:
            return line
        if length > 2 * LONGEST_LINE:
            raise ValueError(f"a row is longer than {LONGEST_LINE:,} bytes")
        length *= 2


def _value(name: str, cell: str) -> Value:
    if not cell:
        return None
    return cell if name in TEXTS else float(cell)
