"""What the list of runs shows, kept in SQLite beside the runs: a run's files are read again when they have changed.

The file is only a shortcut. If it is lost or damaged it is made anew from the run directories; where it cannot be
written it is kept in memory.
"""

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from distrl.dashboard.configuration import Leaf, read_configuration
from distrl.dashboard.elsewhere import Elsewhere
from distrl.dashboard.files import NotThereError, id_of
from distrl.errors import ConfigError
from distrl.metrics.runs import Run, RunRecord, open_run, process_mark, run_directories
from distrl.metrics.summary import Summary

INDEX_NAME = ".distrl-index.sqlite"
NOWHERE = "redis"
"""Stands for where runs are whose directories are not here; nothing is ever written there."""
FRESH_S = 1.0
"""How long a look at the directories is good for, at the least."""
RESTS = 100.0
"""And as many times what it took: thousands of runs are looked through for a hundredth of one core's time."""
_VERSION = 1
_FILES = ("run.json", "summary.json", "config.yaml")
_LOG = logging.getLogger(__name__)

State = Literal["running", "ended", "gone", "damaged"]
Numbers = dict[str, float | int | str | None]
SUMMARISED = (
    *("env_steps", "updates", "episodes", "mean_return_100", "best_mean_return_100", "evaluation_mean_return"),
    *("best_evaluation_return", "wall_s", "env_steps_per_s", "stop_reason", "exit_code", "restarts", "error"),
)
"""Of a summary, in the list."""


