"""The list of runs, cached in SQLite beside the runs: a run's files are read again when they have changed.

A lost or damaged cache is rebuilt from the run directories; if it cannot be written, it is kept in memory.
"""

import json
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from distrl.apps.dashboard.files import NotThereError, id_of, inside
from distrl.apps.dashboard.index_store import Kept, Store
from distrl.apps.dashboard.live_runs import FoundRun
from distrl.config.settings import Leaves, Setting, Settings, read_leaves, read_settings
from distrl.errors import ConfigError, one_line
from distrl.memory_backend.keys import DEFAULT_NAMESPACE, split_namespace
from distrl.runs.directories import (
    Manifest,
    RunRecord,
    State,
    distinct_ends,
    is_alive,
    open_run,
    process_mark,
    readable,
    run_directories,
)
from distrl.runs.labels import FILE as LABELS
from distrl.runs.labels import Labels
from distrl.runs.last_row import last_row
from distrl.runs.summary import Summary
from distrl.runs.sweeps import FILES as SWEEP_FILES

NOWHERE = "redis"
"""Folder name shown for runs without a directory here; nothing is ever written there."""
FRESH_S = 1.0
"""Least seconds between two scans of the directories."""
RESTS, LONGEST_REST_S = 100.0, 10.0
"""A scan is repeated after that many times its own duration: thousands of runs cost a hundredth of a core."""
QUICK_S = 0.1
"""A scan that took longer is repeated in a thread of its own; the list stays as it was until that has ended."""
SOUGHT_S = 1.0
"""Longest time that a request for a run which the list lacks waits for a scan that goes on, and longest scan for it."""
MOST_SOUGHT = 10
"""Most runs and sweeps missing from the list for which the directories are scanned before the next scan is due."""
MOST_CONFIGURATIONS = 256
"""Most parsed configurations that are kept in memory."""
_FILES = ("run.json", "summary.json", "manifest.json", "config.yaml", LABELS)
_LONGEST_PROBLEM = 500
_LOG = logging.getLogger(__name__)

Numbers = dict[str, float | int | str | None]
LISTED = (
    *("env_steps", "updates", "episodes", "mean_return_100", "best_mean_return_100", "evaluation_mean_return"),
    *("best_evaluation_return", "env_steps_per_s", "restarts"),
)
"""Numbers of every run in the list."""
SUMMARISED = (*LISTED, "wall_s", "stop_reason", "exit_code", "error")
"""Numbers of a finished run in the list."""


