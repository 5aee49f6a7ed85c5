"""Sinks: metrics.csv and TensorBoard event files, and the configuration as text for these."""

import csv
import io
import itertools
import os
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from distrl.config.document import flat, scalar
from distrl.config.settings import Settings
from distrl.config.tensorboard import Label, TensorBoardConfig
from distrl.errors import ConfigError, require
from distrl.metrics.snapshot import COLUMNS, TOLD_ONCE, Snapshot, Value, columns_of, tag_of
from distrl.types import Array, FloatArray


class CsvSink:
    """metrics.csv: one row per snapshot, written at once; unknown values are empty cells.

    The columns are those of the table in `snapshot.py`, then other names of the first snapshot. An existing file is
    continued under its own header, with the columns that an earlier version of distrl, or its algorithm, did not have:
    those of the table, and names of the first snapshot after it was opened. `updates` never
    decreases: when training resumes from a checkpoint, the rows of repeated updates are replaced.
    """

    def __init__(self, path: Path) -> None:
        self._columns: list[str] = []
        self._is_first = True  # of the snapshots since the file was opened
        # Updates of every row and its first byte, in order; as arrays, since days of training make many rows.
        self._updates, self._begins = array("q"), array("q")
        path.touch()
        self._file = path.open("r+b")
        self._read()

    def write(self, snapshot: Snapshot) -> None:
        """Append one row, or raise ValueError for a name that is not a column of the file."""
        if not self._columns:
            self._columns = [*COLUMNS, *sorted(columns_of(snapshot) - set(COLUMNS))]
            self._append(self._columns)
        unknown = sorted(columns_of(snapshot) - set(self._columns))
        if unknown and (self._is_first or set(unknown) <= set(COLUMNS)):
            self._widen(unknown)
        elif unknown:
            raise ValueError(f"no column of {self._file.name} is named {', '.join(unknown)}")
        self._is_first = False
        updates = int(snapshot.get("updates") or 0)
        self._take_back(updates)
        self._note(updates, self._file.tell())
        self._append([_cell(snapshot.get(name)) for name in self._columns])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> None:
        """Read the header and positions of rows of an existing file; a row torn by a crash is removed."""
        begin = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                self._read_row(line, begin)
            except (ValueError, IndexError, csv.Error) as error:
                name = self._file.name
                self._file.close()
                raise ConfigError(f"{name} is damaged in line {number}: {error}; move it away to go on") from error
            begin += len(line)
        self._file.seek(begin)
        self._file.truncate()

    def _widen(self, names: list[str]) -> None:
        """Add columns that the file's version of distrl did not have; the rows so far have empty cells there."""
        path = Path(self._file.name)
        self._file.seek(0)
        header, *rows = self._file.read().removesuffix(b"\n").split(b"\n")
        lines = [b",".join([header, *(name.encode() for name in names)]), *(row + b"," * len(names) for row in rows)]
        wider = path.with_name(f".tmp-{path.name}")
        wider.write_bytes(b"".join(line + b"\n" for line in lines))
        self._file.close()
        wider.replace(path)  # after a crash the file is the old one or the new one
        self._file = path.open("r+b")
        self._updates, self._begins = array("q"), array("q")
        self._read()

    def _read_row(self, line: bytes, begin: int) -> None:
        cells = next(csv.reader([line.decode()]))
        if begin == 0:
            self._columns = cells
        else:
            self._note(int(cells[self._columns.index("updates")] or 0), begin)

    def _take_back(self, updates: int) -> None:
        while self._updates and self._updates[-1] >= updates:
            self._updates.pop()
            self._file.seek(self._begins.pop())
            self._file.truncate()

    def _note(self, updates: int, begin: int) -> None:
        self._updates.append(updates)
        self._begins.append(begin)

    def _append(self, cells: list[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        self._file.write(text.getvalue().encode())
        self._file.flush()


MOST_NUMBERS = 2**18
"""Most numbers in a histogram; of larger arrays, evenly spread elements are taken."""
BINS = 64


class EventFile:
    """One file in `folder`, which is made if missing; a resumed run adds one more.

    Raises:
        MissingExtraError: tensorboardX is not installed.
        OSError: `folder` or the file cannot be written; the methods raise it too.
    """

    def __init__(self, folder: Path) -> None:
        require("tensorboardX", "tensorboardX", "cpu")
        # Imported here: actors and the CLI's other commands have no use for it.
        from tensorboardX.event_file_writer import EventsWriter

        folder.mkdir(parents=True, exist_ok=True)
        # Unique: the library's own name is the same for all processes of a host within one second.
        self._writer = EventsWriter(str(folder / "events"), filename_suffix=f".{os.getpid()}.{next(_files)}")

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Write a point of a curve."""
        from tensorboardX import summary

        self._add(summary.scalar(tag, value), step)

    def histogram(self, tag: str, values: Array, step: int) -> None:
        """Write a histogram of the finite numbers, booleans or integers too, if there are any."""
        from tensorboardX import summary

        flat = values.reshape(-1)
        flat = flat[:: -(-flat.size // MOST_NUMBERS) or 1].astype(np.float64)
        flat = flat[np.isfinite(flat)]
        if flat.size:
            with np.errstate(over="ignore"):  # sums of squares may become infinite
                self._add(summary.histogram(tag, flat, bins=_edges(flat)), step)

    def text(self, tag: str, markdown: str) -> None:
        """Write Markdown for TensorBoard's Text tab, at once."""
        from tensorboardX import summary

        self._add(summary.text(tag, markdown), 0)
        self.flush()

    def flush(self) -> None:
        """Write buffered data."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, made: object, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(summary=made, step=step, wall_time=time.time()))


_files = itertools.count()


def _edges(values: FloatArray) -> FloatArray:
    """Return the edges of `BINS` equal bins, or of one bin if numbers are too close or too far apart for them."""
    low, high = values.min(), values.max()
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.linspace(low, high, BINS + 1)
        if np.isfinite(edges).all() and (np.diff(edges) > 0.0).all():
            return edges
    return np.array([np.nextafter(low, -np.inf), np.nextafter(high, np.inf)])


LABELS: Mapping[str, tuple[Label, ...]] = {"loss/loss": ("total-loss", "losses"), "network/relu_zeros": ("relu",)}
"""First part of tags -> labels of which one must be set; other numbers are always written."""


class TensorBoardSink(EventFile):
    """TensorBoard event files: the numbers of snapshots over environment steps, selected by `parameters`."""

    def __init__(
        self, folder: Path, parameters: TensorBoardConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(folder)
        self._clock = clock
        self._parameters = parameters
        self._step: int | None = None  # of the newest point
        self._at = 0.0  # by the clock

    def write(self, snapshot: Snapshot) -> None:
        """Write one point per number if a point is due, without texts and unknown values."""
        step = int(snapshot.get("env_steps") or 0)
        if not self._due(step, last=snapshot.get("stop_reason") is not None):
            return
        self._step, self._at = step, self._clock()
        for name in snapshot.keys() - TOLD_ONCE - {"env_steps"}:
            value = snapshot[name]
            if isinstance(value, int | float) and self._wants(tag_of(name)):
                self.scalar(tag_of(name), value, step)
        self.flush()

    def _due(self, step: int, *, last: bool) -> bool:
        every_steps, every_s = self._parameters.every_env_steps, self._parameters.every_s
        if every_steps is None and every_s is None:
            return True
        if last:
            return step != self._step
        if every_steps is not None:
            return step // every_steps > (self._step or 0) // every_steps
        assert every_s is not None  # one of them is set
        return self._step is None or self._clock() - self._at >= every_s

    def _wants(self, tag: str) -> bool:
        labels = next((labels for first, labels in LABELS.items() if tag.startswith(first)), None)
        return self._parameters.wants(tag) and (labels is None or self._parameters.has(*labels))


def _cell(value: Value) -> str:
    if isinstance(value, str):
        return " ".join(value.split())  # a row is one line
    return "" if value is None else repr(value)


def settings_text(settings: Settings) -> str:
    """Return a table of every value with its path and origin."""
    rows = [[path, setting.text, setting.origin] for path, setting in settings.items()]
    return _table(["setting", "value", "from"], rows)


def meta_text(meta: Mapping[str, Any]) -> str:
    """Return nested data, each name with its value.

    Lists of equally long lists become tables, other lists one line; names of nested mappings are joined by dots.
    """
    return "\n\n".join(f"**{_table_cell('.'.join(name))}**{_value(value)}" for name, value in flat(meta))


def _value(value: Any) -> str:
    if isinstance(value, list) and value and _are_rows(value):
        return f"\n\n{_table([str(index) for index in range(len(value[0]))], value)}"
    return f": {_table_cell(value)}"


def _are_rows(value: list[Any]) -> bool:
    rows = all(
        isinstance(row, list) and row and not any(isinstance(cell, list | dict) for cell in row) for row in value
    )
    return rows and len({len(row) for row in value}) == 1


def _table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_table_cell, line))} |" for line in lines)


def _table_cell(value: Any) -> str:
    """Return one line without cell separators."""
    text = value if isinstance(value, str) else scalar(value)
    return " ".join(text.split()).replace("|", "\\|")