class Entry(BaseModel):
    """One run of the list.

    Attributes:
        id: Stands for the run in addresses; says nothing about where it is.
        path: Below the root; "" for the root itself.
        name: The last part of it.
        numbers: What is in `SUMMARISED`; empty until the run has ended.
        problem: Why it is damaged.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    path: str
    name: str
    state: State
    run_id: str = ""
    started: float = 0.0
    algorithm: str = ""
    env: str = ""
    seed: int | None = None
    numbers: Numbers = {}
    problem: str | None = None


class Index:
    """The runs below one directory, and those that Redis knows of beside them. Safe for several threads.

    Args:
        root: May be a run's own directory, which is then the only one.
        elsewhere: Where to look for runs whose directories are not here, or are of another machine's processes.
    """

    def __init__(self, root: Path, elsewhere: Elsewhere | None = None) -> None:
        self.root = root
        self.elsewhere = elsewhere or Elsewhere(())
        self._lock = threading.RLock()
        self._store = _Store(root)
        self._ended = self._store.entries()  # path -> (stamp, entry); what runs is read every time
        self._configurations: dict[str, tuple[str, list[Leaf]]] = {}
        self._entries: dict[str, Entry] = {}
        self._runs: dict[str, Run] = {}
        self._of_redis: dict[str, list[Leaf]] = {}  # id -> the configuration of a run that has no directory here
        self._due = float("-inf")

    def entries(self) -> list[Entry]:
        """Every run, the newest first; as they were `FRESH_S` ago, or longer where there are very many."""
        with self._lock:
            if time.monotonic() >= self._due:
                began = time.thread_time()
                self._look()
                self._due = time.monotonic() + max(FRESH_S, RESTS * (time.thread_time() - began))
            return list(self._entries.values())

    def entry(self, run: str) -> Entry:
        """The run of an id.

        Raises:
            NotThereError: No run has it.
        """
        self.entries()
        with self._lock:
            found = self._entries.get(run)
        if found is None:
            raise NotThereError("no run has that id; it may have been removed")
        return found

    def directory(self, entry: Entry) -> Path:
        """Where the run is."""
        return self.root / entry.path

    def opened(self, entry: Entry) -> Run | None:
        """A run that has not ended, as the last look found it."""
        with self._lock:
            return self._runs.get(entry.id)

    def configuration(self, entry: Entry) -> list[Leaf]:
        """Every value of the run's configuration, with secrets masked.

        Raises:
            ConfigError: It has none, or a damaged one.
        """
        with self._lock:
            if entry.id in self._of_redis:
                return self._of_redis[entry.id]
        stamp = _stamp(self.directory(entry), "config.yaml")
        with self._lock:
            kept = self._configurations.get(entry.path) or self._store.configuration(entry.path)
            if kept is None or kept[0] != stamp:
                kept = (stamp, read_configuration(self.directory(entry)))
                self._store.keep_configuration(entry.path, *kept)
            self._configurations[entry.path] = kept
            return kept[1]

    def close(self) -> None:
        """Closes the file, and connections."""
        self.elsewhere.close()
        with self._lock:
            self._store.close()

    def _look(self) -> None:
        found, runs, ended = {}, {}, {}
        for folder in run_directories(self.root, _LOG.warning):
            path = "" if folder == self.root else folder.relative_to(self.root).as_posix()
            stamp = _stamp(folder, *_FILES)
            kept = self._ended.get(path)
            if kept is not None and kept[0] == stamp:
                entry = kept[1]
            else:
                entry, run = self._read(folder, path)
                if run is not None:
                    runs[entry.id] = run
            if entry.state == "ended":
                ended[path] = (stamp, entry)
            found[entry.id] = entry
        self._store.keep({path: new for path, new in ended.items() if self._ended.get(path) != new})
        self._store.forget(self._ended.keys() - ended.keys())
        of_redis = self._add_elsewhere(found, runs)
        self._ended, self._runs, self._of_redis = ended, runs, of_redis
        self._entries = dict(sorted(found.items(), key=lambda item: (-item[1].started, item[1].path)))

    def _add_elsewhere(self, entries: dict[str, Entry], runs: dict[str, Run]) -> dict[str, list[Leaf]]:
        """Adds runs that Redis alone knows of; what looks gone from here may run on another machine."""
        here = {entry.run_id: entry for entry in entries.values()}
        added = {}
        for run_id, found in self.elsewhere.runs().items():
            entry = here.get(run_id)
            if entry is None:
                path = f"{NOWHERE}/{run_id}"
                basics: dict[str, Any] = {"id": id_of(path), "path": path, "name": run_id, "run_id": run_id}
                basics |= {"state": "running", "started": found.record.started}
                entry = Entry(**basics, **_expected(found.leaves))
                added[entry.id] = found.leaves
            elif entry.state == "gone":
                entry = entry.model_copy(update={"state": "running"})
            else:
                continue
            entries[entry.id] = entry
            runs[entry.id] = Run(self.directory(entry), found.record, None, "running")
        return added

    def _read(self, folder: Path, path: str) -> tuple[Entry, Run | None]:
        """The entry, and the run unless it has ended."""
        basics: dict[str, Any] = {"id": id_of(path), "path": path, "name": folder.resolve().name}
        try:
            _refuse_links(folder)
            run = open_run(folder)
        except ConfigError as error:
            return Entry(**basics, state="damaged", problem=" ".join(str(error).split())), None
        basics |= {"run_id": run.record.run_id, "started": run.record.started, "state": run.state}
        if run.state == "running" and not _is_of_its_process(folder, run.record):
            run = replace(run, state="gone")
            basics["state"] = run.state
        if run.summary is not None:
            return Entry(**basics, **_told(run.summary)), None
        return Entry(**basics, **self._expected(Entry(**basics))), run

    def _expected(self, entry: Entry) -> dict[str, Any]:
        """What the configuration tells of a run that has left no summary."""
        try:
            return _expected(self.configuration(entry))
        except ConfigError as error:
            return {"problem": " ".join(str(error).split())}


def _expected(leaves: Sequence[Leaf]) -> dict[str, Any]:
    values = {leaf.path: leaf.value for leaf in leaves}
    seed = values.get("seed")
    names = {"algorithm": values.get("algorithm.name"), "env": values.get("environment.id")}
    return {key: str(value or "") for key, value in names.items()} | {"seed": seed if type(seed) is int else None}


class _Store:
    """The SQLite file. What goes wrong with it costs the shortcut alone, and is logged."""

    def __init__(self, root: Path) -> None:
        path = root / INDEX_NAME
        # In a run's own directory, where there is only that run (or soon will be), nothing is left behind.
        of_one_run = (root / "run.json").exists() or not root.is_dir()
        self._file = ":memory:" if of_one_run or path.is_symlink() else str(path)
        self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            return _prepared(self._file)
        except sqlite3.OperationalError as error:  # no right to write there, or no room
            _LOG.warning("the index of runs is kept in memory: %s: %s", self._file, error)
        except sqlite3.DatabaseError as error:
            _LOG.warning("the index of runs is made anew: %s: %s", self._file, error)
            Path(self._file).unlink()
            return _prepared(self._file)
        self._file = ":memory:"
        return _prepared(self._file)

    def entries(self) -> dict[str, tuple[str, Entry]]:
        kept = {}
        try:
            for path, stamp, text in self._database.execute("SELECT path, stamp, entry FROM entries"):
                kept[path] = (stamp, Entry.model_validate_json(text))
        except (sqlite3.Error, ValidationError) as error:
            _LOG.warning("the index of runs is made anew: %s: %s", self._file, error)
            return {}
        return kept

    def configuration(self, path: str) -> tuple[str, list[Leaf]] | None:
        try:
            found = self._database.execute("SELECT stamp, leaves FROM configurations WHERE path = ?", (path,))
            row = found.fetchone()
            return None if row is None else (row[0], [Leaf(*leaf) for leaf in json.loads(row[1])])
        except (sqlite3.Error, ValueError, TypeError) as error:
            _LOG.warning("a configuration is read anew: %s: %s", self._file, error)
            return None

    def keep(self, entries: dict[str, tuple[str, Entry]]) -> None:
        rows = [(path, stamp, entry.model_dump_json()) for path, (stamp, entry) in entries.items()]
        self._write("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)

    def keep_configuration(self, path: str, stamp: str, leaves: list[Leaf]) -> None:
        self._write("INSERT OR REPLACE INTO configurations VALUES (?, ?, ?)", [(path, stamp, json.dumps(leaves))])

    def forget(self, paths: set[str]) -> None:
        for table in ("entries", "configurations"):
            self._write(f"DELETE FROM {table} WHERE path = ?", [(path,) for path in paths])

    def close(self) -> None:
        self._database.close()

    def _write(self, statement: str, rows: Sequence[tuple[str, ...]]) -> None:
        if not rows:
            return
        try:
            with self._database:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:  # full, locked by another dashboard, or removed: what is shown is right anyway
            _LOG.warning("the index of runs cannot be written: %s: %s", self._file, error)


def _prepared(file: str) -> sqlite3.Connection:
    # The index's own lock keeps threads apart.
    database = sqlite3.connect(file, timeout=1.0, check_same_thread=False)
    with database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            for table in ("entries", "configurations"):
                database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute("CREATE TABLE IF NOT EXISTS entries (path TEXT PRIMARY KEY, stamp TEXT, entry TEXT)")
        database.execute("CREATE TABLE IF NOT EXISTS configurations (path TEXT PRIMARY KEY, stamp TEXT, leaves TEXT)")
        database.execute(f"PRAGMA user_version = {_VERSION}")
    return database


def _stamp(folder: Path, *names: str) -> str:
    """Changes whenever one of the files does."""
    told = []
    for name in names:
        try:
            found = (folder / name).lstat()
        except OSError:  # not there, or out of reach
            told.append("-")
        else:
            told.append(f"{found.st_mtime_ns}.{found.st_size}.{found.st_ino}")
    return " ".join(told)


def _refuse_links(folder: Path) -> None:
    for name in _FILES:
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_file()):  # a pipe would keep its reader for ever
            raise ConfigError(f"{name} is not a file of the run's own")


def _is_of_its_process(folder: Path, record: RunRecord) -> bool:
    """Whether the process that a record names can have written it; no other record's Redis is connected to.

    A record that came with an archive, or from another user, may name any process and any Redis.
    """
    if not Path("/proc/self").exists():
        return True
    try:
        owner, runs_as = (folder / "run.json").stat().st_uid, Path(f"/proc/{record.pid}").stat().st_uid
    except OSError:  # gone meanwhile
        return False
    ours = os.geteuid() in (0, owner)
    return ours and owner == runs_as and record.process != "" and record.process == process_mark(record.pid)


def _told(summary: Summary) -> dict[str, Any]:
    numbers = {name: getattr(summary, name) for name in SUMMARISED}
    return {"algorithm": summary.algorithm, "env": summary.env, "seed": summary.seed, "numbers": numbers}