class IndexedRun(BaseModel):
    """One run of the list.

    Attributes:
        id: Id of the run in addresses; does not reveal its path.
        path: Path below the root, printable; "" for the root itself.
        name: Name that a user gave it, or the last parts of the path, as many as distinguish it from other runs, with
            the name of its sweep.
        title: Name that a user gave it; "" for none.
        numbers: Values of `SUMMARISED`, and `training_s`, see `Runs.latest`; empty until the run has ended.
        problem: Description of the damage.
        has_directory: Whether it has one here, and so a place for labels.
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
    title: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False
    has_directory: bool = True


class Index:
    """The runs below a folder, or of one run's directory, and remote runs. Safe for several threads."""

    def __init__(self, root: Path, remote_runs: Callable[[], Sequence[FoundRun]] = tuple) -> None:
        self.root = root
        self._has_root = False  # whether it was ever there: a dashboard of runs in Redis needs no folder
        self._remote_runs = remote_runs
        self._lock = threading.RLock()
        self._looking = threading.RLock()  # held by the one thread that scans
        self._thread: threading.Thread | None = None
        self.store = Store(root)
        self._known = _of_store(self.store)
        self._configurations: OrderedDict[str, tuple[str, Settings | ConfigError]] = OrderedDict()
        self._unsaved: list[Kept] = []  # parsed configurations, which the next scan writes at once
        self._folders: dict[str, Path] = {}
        self._entries: dict[str, IndexedRun] = {}
        self._running: dict[str, RunRecord] = {}
        self._of_redis: dict[str, FoundRun] = {}  # runs that have no directory here
        self._due = float("-inf")
        self._took_s = 0.0  # of the processor; a disk may make it last longer
        self._lasted_s = 0.0
        self._sought: set[str] = set()  # since the last scan that was due

    def entries(self) -> list[IndexedRun]:
        """Return every run, the newest first, at most `FRESH_S` old, or older if there are very many."""
        if self._is_due:
            if self._took_s <= QUICK_S:
                self._look_if_due()
            elif self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look_if_due, name="scan", daemon=True)
                self._thread.start()
        with self._lock:
            return list(self._entries.values())

    @property
    def _is_due(self) -> bool:
        return time.monotonic() >= self._due

    def _look_if_due(self) -> None:
        with self._looking:
            if self._is_due:
                self._sought.clear()
                began, entered = time.thread_time(), time.monotonic()
                self._look()
                self._took_s, self._lasted_s = time.thread_time() - began, time.monotonic() - entered
                self._due = time.monotonic() + max(FRESH_S, min(RESTS * self._took_s, LONGEST_REST_S))

    def seek(self, *missing: str) -> None:
        """Scan at once for runs and sweeps that the list lacks: they may have begun since the last scan.

        Each is sought once until a scan is due, and `MOST_SOUGHT` in all; none if a scan takes longer than `QUICK_S`.
        """
        if self._took_s > QUICK_S or self._lasted_s > SOUGHT_S or not self._looking.acquire(timeout=SOUGHT_S):
            return
        try:
            if not self._sought.issuperset(missing) and len(self._sought) < MOST_SOUGHT:
                self._sought.update(missing)
                self._look()
        finally:
            self._looking.release()

    def read_again(self, runs: Collection[str]) -> None:
        """Read the files of these runs at once, after they were changed or removed."""
        with self._looking:
            known, folders = dict(self._known), dict(self._folders)
            for name in runs:
                folder = folders.get(name)
                if folder is None:
                    continue
                if (folder / "run.json").exists():
                    path = "" if folder == self.root else folder.relative_to(self.root).as_posix()
                    known[name] = _read_again(folder, path, known.get(name))
                else:
                    del known[name], folders[name]
            self._take(known, folders)

    def entry(self, run: str) -> IndexedRun:
        """Return the run with an id."""
        found = self.some([run])
        if not found:
            raise NotThereError("no run has that id; it may have been removed")
        return found[0]

    def some(self, runs: Collection[str]) -> list[IndexedRun]:
        """Return those of the runs with these ids that are there, in this order."""
        self.entries()
        if missing := set(runs) - self._entries.keys():
            self.seek(*missing)
        with self._lock:
            return [self._entries[run] for run in runs if run in self._entries]

    def directory(self, entry: IndexedRun) -> Path:
        """Return the run's directory, which a remote run may lack."""
        with self._lock:
            return self._folders.get(entry.id, self.root / entry.path)

    def running(self, entry: IndexedRun) -> RunRecord | None:
        """Return the record of a run that is running, as of the last scan."""
        with self._lock:
            return self._running.get(entry.id)

    def configuration(self, entry: IndexedRun) -> Settings:
        """Return the run's configuration, with secrets masked."""
        with self._lock:
            if entry.id in self._of_redis:
                return self._of_redis[entry.id].settings
        folder = self.directory(entry)
        stamp = _stamp(folder, "config.yaml")
        with self._lock:
            kept = self._configurations.get(entry.id)
        if kept is None or kept[0] != stamp:
            kept = self.stored_configuration(entry.id)
        if kept is None or kept[0] != stamp:
            kept = (stamp, self._parsed(entry.id, folder, stamp))
        with self._lock:
            self._configurations[entry.id] = kept
            self._configurations.move_to_end(entry.id)
            while len(self._configurations) > MOST_CONFIGURATIONS:
                self._configurations.popitem(last=False)
        if isinstance(kept[1], ConfigError):
            raise kept[1]
        return kept[1]

    def leaves(self, entry: IndexedRun) -> Leaves:
        """Return the run's configuration by keys, with secrets masked."""
        with self._lock:
            remote = self._of_redis.get(entry.id)
        return read_leaves(inside(self.directory(entry), "config.yaml")) if remote is None else remote.leaves

    def configuration_stamp(self, entry: IndexedRun) -> str:
        """Return a stamp that changes with the run's config.yaml, as of the last scan."""
        with self._lock:
            known = self._known.get(entry.id)
        return "" if known is None else known.stamp.split(" ")[-2] if known.stamp else ""

    def stored_configuration(self, run: str) -> tuple[str, Settings] | None:
        """Return the stamp and the settings that the index has of a run."""
        row = self.store.row("configurations", run)
        try:
            return None if row is None else (row.stamp, settings_in_store(row.text))
        except (ValueError, TypeError, AttributeError) as error:
            _LOG.warning("a configuration is read anew: %s: %s", self.store.file, error)
            return None

    def _parsed(self, name: str, folder: Path, stamp: str) -> Settings | ConfigError:
        """Parse without the lock: the largest file takes seconds, and the list stays available."""
        try:
            settings = read_settings(inside(folder, "config.yaml"))
        except ConfigError as error:
            return error
        with self._lock:
            self._unsaved.append(Kept(name, stamp, json.dumps(settings)))
        return settings

    def _save(self) -> None:
        """Write the parsed configurations in one transaction, as each costs milliseconds on a disk."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, []
        self.store.keep("configurations", unsaved)

    def close(self) -> None:
        """Close the file, after a scan in progress."""
        with self._looking:
            self._due = self._took_s = float("inf")  # nothing is scanned any more
            self._save()
            self.store.close()

    def _look(self) -> None:
        known, folders = {}, {}
        self._has_root = self._has_root or self.root.exists()
        for folder in run_directories(self.root, _LOG.warning) if self._has_root else ():
            path = "" if folder == self.root else folder.relative_to(self.root).as_posix()
            name = id_of(path)
            known[name], folders[name] = _read_again(folder, path, self._known.get(name)), folder
        self._take(known, folders)

    def _take(self, known: dict[str, "_Known"], folders: dict[str, Path]) -> None:
        """Make these the runs of the list."""
        before, ended = _ended(self._known), _ended(known)
        new = {name: one for name, one in ended.items() if before.get(name) != one}
        self.store.keep("entries", [Kept(name, one.stamp, one.entry.model_dump_json()) for name, one in new.items()])
        self._save()
        self.store.forget(before.keys() - ended.keys())
        found = {name: one.entry for name, one in known.items()}
        running = {name: one.record for name, one in known.items() if one.record and one.entry.state == "running"}
        of_redis, remote = self._add_remote(found)
        ordered = dict(sorted(found.items(), key=lambda item: (-item[1].started, item[1].path)))
        entries = self._told_apart(ordered, self._members(folders))
        with self._lock:
            self._known, self._folders, self._entries = known, folders, entries
            self._running, self._of_redis = running | remote, of_redis
            for name in self._configurations.keys() - known.keys():
                del self._configurations[name]

    def _members(self, folders: Mapping[str, Path]) -> dict[str, str]:
        """Return run -> name of its sweep's folder, of the sweeps below `root`."""
        parents = {folder.parent for folder in folders.values() if folder != self.root} - {self.root}
        sweeps = {parent for parent in parents if any(os.path.lexists(f"{parent}/{name}") for name in SWEEP_FILES)}
        return {run: readable(folder.parent.name) for run, folder in folders.items() if folder.parent in sweeps}

    def _told_apart(self, entries: dict[str, IndexedRun], sweeps: Mapping[str, str]) -> dict[str, IndexedRun]:
        """Give runs distinct names; an entry whose name stays is the same object as before.

        Args:
            sweeps: Run -> the name of its sweep.
        """
        same: dict[str, list[IndexedRun]] = {}
        for entry in entries.values():
            own = f"{sweeps[entry.id]}/{entry.name}" if entry.id in sweeps else entry.name
            same.setdefault(entry.title or own, []).append(entry)
        for shown, alike in same.items():
            ends = [shown]
            if len(alike) > 1:
                ends = distinct_ends([(self.root.name, *entry.path.split("/")) for entry in alike])
            for entry, end in zip(alike, ends, strict=True):
                name = end if ends.count(end) == 1 else f"{end} ({entry.id[:6]})"  # paths that only look the same
                name = f"{entry.title} ({name})" if entry.title and len(alike) > 1 else name
                if name != entry.name:
                    before = self._entries.get(entry.id)
                    renamed = entry.model_copy(update={"name": name})
                    entries[entry.id] = before if before == renamed and before is not None else renamed
        return entries

    def _add_remote(self, entries: dict[str, IndexedRun]) -> tuple[dict[str, FoundRun], dict[str, RunRecord]]:
        """Add remote runs, and mark runs as running that look gone from here but run on another machine."""
        here = {(entry.namespace, entry.run_id): entry for entry in entries.values()}
        added, running = {}, {}
        for found in self._remote_runs():
            namespace, run_id = found.namespace, found.record.run_id
            entry = here.get((namespace, run_id))
            if entry is None:
                path = f"{NOWHERE}/{run_id}" if namespace == DEFAULT_NAMESPACE else f"{NOWHERE}/{namespace}/{run_id}"
                basics: dict[str, Any] = {"id": id_of(path), "path": path, "name": run_id, "run_id": run_id}
                basics["has_directory"] = False
                basics |= {"state": "running", "started": found.record.started, "namespace": namespace}
                entry = IndexedRun(**basics, **_configured(found.settings))
                added[entry.id] = found
            elif entry.state == "gone":
                entry = entry.model_copy(update={"state": "running"})
            else:
                continue
            entries[entry.id] = entry
            running[entry.id] = found.record
        return added, running


