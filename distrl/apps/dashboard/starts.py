"""Trainings that the page starts: `distrl train` with a configuration, or `--resume`, each as a session of its own.

Only with `distrl dashboard --allow-start`: a configuration names classes, and so its author runs code as this user. A
training outlives the dashboard; it inherits no descriptor and no token of it.
"""

import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from distrl.apps.dashboard import drafts, files
from distrl.apps.dashboard.access import READ_ONLY_TOKEN_VARIABLE, TOKEN_VARIABLE
from distrl.apps.dashboard.alert_settings import TOKEN_VARIABLE as ALERTS_TOKEN_VARIABLE
from distrl.apps.dashboard.bodies import require_in_time
from distrl.apps.dashboard.files import NotThereError, id_of
from distrl.apps.dashboard.index import Index, IndexedRun
from distrl.config.secrets import masked_text
from distrl.errors import ConfigError
from distrl.files import read_end
from distrl.runs.directories import RunRecord

_LOG = logging.getLogger(__name__)
MOST_AT_ONCE = 8
"""Most trainings that were started here and run."""
MOST_KEPT = 100
"""Most starts whose outcome is remembered."""
MOST_SILENT_S = 1800.0
"""A training that is no run yet is ended after so many seconds without output: it counts against `MOST_AT_ONCE`."""
TERMINATING_S, LOOK_S = 10.0, 0.5
MOST_FILES = 100_000
"""Most files of a run that is resumed; each of them is looked at before."""
CONFIG_FILE, LOG_NAME = "draft.yaml", "launch"
_TAIL_BYTES = 16 * 1024
_PRIVATE = (TOKEN_VARIABLE, READ_ONLY_TOKEN_VARIABLE, ALERTS_TOKEN_VARIABLE)


class Draft(BaseModel):
    """The body of a request that checks or starts a training.

    Attributes:
        name: Name of the new run directory.
        config: The configuration in YAML.
        deadline: As in `control.ControlRequest`.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    config: str
    deadline: float | None = Field(None, allow_inf_nan=False)


class Resumption(BaseModel):
    """The body of a request that resumes the run with an id."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str
    deadline: float | None = Field(None, allow_inf_nan=False)


@dataclass
class Start:
    """One training that was started here; `problem` is the last line of one that ended before it was a run."""

    id: str
    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    is_new: bool
    problem: str | None = None
    ended: bool = False

    @property
    def state(self) -> Literal["starting", "running", "ended", "failed"]:
        if self.problem is not None:
            return "failed"
        if self.ended:
            return "ended"
        return "running" if (self.folder / "run.json").is_file() and self._has_begun() else "starting"

    def _has_begun(self) -> bool:
        """Whether the directory describes this launch, and not an earlier one."""
        try:
            return self.is_new or RunRecord.read(self.folder / "run.json").pid == self.process.pid
        except ConfigError:  # damaged, or removed meanwhile
            return False


