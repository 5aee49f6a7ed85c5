"""Histograms of TensorBoard's event files, as `metrics.event_file.EventFile` writes them, read back within bounds.

A file is a series of records: the length of the data (8 bytes), a checksum of it (4), the data, a checksum of them (4).
The data is a protocol buffer `Event` (tensorflow/core/util/event.proto, framework/summary.proto), of which only the
step, tags and histograms are read, so that no library is needed.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distrl.errors import ConfigError
from distrl.files import open_regular
from distrl.runs.metrics_csv import Numbers

MOST_BYTES = 64 * 2**20
"""Most bytes read of all files together."""
MOST_RECORD_BYTES = 2**20
FIELD_BYTES = 64
"""Bytes that a field, and a record, counts as beside its own: files of tiny ones would take minutes."""
_STEP, _SUMMARY, _VALUE, _TAG, _HISTOGRAM = 2, 5, 1, 1, 5
_LEAST, _LIMITS, _COUNTS = 1, 6, 7
_FIXED_BYTES = {1: 8, 5: 4}


class Histogram(NamedTuple):
    """One histogram: edges float64 [n + 1], never falling, and the share of the values between them, float64 [n]."""

    step: int
    edges: Numbers
    shares: Numbers


class HeatMap(NamedTuple):
    """Histograms over steps, in equal bins: steps int [C], edges float64 [R + 1], shares float64 [C, R]."""

    steps: list[int]
    edges: Numbers
    shares: Numbers


def tags(paths: Sequence[Path]) -> tuple[list[str], bool]:
    """Return the tags of histograms, sorted, and whether the files were read to their ends."""
    found, budget = set(), _Budget()
    for path in paths:
        found |= {tag for _, tag, _ in _histograms(path, budget)}
    return sorted(found), budget.is_enough


def read_histograms(paths: Sequence[Path], tag: str) -> tuple[list[Histogram], bool]:
    """Return the histograms of one tag by step, and whether the files were read to their ends.

    A resumed run repeats steps: the histogram of the last file counts.

    Raises:
        ConfigError: A file is damaged.
    """
    found, budget = {}, _Budget()
    for path in paths:
        for step, name, data in _histograms(path, budget):
            if name == tag and (histogram := _parsed(path, step, data, budget)) is not None:
                found[step] = histogram
    return [found[step] for step in sorted(found)], budget.is_enough


def heat_map(histograms: Sequence[Histogram], columns: int, rows: int) -> HeatMap:
    """Return at most `columns` of the histograms, evenly chosen with both ends, in `rows` equal bins."""
    if len(histograms) > columns:
        histograms = [histograms[at] for at in np.linspace(0, len(histograms) - 1, columns).astype(int)]
    low, high = min(one.edges[0] for one in histograms), max(one.edges[-1] for one in histograms)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, rows + 1)
    shares = [
        np.diff(np.interp(edges, one.edges, np.concatenate([[0.0], np.cumsum(one.shares)]))) for one in histograms
    ]
    return HeatMap([one.step for one in histograms], edges, np.stack(shares))


class _Budget:
    """Bytes that may still be read."""

    def __init__(self) -> None:
        self._left = MOST_BYTES
        self.is_enough = True

    def takes(self, count: int) -> bool:
        self._left -= count
        self.is_enough = self.is_enough and self._left >= 0
        return self.is_enough


def _histograms(path: Path, budget: _Budget) -> Iterator[tuple[int, str, bytes]]:
    """Yield step, tag and data of each histogram; a record that is being written is left out."""
    with open_regular(path) as file:
        while len(header := file.read(12)) == 12:
            (length,) = struct.unpack("<Q", header[:8])
            if length > MOST_RECORD_BYTES:
                raise ConfigError(f"{path.name} is damaged: a record of {length:,} bytes before byte {file.tell():,}")
            if not budget.takes(length + FIELD_BYTES):
                return
            data = file.read(length)
            if len(data) < length or len(file.read(4)) < 4:
                return
            try:
                yield from _of_event(data, budget)
            except (ValueError, IndexError, struct.error) as error:
                raise ConfigError(f"{path.name} is damaged before byte {file.tell():,}: {error}") from error


def _of_event(data: bytes, budget: _Budget) -> Iterator[tuple[int, str, bytes]]:
    step, summaries = 0, []
    for number, value in _fields(data, budget):
        if number == _STEP and isinstance(value, int):
            step = value
        elif number == _SUMMARY and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary, budget):
            if number == _VALUE and isinstance(value, bytes):
                parts = dict(_fields(value, budget))
                tag, histogram = parts.get(_TAG), parts.get(_HISTOGRAM)
                if isinstance(tag, bytes) and isinstance(histogram, bytes):
                    yield step, tag.decode(errors="replace"), histogram


def _parsed(path: Path, step: int, data: bytes, budget: _Budget) -> Histogram | None:
    """Return the histogram, or None if it has no values."""
    parts = dict(_fields(data, budget))
    if not budget.is_enough:
        return None
    least, limits, counts = (parts.get(number, b"") for number in (_LEAST, _LIMITS, _COUNTS))
    try:
        if not (isinstance(least, bytes) and isinstance(limits, bytes) and isinstance(counts, bytes)):
            raise ValueError("limits are no numbers")
        right, count = np.frombuffer(limits, "<f8"), np.frombuffer(counts, "<f8")
        if len(right) != len(count) or not np.isfinite(count).all() or np.isnan(right).any():
            raise ValueError("limits and counts do not fit")
    except ValueError as error:
        raise ConfigError(f"{path.name} is damaged: a histogram at step {step:,}: {error}") from error
    if not len(right) or count.sum() <= 0.0:
        return None
    first = struct.unpack("<d", least)[0] if len(least) == 8 else 0.0
    edges = np.concatenate([[min(first, right[0])], right])
    finite = np.clip(np.nan_to_num(edges), -1e300, 1e300)
    return Histogram(step, np.maximum.accumulate(finite), count / count.sum())


def _fields(data: bytes, budget: _Budget) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protocol buffer: an int of a varint, otherwise its bytes."""
    at = 0
    while at < len(data) and budget.takes(FIELD_BYTES):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise ValueError(f"a field of unknown kind {kind}")
        if at + length > len(data):
            raise ValueError("a field is longer than its record")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
