"""The settings of thousands of runs as one array of codes: a column per setting, a row per run."""

import json
import threading
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrl.apps.dashboard.index import Index, IndexedRun
from distrl.config.secrets import MASK
from distrl.config.settings import Settings
from distrl.errors import ConfigError

MISSING = -1
"""Code of a setting that a run lacks."""
USUAL = ("algorithm", "network", "exploration", "environment", "actors", "learner", "evaluation", "stop")
"""Sections whose settings a list shows by itself where they differ, the most important first."""
SHOWN_ELSEWHERE = ("seed", "algorithm.name", "environment.id")
MOST_OF_A_RUN, MOST_PATHS = 1000, 5000
"""Most settings of one run, and of all runs together, that have a column; a run of distrl has about 250.

The table keeps a code for every run in every column: hostile files could otherwise take all of the memory.
"""
_MOST_TEXTS = 20
Codes = NDArray[np.int32]


class SettingsTable:
    """Settings by run and path, secrets masked. Safe for several threads."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._filling = threading.Lock()
        self._columns: dict[str, int] = {}
        self._codes: Codes = np.full((0, 0), MISSING, np.int32)
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._read: dict[str, tuple[IndexedRun, str]] = {}  # id -> of which entry and which config.yaml
        self._values: list[Any] = []
        self._code_of: dict[Any, int] = {}
        self.changes = 0
        """Grows whenever a value changes."""

    @property
    def paths(self) -> list[str]:
        """Every dotted path that some run has."""
        with self._lock:
            return [*self._columns]

    def fill(self, entries: Sequence[IndexedRun], budget_s: float) -> int:
        """Read settings for at most that long, and return the number of runs whose settings are not read yet."""
        unread = [entry for entry in entries if self._is_unread(entry)]
        if not self._filling.acquire(blocking=False):
            return len(unread)
        try:
            self._forget(entries)
            ends, done = time.monotonic() + budget_s, 0
            for entry in unread:
                if done and time.monotonic() > ends:
                    break
                self._fill_in(entry)
                done += 1
        finally:
            self._filling.release()
        return len(unread) - done

    def column(self, path: str, runs: Sequence[str]) -> list[Any]:
        """Return a setting of each run; None where it has none."""
        codes = self._column_codes(path, runs)
        return [None if code == MISSING else self._values[code] for code in codes]

    def differing(self, runs: Sequence[str]) -> dict[str, int]:
        """Return path -> number of its values, of those that differ between the runs; having none is a value, too."""
        codes, paths = self._of_runs(runs)
        if len(codes) < 2:
            return {}
        differ = np.flatnonzero((codes != codes[0]).any(axis=0))
        return {paths[column]: len(np.unique(codes[:, column])) for column in differ}

    def distinguishing(self, runs: Sequence[str], most: int) -> list[str]:
        """Return the settings that a list shows by itself: they differ between runs of one algorithm and environment.

        Settings that divide the runs as another one does are left out, and texts that are almost all different.
        """
        codes, paths = self._of_runs(runs)
        if len(codes) < 2:
            return []
        at = {path: column for column, path in enumerate(paths)}
        alike = [codes[:, at[name]] for name in SHOWN_ELSEWHERE[1:] if name in at]
        kind = np.unique(np.stack([np.zeros(len(codes), np.int32), *alike]), axis=1, return_inverse=True)[1].ravel()
        scored = []
        for column in np.flatnonzero((codes != codes[0]).any(axis=0)).tolist():
            path = paths[column]
            section = path.partition(".")[0]
            values = codes[:, column]
            if path in SHOWN_ELSEWHERE or section not in USUAL or not self._tells(values):
                continue
            pairs = len(np.unique(kind.astype(np.int64) * (len(self._values) + 2) + values + 1))
            if pairs > kind.max() + 1:
                scored.append((USUAL.index(section) >= USUAL.index("evaluation"), -pairs, column))
        kept: dict[bytes, str] = {}
        for _, _, column in sorted(scored):
            _, first, division = np.unique(codes[:, column], return_index=True, return_inverse=True)
            kept.setdefault(first[division.ravel()].tobytes(), paths[column])  # named by each value's first run
            if len(kept) == most:
                break
        return [*kept.values()]

    def _tells(self, codes: Codes) -> bool:
        values = [self._values[code] for code in np.unique(codes) if code != MISSING]
        texts = [value for value in values if isinstance(value, str)]
        return len(texts) <= _MOST_TEXTS and not any(MASK in text for text in texts)

    def _of_runs(self, runs: Sequence[str]) -> tuple[Codes, list[str]]:
        """Return the codes [n, paths] of those runs whose settings are read, and the paths."""
        with self._lock:
            rows = [self._rows[run] for run in runs if run in self._rows]
            return self._codes[rows, : len(self._columns)], [*self._columns]

    def _column_codes(self, path: str, runs: Sequence[str]) -> list[int]:
        with self._lock:
            column = self._columns.get(path)
            if column is None:
                return [MISSING] * len(runs)
            found: list[int] = self._codes[:, column].tolist()
            return [MISSING if (row := self._rows.get(run)) is None else found[row] for run in runs]

    def _is_unread(self, entry: IndexedRun) -> bool:
        read = self._read.get(entry.id)
        return read is None or (read[0] is not entry and read[1] != self._index.configuration_stamp(entry))

    def _forget(self, entries: Sequence[IndexedRun]) -> None:
        gone = self._read.keys() - {entry.id for entry in entries}
        if not gone:
            return
        with self._lock:
            for run in gone:
                del self._read[run]
                self._free.append(self._rows.pop(run))
            self.changes += 1

    def _fill_in(self, entry: IndexedRun) -> None:
        stamp = self._index.configuration_stamp(entry)
        stored = self._index.stored_configuration(entry.id) if stamp else None
        try:
            settings = stored[1] if stored and stored[0] == stamp else self._index.configuration(entry)
        except ConfigError:  # its page shows the error
            settings = {}
        with self._lock:
            self._put(entry.id, settings)
            self._read[entry.id] = entry, stamp
            self.changes += 1

    def _put(self, run: str, settings: Settings) -> None:
        for path in islice(settings, MOST_OF_A_RUN):
            if len(self._columns) == MOST_PATHS:
                break
            self._columns.setdefault(path, len(self._columns))
        row = self._rows.get(run)
        if row is None:
            row = self._free.pop() if self._free else len(self._rows)
            self._rows[run] = row
        rows, columns = self._codes.shape
        if row >= rows or len(self._columns) > columns:
            grown = np.full((max(rows, 2 * row, 64), max(columns, len(self._columns) + 64)), MISSING, np.int32)
            grown[:rows, :columns] = self._codes
            self._codes = grown
        self._codes[row] = MISSING
        for path, setting in settings.items():
            column = self._columns.get(path)
            if column is not None:
                self._codes[row, column] = self._code(setting.value)

    def _code(self, value: Any) -> int:
        key = (type(value), value) if isinstance(value, str | int | float | None) else json.dumps(value, default=str)
        code = self._code_of.setdefault(key, len(self._values))
        if code == len(self._values):
            self._values.append(value)
        return code
