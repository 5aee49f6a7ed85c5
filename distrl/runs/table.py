"""metrics.csv read back: columns of numbers over a run's snapshots."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from distrl.errors import ConfigError
from distrl.metrics.snapshot import TEXTS, Snapshot, columns_of

Numbers: TypeAlias = NDArray[np.float64]


class Table(Mapping[str, Numbers]):
    """Name -> float64 [rows], NaN where nothing was known; in the file's order.

    Attributes:
        texts: The columns of words; "" where there was none.
    """

    def __init__(self, numbers: Mapping[str, Numbers], texts: Mapping[str, Sequence[str]]) -> None:
        self._numbers = numbers
        self.texts = texts

    def __getitem__(self, name: str) -> Numbers:
        return self._numbers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        """Number of columns of numbers; rows are `len` of any of them."""
        return len(self._numbers)


def read_table(path: Path) -> Table:
    """The table in a file metrics.csv, empty where that has no row yet. A row that is being written is left out.

    Raises:
        ConfigError: The file cannot be read or is not such a table.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    whole = text[: text.rfind("\n") + 1]
    try:
        header, *rows = [*csv.reader(whole.splitlines())] or [[]]
    except csv.Error as error:
        raise ConfigError(f"{path} is not a table of metrics: {error}") from error
    width = len(header)
    if odd := next((number for number, row in enumerate(rows, 2) if len(row) != width), None):
        raise ConfigError(f"{path} is not a table of metrics: line {odd} has not {width} cells")
    try:
        return table_of(header, rows)
    except ValueError as error:
        raise ConfigError(f"{path} is not a table of metrics: {error}") from error


def table_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Cells as columns; every row is as long as the header.

    Raises:
        ValueError: A cell is no number.
    """
    columns = dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))
    texts = {name: columns.pop(name) for name in TEXTS & columns.keys()}
    numbers = {name: np.array([cell or "nan" for cell in cells], np.float64) for name, cells in columns.items()}
    return Table(numbers, texts)


def table_of_snapshots(snapshots: Sequence[Snapshot]) -> Table:
    """Snapshots as the rows that metrics.csv has of them."""
    columns = dict.fromkeys(name for snapshot in snapshots for name in snapshot if name in columns_of(snapshot))
    texts = {name: [str(snapshot.get(name) or "") for snapshot in snapshots] for name in columns if name in TEXTS}
    numbers = {
        name: np.array([_number(snapshot.get(name)) for snapshot in snapshots], np.float64)
        for name in columns
        if name not in TEXTS
    }
    return Table(numbers, texts)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