class _Known(NamedTuple):
    """A run as its files were read; `record` is None for one that has ended or is damaged."""

    stamp: str
    entry: IndexedRun
    record: RunRecord | None = None


def _of_store(store: Store) -> dict[str, _Known]:
    try:
        return {row.run: _Known(row.stamp, IndexedRun.model_validate_json(row.text)) for row in store.rows("entries")}
    except ValidationError as error:
        _LOG.warning("the index of runs is made anew: %s: %s", store.file, error)
        return {}


def settings_in_store(text: str) -> Settings:
    """Return the settings in a row of the table "configurations"."""
    return {path: Setting(*one) for path, one in json.loads(text).items()}


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
        basics |= _labelled(folder)
        basics |= {"run_id": run.record.run_id, "started": run.record.started, "state": run.state}
        if run.record.redis_url is not None:
            basics["namespace"] = split_namespace(run.record.redis_url)[1] or DEFAULT_NAMESPACE
        if run.summary is not None:
            return _Known(stamp, IndexedRun(**_facts(run.summary, folder), **basics))
        basics["state"] = "running" if run.state == "running" and _runs(folder, run.record) else "gone"
        return _Known(stamp, IndexedRun(**_announced(folder) | basics), run.record)
    except ConfigError as error:
        problem = str(error)
    except OSError as error:
        problem = f"a file of the run cannot be read: {error.strerror}"
        stamp = ""  # read again at the next look: such an error may pass while the files stay as they are
    except Exception as error:
        _LOG.exception("a run cannot be listed: %s", folder)
        problem = f"its files hold something odd ({error!r})"
    return _Known(stamp, IndexedRun(**basics | {"state": "damaged", "problem": _shown(problem, folder)}))


