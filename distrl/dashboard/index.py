"""The list of runs, cached in SQLite beside the runs: a run's files are read again when they have changed.

A lost or damaged cache is rebuilt from the run directories; if it cannot be written, it is kept in memory.
"""

import json
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from distrl.config.settings import Setting, Settings, read_settings
from distrl.dashboard.files import NotThereError, id_of, inside
from distrl.dashboard.jobs import Found
from distrl.errors import ConfigError
from distrl.memory_backend.keys import DEFAULT_NAMESPACE, split_namespace
from distrl.runs.directories import (
    Manifest,
    RunRecord,
    distinct_ends,
    is_alive,
    open_run,
    process_mark,
    readable,
    run_directories,
)
from distrl.runs.last_row import last_row
from distrl.runs.summary import Summary

INDEX_NAME = ".distrl-index.sqlite"
NOWHERE = "redis"
"""Folder name shown for runs without a directory here; nothing is ever written there."""
FRESH_S = 1.0
"""Least seconds between two scans of the directories."""
RESTS, LONGEST_REST_S = 100.0, 10.0
"""A scan is repeated after that many times its own duration: thousands of runs cost a hundredth of a core."""
_VERSION = 5
_FILES = ("run.json", "summary.json", "manifest.json", "config.yaml")
_LONGEST_PROBLEM = 500
_LOG = logging.getLogger(__name__)

State = Literal["running", "ended", "gone", "damaged"]
Numbers = dict[str, float | int | str | None]
LISTED = (
    *("env_steps", "updates", "episodes", "mean_return_100", "best_mean_return_100", "evaluation_mean_return"),
    *("best_evaluation_return", "env_steps_per_s", "restarts"),
)
"""Numbers of every run in the list."""
SUMMARISED = (*LISTED, "wall_s", "stop_reason", "exit_code", "error")
"""Numbers of a finished run in the list."""