class Starts:
    """Starts trainings below the folder of runs. Safe for several threads."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Start] = OrderedDict()

    def check(self, draft: Draft) -> dict[str, Any]:
        """Return the problems of a draft by field, and what a draft without one would train."""
        name, config = drafts.name_problem(self._index.root, draft.name), drafts.problem(draft.config)
        found = {"name": name, "config": config}
        problems = {field: problem._asdict() for field, problem in found.items() if problem is not None}
        return {"problems": problems, "summary": drafts.summary(draft.config) if config is None else None}

    def start(self, draft: Draft) -> dict[str, Any]:
        """Start a training in a new directory."""
        require_in_time(draft.deadline)
        problem = drafts.problem(draft.config) or drafts.name_problem(self._index.root, draft.name)
        if problem is not None:
            raise ConfigError(problem.text)
        folder = self._index.root.resolve() / draft.name
        with self._lock:
            self._require_room()
            try:
                folder.mkdir()
            except FileExistsError as error:
                raise ConfigError(f"{draft.name} is there already; choose another name") from error
            except OSError as error:
                raise ConfigError(f"{draft.name} cannot be made: {error.strerror}") from error
            try:
                (folder / "logs").mkdir()
                with open(folder / CONFIG_FILE, "x", opener=_private, encoding="utf-8") as file:
                    file.write(draft.config)
                arguments = [str(folder / CONFIG_FILE), "--run-dir", str(folder), "--dated"]
                return self._launch(id_of(draft.name), draft.name, folder, arguments, is_new=True)
            except OSError as error:
                _discard(folder)
                raise ConfigError(f"{draft.name} cannot be started: {error.strerror}") from error

    def resume(self, asked: Resumption) -> dict[str, Any]:
        """Resume a run that does not run, in its directory."""
        require_in_time(asked.deadline)
        self._index.read_again([asked.run])
        entry = self._index.entry(asked.run)
        # A slow disk takes long over many files: other starts do not wait for it.
        _require_own(entry, _leading_out(self._resumable(entry)))
        with self._lock:
            require_in_time(asked.deadline)
            self._require_room()
            before = self._kept.get(asked.run)
            self._index.read_again([asked.run])
            entry = self._index.entry(asked.run)
            folder = self._resumable(entry)
            if before is not None and not before.ended:
                raise ConfigError(f"{entry.name} is being started already")
            try:
                return self._launch(entry.id, entry.name, folder, ["--resume", str(folder), "--dated"], is_new=False)
            except OSError as error:
                raise ConfigError(f"{entry.name} cannot be resumed: {error.strerror}") from error

    def state_of(self, run: str) -> dict[str, Any]:
        """Return the state of a start by the run's id."""
        with self._lock:
            start = self._kept.get(run)
            if start is None:
                raise NotThereError("no training with that id was started here")
            return {"id": start.id, "name": start.name, "state": start.state, "problem": start.problem}

    def _resumable(self, entry: IndexedRun) -> Path:
        """Return the resolved directory of a run that may be resumed, if its files lead nowhere else."""
        folder = self._index.directory(entry)
        if entry.state not in ("ended", "gone") or self._index.running(entry) is not None:
            raise ConfigError(f"{entry.name} is {entry.state}; only a run that has ended or is gone can be resumed")
        files.inside(folder, "config.yaml")  # raises if it leads out of the directory
        _require_own(entry, _foreign(folder, self._index.root))
        return folder.resolve()

    def _require_room(self) -> None:
        running = sum(not start.ended for start in self._kept.values())
        if running >= MOST_AT_ONCE:
            raise ConfigError(
                f"{running} trainings that were started here run; stop one, or start it with distrl train"
            )

    def _launch(self, run: str, name: str, folder: Path, arguments: Sequence[str], *, is_new: bool) -> dict[str, Any]:
        (folder / "logs").mkdir(exist_ok=True)
        log = folder / "logs" / f"{LOG_NAME}.log"
        with open(log, "ab", opener=_private) as output:
            begin = output.tell()
            process = subprocess.Popen(  # our own interpreter and words; the paths are absolute
                [sys.executable, "-P", "-m", "distrl", "train", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={name: value for name, value in os.environ.items() if name not in _PRIVATE},
                start_new_session=True,
            )
        start = self._kept[run] = Start(run, name, folder, process, is_new)
        self._kept.move_to_end(run)
        for old in [key for key, each in self._kept.items() if each.ended][: max(len(self._kept) - MOST_KEPT, 0)]:
            del self._kept[old]
        threading.Thread(target=self._wait, args=(start, log, begin), name=f"start {name}", daemon=True).start()
        return {"id": run, "name": name, "state": start.state, "problem": None}

    def _wait(self, start: Start, log: Path, begin: int) -> None:
        """Wait for the end of a training; one that was no run yet leaves only its last line."""
        hung = not _begins_or_ends(start, log)
        code = _end(start.process) if hung else start.process.wait()
        with self._lock:
            if (hung or code) and not (start.is_new and (start.folder / "run.json").exists()):
                last = _last_line(log, begin)
                start.problem = last or f"distrl train ended with {code} and wrote nothing"
                if hung:
                    start.problem = f"ended after {MOST_SILENT_S:g} s without output; its last line: {last or 'none'}"
                if start.is_new:
                    _discard(start.folder)
            start.ended = True


def _begins_or_ends(start: Start, log: Path) -> bool:
    """Wait until a training is a run or has ended; False if it is silent before."""
    size, until = -1, 0.0
    while start.process.poll() is None and start.state == "starting":
        now = _size(log)
        if now != size:  # a checkpoint that is fetched from a store reports its progress
            size, until = now, time.monotonic() + MOST_SILENT_S
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_S)
    return True


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:  # removed meanwhile
        return 0


def _end(process: subprocess.Popen[bytes]) -> int:
    """Terminate a training and the processes of its group, kill them if it goes on, and return its exit code."""
    os.killpg(process.pid, signal.SIGTERM)  # not reaped yet, so the number is its own
    try:
        return process.wait(TERMINATING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _require_own(entry: IndexedRun, reason: str | None) -> None:
    """Refuse a run that is not to be trained in from the page, if there is a reason.

    Its configuration names code that runs as this user, and a training writes through links.
    """
    if reason is not None:
        raise ConfigError(f"{entry.name} {reason}; look at its configuration and resume it with distrl train")


def _foreign(folder: Path, root: Path) -> str | None:
    """Return how others can change a run's directory, or None."""
    home = os.path.realpath(folder)
    if home != os.path.join(os.path.realpath(root), os.path.relpath(folder, root)).removesuffix("/."):
        return "lies behind a link"
    for path in (folder, folder / "config.yaml"):
        found = path.stat()
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
            return "belongs to another user, or others can write to it"
    return None


def _leading_out(folder: Path) -> str | None:
    """Return which link in a resolved directory leads out of it, or that it has too many files; or None."""
    home = str(folder)
    left, folders = MOST_FILES, [home]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for each in entries:
                left -= 1
                if left < 0:
                    return f"has more than {MOST_FILES:,} files"
                if each.is_symlink():
                    if not f"{os.path.realpath(each.path)}/".startswith(f"{home}/"):
                        return f"holds a link that leads out of it, {files.shown(os.path.relpath(each.path, home))}"
                elif each.is_dir():
                    folders.append(each.path)
    return None


def _discard(folder: Path) -> None:
    """Remove the directory of a training that was no run; one that cannot be removed is logged."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        _LOG.warning("%s is left over from a training that did not start, and cannot be removed: %s", folder, error)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _last_line(log: Path, begin: int) -> str:
    """Return the last line that was written from byte `begin` on, with secrets masked; "" if the log was removed."""
    try:
        lines = read_end(log, _TAIL_BYTES, begin).decode(errors="replace").split("\n")
    except OSError:
        return ""
    told = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return files.shown(masked_text(told))[:500]