def _labelled(folder: Path) -> dict[str, Any]:
    try:
        labels = Labels.read(folder)
    except ConfigError as error:  # the run's numbers are shown all the same
        return {"problem": _shown(str(error), folder)}
    return {"title": labels.name, "tags": labels.tags, "note": labels.note, "archived": labels.archived}


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
    return readable(one_line(problem.replace(f"{folder}/", "")))[:_LONGEST_PROBLEM]


def _configured(settings: Settings) -> dict[str, Any]:
    values = {path: setting.value for path, setting in settings.items()}
    seed = values.get("seed")
    names = {"algorithm": values.get("algorithm.name"), "env": values.get("environment.id")}
    return {key: str(value or "") for key, value in names.items()} | {"seed": seed if type(seed) is int else None}


def _stamp(folder: Path, *names: str) -> str:
    """Return a stamp that changes whenever one of the files does."""
    told, within = [], f"{folder}/"  # texts: with thousands of runs, paths as objects take half of the time
    for name in names:
        try:
            found = os.lstat(within + name)
        except OSError:  # not there, or out of reach
            told.append("-")
        else:
            told.append(f"{found.st_ctime_ns}.{found.st_size}.{found.st_ino}")  # which also a change of rights changes
    return " ".join(told)


def _refuse_links(folder: Path) -> None:
    for name in _FILES[:-1]:  # of labels, the damage is told and the run shown
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


def _facts(summary: Summary, folder: Path) -> dict[str, Any]:
    numbers = {name: getattr(summary, name) for name in SUMMARISED}
    try:
        training_s = last_row(inside(folder, "metrics.csv")).get("wall_s")
    except ConfigError:  # told where curves are asked for
        training_s = None
    numbers["training_s"] = training_s if isinstance(training_s, float) and math.isfinite(training_s) else None
    return {"algorithm": summary.algorithm, "env": summary.env, "seed": summary.seed, "numbers": numbers}