class Entry(BaseModel):
    """One run of the list.

    Attributes:
        id: Id of the run in addresses; does not reveal its path.
        path: Path below the root, printable; "" for the root itself.
        name: Last parts of the path, as many as distinguish it from other runs.
        numbers: Values of `SUMMARISED`, and `training_s`, see `Runs.latest`; empty until the run has ended.
        problem: Description of the damage.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    path: str
    name: str
    state: State
    run_id: str = ""
    namespace: str = DEFAULT_NAMESPACE
    started: float = 0.0
    algorithm: str = ""
    env: str = ""
    seed: int | None = None
    numbers: Numbers = {}
    problem: str | None = None


class Index:
    """The runs below a folder, or of one run's directory, and remote runs. Safe for several threads."""

    def __init__(self, root: Path, remote_runs: Callable[[], Sequence[Found]] = tuple) -> None:
        self.root = root
        self._has_root = False  # whether it was ever there: a dashboard of runs in Redis needs no folder
        self._remote_runs = remote_runs
        self._lock = threading.RLock()
        self._store = _Store(root)
        self._known = self._store.entries()
        self._configurations: dict[str, tuple[str, Settings | ConfigError]] = {}
        self._folders: dict[str, Path] = {}
        self._entries: dict[str, Entry] = {}
        self._running: dict[str, RunRecord] = {}
        self._of_redis: dict[str, Settings] = {}  # id -> the configuration of a run that has no directory here
        self._due = float("-inf")

    def entries(self) -> list[Entry]:
        """Return every run, the newest first, at most `FRESH_S` old, or older if there are very many."""
        with self._lock:
            if time.monotonic() >= self._due:
                began = time.thread_time()
                self._look()
                rest_s = min(RESTS * (time.thread_time() - began), LONGEST_REST_S)
                self._due = time.monotonic() + max(FRESH_S, rest_s)
            return list(self._entries.values())

    def entry(self, run: str) -> Entry:
        """Return the run with an id."""
        self.entries()
        with self._lock:
            found = self._entries.get(run)
        if found is None:
            raise NotThereError("no run has that id; it may have been removed")
        return found

    def directory(self, entry: Entry) -> Path:
        """Return the run's directory, which a remote run may lack."""
        with self._lock:
            return self._folders.get(entry.id, self.root / entry.path)

    def running(self, entry: Entry) -> RunRecord | None:
        """Return the record of a run that is running, as of the last scan."""
        with self._lock:
            return self._running.get(entry.id)

    def configuration(self, entry: Entry) -> Settings:
        """Return the run's configuration, with secrets masked."""
        with self._lock:
            if entry.id in self._of_redis:
                return self._of_redis[entry.id]
        folder = self.directory(entry)
        stamp = _stamp(folder, "config.yaml")
        with self._lock:
            kept = self._configurations.get(entry.id) or self._store.configuration(entry.id)
        if kept is None or kept[0] != stamp:
            kept = (stamp, self._parsed(entry.id, folder, stamp))
        with self._lock:
            self._configurations[entry.id] = kept
        if isinstance(kept[1], ConfigError):
            raise kept[1]
        return kept[1]

    def _parsed(self, name: str, folder: Path, stamp: str) -> Settings | ConfigError:
        """Parse without the lock: the largest file takes seconds, and the list stays available."""
        try:
            settings = read_settings(inside(folder, "config.yaml"))
        except ConfigError as error:
            return error
        with self._lock:
            self._store.keep_configuration(name, stamp, settings)
        return settings

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._store.close()

    def _look(self) -> None:
        known, folders = {}, {}
        self._has_root = self._has_root or self.root.exists()
        for folder in run_directories(self.root, _LOG.warning) if self._has_root else ():
            path = "" if folder == self.root else folder.relative_to(self.root).as_posix()
            name = id_of(path)
            known[name], folders[name] = _read_again(folder, path, self._known.get(name)), folder
        before, ended = _ended(self._known), _ended(known)
        self._store.keep({name: one for name, one in ended.items() if before.get(name) != one})
        self._store.forget(before.keys() - ended.keys())
        self._configurations = {name: kept for name, kept in self._configurations.items() if name in known}
        self._known, self._folders = known, folders
        found = {name: one.entry for name, one in known.items()}
        self._running = {name: one.record for name, one in known.items() if one.record and one.entry.state == "running"}
        self._of_redis = self._add_remote(found)
        ordered = dict(sorted(found.items(), key=lambda item: (-item[1].started, item[1].path)))
        self._entries = self._told_apart(ordered)

    def _told_apart(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        """Give runs distinct names; an entry whose name stays is the same object as before."""
        same: dict[str, list[Entry]] = {}
        for entry in entries.values():
            same.setdefault(entry.name, []).append(entry)
        for alike in (alike for alike in same.values() if len(alike) > 1):
            ends = distinct_ends([(self.root.name, *entry.path.split("/")) for entry in alike])
            for entry, end in zip(alike, ends, strict=True):
                name = end if ends.count(end) == 1 else f"{end} ({entry.id[:6]})"  # paths that only look the same
                before = self._entries.get(entry.id)
                renamed = entry.model_copy(update={"name": name})
                entries[entry.id] = before if before == renamed and before is not None else renamed
        return entries

    def _add_remote(self, entries: dict[str, Entry]) -> dict[str, Settings]:
        """Add remote runs, and mark runs as running that look gone from here but run on another machine."""
        here = {(entry.namespace, entry.run_id): entry for entry in entries.values()}
        added = {}
        for found in self._remote_runs():
            namespace, run_id = found.namespace, found.record.run_id
            entry = here.get((namespace, run_id))
            if entry is None:
                path = f"{NOWHERE}/{run_id}" if namespace == DEFAULT_NAMESPACE else f"{NOWHERE}/{namespace}/{run_id}"
                basics: dict[str, Any] = {"id": id_of(path), "path": path, "name": run_id, "run_id": run_id}
                basics |= {"state": "running", "started": found.record.started, "namespace": namespace}
                entry = Entry(**basics, **_configured(found.settings))
                added[entry.id] = found.settings
            elif entry.state == "gone":
                entry = entry.model_copy(update={"state": "running"})
            else:
                continue
            entries[entry.id] = entry
            self._running[entry.id] = found.record
        return added


class _Known(NamedTuple):
    """A run as its files were read; `record` is None for one that has ended or is damaged."""

    stamp: str
    entry: Entry
    record: RunRecord | None = None


def _ended(known: Mapping[str, _Known]) -> dict[str, _Known]:
    return {name: one for name, one in known.items() if one.entry.state == "ended"}


def _read_again(folder: Path, path: str, before: _Known | None) -> _Known:
    """Read a run's files, or only find out whether it still runs if they have not changed."""
    # First: a run that ends writes its summary before its process ends.
    runs = before is not None and before.record is not None and _runs(folder, before.record)
    stamp = _stamp(folder, *_FILES)
    if before is None or before.stamp != stamp:
        return _read(folder, path, stamp)
    if before.record is None:
        return before
    return before._replace(entry=before.entry.model_copy(update={"state": "running" if runs else "gone"}))


def _read(folder: Path, path: str, stamp: str) -> _Known:
    """Read a run's files; a damaged directory affects only its own entry."""
    basics: dict[str, Any] = {"id": id_of(path), "path": readable(path), "name": readable(folder.resolve().name)}
    try:
        _refuse_links(folder)
        run = open_run(folder)
        basics |= {"run_id": run.record.run_id, "started": run.record.started, "state": run.state}
        if run.record.redis_url is not None:
            basics["namespace"] = split_namespace(run.record.redis_url)[1] or DEFAULT_NAMESPACE
        if run.summary is not None:
            return _Known(stamp, Entry(**basics, **_told(run.summary, folder)))
        basics["state"] = "running" if run.state == "running" and _runs(folder, run.record) else "gone"
        return _Known(stamp, Entry(**basics, **_announced(folder)), run.record)
    except ConfigError as error:
        problem = str(error)
    except OSError as error:
        problem = f"a file of the run cannot be read: {error.strerror}"
        stamp = ""  # read again at the next look: such an error may pass while the files stay as they are
    except Exception as error:
        _LOG.exception("a run cannot be listed: %s", folder)
        problem = f"its files hold something odd ({error!r})"
    return _Known(stamp, Entry(**basics | {"state": "damaged", "problem": _shown(problem, folder)}))


def _announced(folder: Path) -> dict[str, Any]:
    """Return the manifest's facts about a run without a summary."""
    try:
        manifest = Manifest.read(folder / "manifest.json")
    except ConfigError as error:
        return {"problem": _shown(str(error), folder)}
    if manifest is None:
        return {}
    return {"algorithm": manifest.algorithm, "env": manifest.environment, "seed": manifest.seed}


def _shown(problem: str, folder: Path) -> str:
    """Return the problem in one line, without the path of the run's directory."""
    return readable(" ".join(problem.replace(f"{folder}/", "").split()))[:_LONGEST_PROBLEM]


def _configured(settings: Settings) -> dict[str, Any]:
    values = {path: setting.value for path, setting in settings.items()}
    seed = values.get("seed")
    names = {"algorithm": values.get("algorithm.name"), "env": values.get("environment.id")}
    return {key: str(value or "") for key, value in names.items()} | {"seed": seed if type(seed) is int else None}


class _Store:
    """The SQLite file. Its errors are logged and cost only the cache."""

    def __init__(self, root: Path) -> None:
        path = root / INDEX_NAME
        # Nothing is written into a run's own directory.
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

    def entries(self) -> dict[str, _Known]:
        kept = {}
        try:
            for run, stamp, text in self._database.execute("SELECT id, stamp, entry FROM entries"):
                kept[run] = _Known(stamp, Entry.model_validate_json(text))
        except (sqlite3.Error, ValidationError) as error:
            _LOG.warning("the index of runs is made anew: %s: %s", self._file, error)
            return {}
        return kept

    def configuration(self, run: str) -> tuple[str, Settings | ConfigError] | None:
        try:
            found = self._database.execute("SELECT stamp, settings FROM configurations WHERE id = ?", (run,))
            row = found.fetchone()
            return None if row is None else (row[0], {path: Setting(*one) for path, one in json.loads(row[1]).items()})
        except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:
            _LOG.warning("a configuration is read anew: %s: %s", self._file, error)
            return None

    def keep(self, entries: dict[str, _Known]) -> None:
        rows = [(run, one.stamp, one.entry.model_dump_json()) for run, one in entries.items()]
        self._write("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)

    def keep_configuration(self, run: str, stamp: str, settings: Settings) -> None:
        self._write("INSERT OR REPLACE INTO configurations VALUES (?, ?, ?)", [(run, stamp, json.dumps(settings))])

    def forget(self, runs: set[str]) -> None:
        for table in ("entries", "configurations"):
            self._write(f"DELETE FROM {table} WHERE id = ?", [(run,) for run in runs])

    def close(self) -> None:
        self._database.close()

    def _write(self, statement: str, rows: Sequence[tuple[str, ...]]) -> None:
        if not rows:
            return
        try:
            with self._database:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:  # full, locked by another dashboard, or removed: the list is right anyway
            _LOG.warning("the index of runs cannot be written: %s: %s", self._file, error)


def _prepared(file: str) -> sqlite3.Connection:
    # The index's own lock keeps threads apart.
    database = sqlite3.connect(file, timeout=1.0, check_same_thread=False)
    with database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            for table in ("entries", "configurations"):
                database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute("CREATE TABLE IF NOT EXISTS entries (id TEXT PRIMARY KEY, stamp TEXT, entry TEXT)")
        database.execute("CREATE TABLE IF NOT EXISTS configurations (id TEXT PRIMARY KEY, stamp TEXT, settings TEXT)")
        database.execute(f"PRAGMA user_version = {_VERSION}")
    return database


def _stamp(folder: Path, *names: str) -> str:
    """Return a stamp that changes whenever one of the files does."""
    told = []
    for name in names:
        try:
            found = (folder / name).lstat()
        except OSError:  # not there, or out of reach
            told.append("-")
        else:
            told.append(f"{found.st_ctime_ns}.{found.st_size}.{found.st_ino}")  # which also a change of rights changes
    return " ".join(told)


def _refuse_links(folder: Path) -> None:
    for name in _FILES:
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_file()):  # a pipe would block its reader
            raise ConfigError(f"{name} is not a file of the run's own")


def _runs(folder: Path, record: RunRecord) -> bool:
    """Whether the process that a record names runs and can have written it.

    The dashboard connects to no other record's Redis: one from an archive or another user may name any process.
    """
    if not is_alive(record):
        return False
    if not Path("/proc/self").exists():
        return True
    try:
        owner, runs_as = (folder / "run.json").stat().st_uid, Path(f"/proc/{record.pid}").stat().st_uid
    except OSError:  # gone meanwhile
        return False
    ours = os.geteuid() in (0, owner)
    return ours and owner == runs_as and record.process != "" and record.process == process_mark(record.pid)


def _told(summary: Summary, folder: Path) -> dict[str, Any]:
    numbers = {name: getattr(summary, name) for name in SUMMARISED}
    try:
        training_s = last_row(inside(folder, "metrics.csv")).get("wall_s")
    except ConfigError:  # told where curves are asked for
        training_s = None
    numbers["training_s"] = training_s if isinstance(training_s, float) and math.isfinite(training_s) else None
    return {"algorithm": summary.algorithm, "env": summary.env, "seed": summary.seed, "numbers": numbers}
