"""metrics.csv: one row per snapshot."""

import csv
import io
from array import array
from pathlib import Path

from distrl.errors import ConfigError, one_line
from distrl.metrics.snapshot import COLUMNS, Snapshot, Value, columns_of
from distrl.observers.observer import ObservedRun, Observer
from distrl.runs.summary import Summary


class MetricsCsv(Observer):
    """Writes every snapshot to metrics.csv, which a resumed run continues."""

    writes = "metrics.csv"

    def __init__(self, run: ObservedRun) -> None:
        self._sink = CsvSink(run.run_dir / "metrics.csv")

    def snapshot(self, snapshot: Snapshot) -> None:
        self._sink.write(snapshot)

    def end(self, summary: Summary | None) -> None:
        self._sink.close()


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


def _cell(value: Value) -> str:
    if isinstance(value, str):
        return one_line(value)  # a row is one line
    return "" if value is None else repr(value)
