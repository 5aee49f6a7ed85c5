"""Cached columns of metrics.csv; only new rows are read when a file has grown."""

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from distrl.apps.dashboard.files import own_file
from distrl.errors import ConfigError
from distrl.files import open_regular
from distrl.metrics.snapshot import TEXTS, Snapshot
from distrl.runs.last_row import Header, last_row, read_header
from distrl.runs.metrics_csv import Column, Table, extend_columns

MOST_BYTES = 96 * 2**20
"""Most bytes kept of all columns together, in addition to those of the newest request."""
_SEAM_BYTES = 256
"""Bytes compared before the position where reading continues; if they differ, the file was replaced."""
_EDITIONS = itertools.count(1)


class Edition(NamedTuple):
    """Columns of one metrics.csv.

    Attributes:
        number: Stays the same while rows are only appended to the table; 0: its earlier rows may change.
    """

    number: int
    table: Table


class Tables:
    """Tables of metrics.csv. Safe for several threads, which wait for each other only at the same file."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, _File] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Size of all kept columns."""
        return sum(one.nbytes for one in [*self._files.values()])

    def names(self, run_dir: Path) -> list[str]:
        """Return the columns of numbers; empty before the first row."""
        path = own_file(run_dir, "metrics.csv")
        if path is None:
            return []
        with open_regular(path) as file:
            return [name for name in read_header(file, path).names if name not in TEXTS]

    def table(self, run_dir: Path, names: Sequence[str]) -> Table:
        """Return these columns as they are now, without those that the file lacks."""
        return self.edition(run_dir, names).table

    def edition(self, run_dir: Path, names: Sequence[str]) -> Edition:
        """Return what `table` does, and the number of the file's edition; 0 without a file."""
        path = own_file(run_dir, "metrics.csv")
        if path is None:
            return Edition(0, {})
        with self._lock:
            kept = self._files.setdefault(path, _File(path))
            self._files.move_to_end(path)
        found = kept.edition([name for name in dict.fromkeys(names) if name not in TEXTS])
        with self._lock:
            while len(self._files) > 1 and self.nbytes > MOST_BYTES:
                self._files.popitem(last=False)
        return found

    def last(self, run_dir: Path) -> Snapshot:
        """Return the newest row without unknown values."""
        path = own_file(run_dir, "metrics.csv")
        row = {} if path is None else last_row(path)
        known = {name: value for name, value in row.items() if value is not None and value != ""}
        return {name: value for name, value in known.items() if isinstance(value, str) or math.isfinite(value)}


class _File:
    """The requested columns of one metrics.csv, all read up to the same byte."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._damage: ConfigError | None = None
        self._header = Header((), 0)
        self._end = 0
        self._seam = b""
        self._edition = next(_EDITIONS)
        self._columns: OrderedDict[str, Column] = OrderedDict()  # those of the newest request are last

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in [*self._columns.values()])

    def edition(self, names: Sequence[str]) -> Edition:
        with self._lock:
            found = self._path.stat()
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp == self._stamp and self._damage is not None:
                raise self._damage
            try:
                with open_regular(self._path) as file:
                    if stamp != self._stamp:
                        self._read_on(file, found.st_size, names)
                    known = [name for name in names if name in self._header.names]
                    self._read_missing(file, known)
            except ConfigError as error:
                self._forget()
                self._damage, self._stamp = error, stamp
                raise
            except OSError:
                self._forget()
                self._stamp = None
                raise
            self._damage, self._stamp = None, stamp
            for name in known:
                self._columns.move_to_end(name)
            while len(self._columns) > len(known) and self.nbytes > MOST_BYTES:
                self._columns.popitem(last=False)
            grows = not any(self._columns[name].is_thinned for name in known)
            return Edition(self._edition if grows else 0, {name: self._columns[name].values for name in known})

    def _read_on(self, file: BinaryIO, size: int, names: Sequence[str]) -> None:
        """Read new rows of the kept columns; start again with `names` if the file was replaced."""
        file.seek(self._end - len(self._seam))
        if self._end == 0 or size < self._end or file.read(len(self._seam)) != self._seam:
            self._forget()
            self._header = read_header(file, self._path)
            self._end = self._header.end
            self._columns.update({name: Column() for name in names if name in self._header.names})
        self._end = extend_columns(file, self._path, self._header, self._columns, self._end, size)
        seam_bytes = min(_SEAM_BYTES, self._end)
        file.seek(self._end - seam_bytes)
        self._seam = file.read(seam_bytes)

    def _read_missing(self, file: BinaryIO, names: Sequence[str]) -> None:
        missing = {name: Column() for name in names if name not in self._columns}
        if missing:
            extend_columns(file, self._path, self._header, missing, self._header.end, self._end)
            self._columns.update(missing)

    def _forget(self) -> None:
        self._columns.clear()
        self._edition = next(_EDITIONS)
        self._header, self._end, self._seam = Header((), 0), 0, b""
