"""The SQLite file beside the runs: what was read of each run, with the stamp of the files that it was read from."""

import logging
import sqlite3
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

INDEX_NAME = ".distrl-index.sqlite"
TABLES = ("entries", "configurations", "sparks")
_VERSION = 6
_LOG = logging.getLogger(__name__)


class Kept(NamedTuple):
    """A row: the run's id, the stamp of the files, and what was read from them."""

    run: str
    stamp: str
    text: str


class Store:
    """The file's tables. Its errors are logged and cost only the cache. Safe for several threads."""

    def __init__(self, root: Path) -> None:
        path = root / INDEX_NAME
        # Nothing is written into a run's own directory.
        of_one_run = (root / "run.json").exists() or not root.is_dir()
        self.file = ":memory:" if of_one_run or path.is_symlink() else str(path)
        self._lock = threading.Lock()
        self._database = self._open()

    def rows(self, table: str) -> list[Kept]:
        """Return every row of a table; none if it cannot be read."""
        try:
            with self._lock:
                return [Kept(*row) for row in self._database.execute(f"SELECT id, stamp, text FROM {table}")]
        except sqlite3.Error as error:
            _LOG.warning("the index of runs is made anew: %s: %s", self.file, error)
            return []

    def row(self, table: str, run: str) -> Kept | None:
        """Return a run's row of a table."""
        try:
            with self._lock:
                found = self._database.execute(f"SELECT id, stamp, text FROM {table} WHERE id = ?", (run,)).fetchone()
        except sqlite3.Error as error:
            _LOG.warning("files are read anew: %s: %s", self.file, error)
            return None
        return None if found is None else Kept(*found)

    def keep(self, table: str, rows: Sequence[Kept]) -> None:
        """Insert rows, or replace those of the same runs."""
        self._write(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", rows)

    def forget(self, runs: Collection[str]) -> None:
        """Delete all rows of these runs."""
        for table in TABLES:
            self._write(f"DELETE FROM {table} WHERE id = ?", [(run,) for run in runs])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _open(self) -> sqlite3.Connection:
        try:
            return _prepared(self.file)
        except sqlite3.OperationalError as error:  # no right to write there, or no room
            _LOG.warning("the index of runs is kept in memory: %s: %s", self.file, error)
        except sqlite3.DatabaseError as error:
            _LOG.warning("the index of runs is made anew: %s: %s", self.file, error)
            Path(self.file).unlink()
            return _prepared(self.file)
        self.file = ":memory:"
        return _prepared(self.file)

    def _write(self, statement: str, rows: Sequence[tuple[str, ...]]) -> None:
        if not rows:
            return
        try:
            with self._lock, self._database:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:  # full, locked by another dashboard, or removed: the list is right anyway
            _LOG.warning("the index of runs cannot be written: %s: %s", self.file, error)


def _prepared(file: str) -> sqlite3.Connection:
    database = sqlite3.connect(file, timeout=1.0, check_same_thread=False)
    # A view in place of a table, in an index from an untrusted archive, could have rows without end.
    if database.execute("SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchone()[0]:
        database.close()
        raise sqlite3.DatabaseError("it holds more than tables")
    with database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        for table in TABLES:
            if version != _VERSION:
                database.execute(f"DROP TABLE IF EXISTS {table}")
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} (id TEXT PRIMARY KEY, stamp TEXT, text TEXT)")
        database.execute(f"PRAGMA user_version = {_VERSION}")
    return database
