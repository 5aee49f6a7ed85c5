"""metrics.csv of the runs that are looked at, kept in memory and read on where it has grown."""

import csv
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distrl.dashboard.files import NotThereError, inside
from distrl.metrics.snapshot import Snapshot, Value
from distrl.metrics.table import Table, read_table, table_of

MOST_BYTES = 128 * 2**20
"""Kept of all tables together, and one in any case."""
_SEAM_BYTES = 256
"""Before where reading goes on: if they have changed, the file is another."""


@dataclass(frozen=True)
class _Kept:
    """A table and the file it was read from: who it is, how far it was read, and what stood right before that."""

    table: Table
    inode: int
    size: int
    modified_ns: int
    end: int
    seam: bytes

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.table.values())


class Tables:
    """Safe for several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def table(self, run_dir: Path) -> Table:
        """The run's metrics as they are now; empty where there are none yet.

        Raises:
            ConfigError: metrics.csv is damaged.
        """
        try:
            path = inside(run_dir, "metrics.csv")
        except NotThereError:
            return Table({}, {})
        with self._lock:
            kept = self._kept.pop(path, None)
            found = path.stat()
            if kept is None or (found.st_ino, found.st_size, found.st_mtime_ns) != (
                kept.inode,
                kept.size,
                kept.modified_ns,
            ):
                kept = _read(path, kept)
            self._kept[path] = kept
            while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > MOST_BYTES:
                self._kept.popitem(last=False)
            return kept.table

    def last(self, run_dir: Path) -> Snapshot:
        """The newest row, of which what is not known is left out."""
        table = self.table(run_dir)
        row: dict[str, Value] = {name: column[-1] for name, column in table.items() if len(column)}
        numbers = {name: float(value) for name, value in row.items() if np.isfinite(value)}  # type: ignore[arg-type]
        texts = {name: column[-1] for name, column in table.texts.items() if len(column) and column[-1]}
        return {**numbers, **texts}


def _read(path: Path, before: _Kept | None) -> _Kept:
    """The whole file, or what is new in it."""
    found = path.stat()
    if before is not None and before.inode == found.st_ino and found.st_size >= before.end and len(before.table):
        with path.open("rb") as file:
            file.seek(before.end - len(before.seam))
            seam, new = file.read(len(before.seam)), file.read()
        whole = new[: new.rfind(b"\n") + 1]
        if seam == before.seam and (table := _extended(before.table, path, whole)) is not None:
            tail = (seam + whole)[-_SEAM_BYTES:]
            return _Kept(table, found.st_ino, found.st_size, found.st_mtime_ns, before.end + len(whole), tail)
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    table = read_table(path)  # which may see more than we did: then the seam is not at its end, and all is read again
    rows = len(next(iter(table.values()), ()))
    exact = rows == max(content.count(b"\n", 0, end) - 1, 0)
    seam = content[max(end - _SEAM_BYTES, 0) : end] if exact else b"\0"
    return _Kept(table, found.st_ino, found.st_size, found.st_mtime_ns, end, seam)


def _extended(table: Table, path: Path, added: bytes) -> Table | None:
    """The table with more rows; None where they do not fit."""
    with path.open(encoding="utf-8") as file:
        header = next(csv.reader(file))
    rows = [*csv.reader(added.decode(errors="replace").splitlines())]
    if any(len(row) != len(header) for row in rows):
        return None
    if not rows:
        return table
    try:
        new = table_of(header, rows)
    except ValueError:
        return None  # a damaged row: reading all of it again says which
    numbers = {name: np.concatenate([table[name], new[name]]) for name in table}
    return Table(numbers, {name: [*table.texts[name], *texts] for name, texts in new.texts.items()})
