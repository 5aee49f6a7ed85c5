"""Runs: finding them by directory, id or Redis, their records, and telling running, ended and gone ones apart."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from distrl.config.secrets import with_password_file
from distrl.data_store.atomic import TEMPORARY
from distrl.data_store.saved_elsewhere import newest_resumable
from distrl.errors import ConfigError, bounded, one_line
from distrl.files import read_model
from distrl.runs.summary import Summary

if TYPE_CHECKING:
    from distrl.memory_backend.backend import Backend
    from distrl.memory_backend.steering import Steering
    from distrl.runs.reading import Reading

ROOT = Path("runs")
RECORDS = ("run.json", "job.json")
"""Either file makes a directory that of a run; the second one is of a submitted job, which may not have begun."""
State = Literal["running", "ended", "gone", "damaged"]
"""State of a run: its command is up; it has left a summary; it is gone without one, and can be resumed; or one of its
files is damaged, which only lists show."""


LONGEST_PROBLEM = 160
PASSWORD_FILE: Literal["redis.password"] = "redis.password"
"""The password of a Redis that is the run's own and that other hosts reach."""


class RunRecord(BaseModel):
    """run.json: how to reach the live run. `redis_url` is None where everything is one process.

    Attributes:
        launch: Token of the launch; "" where it is not known.
        redis_url: As other hosts reach it, where they can. Records that were read name the password's file in it.
        redis_password_file: File beside run.json that holds the password; None: the environment has it, if any.
        host: Host of the launch; "" where it is not known.
        pid: 0 where it is not known.
        started: When this launch began, in seconds since 1970.
        process: Distinguishes the process `pid` from later ones of that number, see `process_mark`; "" for not known.
    """

    run_id: str
    launch: str = ""
    redis_url: str | None
    redis_password_file: Literal["redis.password"] | None = None
    host: str = ""
    pid: int = Field(ge=0, lt=2**31)
    started: float = Field(0.0, ge=0.0, lt=1e11)
    process: str = ""

    @classmethod
    def read(cls, path: Path) -> "RunRecord":
        """Read a file run.json."""
        try:
            path.stat()
        except OSError as error:
            raise ConfigError(f"{path.parent} is not a run's directory: {path.name}: {error.strerror}") from error
        record = read_model(cls, path)
        if record.redis_url is None or record.redis_password_file is None:
            return record
        password_file = path.parent / record.redis_password_file
        if password_file.is_symlink():  # a record of another user must not send this user's files to its Redis
            raise ConfigError(f"{password_file} is a link; copy the file itself")
        return record.model_copy(update={"redis_url": with_password_file(record.redis_url, password_file)})


class Manifest(BaseModel):
    """manifest.json: the command, code, machine and package versions of a run's newest launch.

    Attributes:
        command: The words of the command line, secrets masked.
        directory: The working directory of that command.
        commit: git's commit there, with "+" where files differ from it; None: not under git.
        distrl: Version of distrl.
        distrl_commit: Commit of distrl itself, where it is a checkout.
        cpu: The kernel's name of the processor.
        cores: Cores that the process may use.
        memory_bytes: Memory of the machine; None: unknown.
        gpus: The driver's names of the GPUs.
        packages: Name -> version of the installed packages that distrl uses.
    """

    model_config = ConfigDict(frozen=True)

    run_id: str
    environment: str
    algorithm: str
    seed: int
    command: tuple[str, ...]
    directory: str
    commit: str | None
    distrl: str
    distrl_commit: str | None
    python: str
    system: str
    host: str
    cpu: str
    cores: int
    memory_bytes: int | None
    gpus: tuple[str, ...]
    packages: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> "Manifest | None":
        """Read a manifest; None where there is no such file, as in runs of older versions."""
        return read_model(cls, path) if path.exists() else None


@dataclass(frozen=True)
class Run:
    """One run, by its directory or by its Redis.

    Attributes:
        directory: None for a run that is named by its Redis and its id.
        summary: Summary of the launch that `record` describes; None until that has ended.
        state: Whether the run's command is alive. One of another host, whose Redis this host may reach, is taken to be
            until it has left a summary.
        problem: What is damaged, in a line; "" for nothing.
    """

    directory: Path | None
    record: RunRecord
    summary: Summary | None
    state: State
    problem: str = ""

    @classmethod
    def find(cls, name: str | None, redis_url: str | None = None, run_id: str | None = None) -> "Run":
        """Return the run that a command names: as `run_directory`, or by its Redis and its id.

        Raises:
            ConfigError: There is no such run, its files are damaged, or the command names none, or two.
        """
        if run_id is None and redis_url is None:
            return open_run(run_directory(name))
        if run_id is None:
            raise ConfigError("--redis-url needs --run-id; distrl runs --redis-url URL lists the ids")
        if name is not None:
            raise ConfigError(f"--run {name} and --run-id {run_id} both name a run; give one of them")
        from distrl.memory_backend.credentials import url_of_environment

        url = redis_url or url_of_environment()
        if url is None:
            raise ConfigError("--run-id needs --redis-url, or the environment variable DISTRL_REDIS_URL")
        return cls(None, RunRecord(run_id=run_id, redis_url=url, pid=0), None, "running")

    @property
    def path(self) -> Path:
        """Its directory, of a run that was found by it."""
        assert self.directory is not None
        return self.directory

    @contextmanager
    def backend(self) -> Iterator["Backend"]:
        """Open the memory backend of a run that goes on.

        Raises:
            ConfigError: It has ended, its process is gone, or it has no Redis.
            MemoryBackendError: Redis does not answer, or has no such run.
        """
        if self.summary is not None:
            raise ConfigError(f"{self.path} has ended ({self.summary.stop_reason}); distrl status shows how")
        if self.state == "gone":
            raise ConfigError(self.gone_words)
        if self.record.redis_url is None:
            raise ConfigError(f"{self.path} is one process without Redis (actors.count: 0); Ctrl-C ends it")
        # Imported here: lists of runs and the help of the command line need no Redis client.
        from distrl.memory_backend.backend import connect

        backend = connect(self.record.redis_url, self.record.run_id, name="cli", give_up_s=3.0)
        try:
            backend.config_json()  # raises for a run that is not there, before anything is written under its name
            yield backend.of_standing_launch()
        finally:
            backend.close()

    def read(self) -> "Reading":
        """Read what Redis has of a run that goes on. Raises as `backend`."""
        # Imported here, as above.
        from distrl.runs.reading import Reading

        with self.backend() as backend:
            return Reading.of(backend)

    @contextmanager
    def steering(self, by: str) -> Iterator["Steering"]:
        """Open the requests to a run that goes on; `by` names the interface, for the record. Raises as `backend`."""
        # Imported here, as above.
        from distrl.memory_backend.steering import Steering, operator

        with self.backend() as backend:
            yield Steering(backend, operator(by))

    @property
    def gone_words(self) -> str:
        """One line about a run that is gone, with the command that goes on with it."""
        newest = newest_resumable(self.path)
        goes_on = "" if newest is None else f"; go on with distrl train --resume {newest}"
        return f"{self.path} does not run: its process {self.record.pid} is gone and left no summary{goes_on}"


def open_run(run_dir: Path) -> Run:
    """Return the run in a directory."""
    record = RunRecord.read(run_dir / "run.json")
    # Checked first, as a run that ends writes its summary before it exits.
    alive = is_alive(record) or _is_elsewhere(record)
    path = run_dir / "summary.json"
    summary = Summary.read(path) if path.is_file() else None
    # There is none, or an earlier launch has left it, which this one has resumed.
    if summary is None or (summary.run_id, summary.launch) != (record.run_id, record.launch):
        return Run(run_dir, record, None, "running" if alive else "gone")
    return Run(run_dir, record, summary, "ended")


def damaged_run(path: Path, error: ConfigError | OSError) -> Run:
    """Return a run of which a file cannot be read, with what is known of it."""
    told = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
    problem = one_line(told.replace(f"{path}/", "").replace(" is damaged: ", ": "))
    try:
        record = RunRecord.read(path / "run.json")
    except (ConfigError, OSError):
        record = RunRecord(run_id="", redis_url=None, pid=0)
    return Run(path, record, None, "damaged", bounded(problem, LONGEST_PROBLEM))


def find_runs(places: Sequence[Path], trouble: Callable[[str], None]) -> Iterator[Run]:
    """Yield every run in these places, runs or folders of them, once, also damaged ones.

    Args:
        trouble: Gets a line for each folder that cannot be looked into.
    """
    seen = set()
    for place in places:
        if not place.is_dir():
            raise ConfigError(f"{place} is not a folder; name a run's directory, or a folder that holds some")
        for path in run_directories(place, trouble):
            try:
                status = path.stat()
                found = status.st_dev, status.st_ino  # under whatever name
                if found in seen:
                    continue
                seen.add(found)
                run = _opened(path)
            except OSError as error:  # gone meanwhile, or out of reach
                trouble(f"{path}: {error.strerror}")
            else:
                yield run


def _opened(path: Path) -> Run:
    try:
        return open_run(path)
    except ConfigError as error:
        return damaged_run(path, error)


SET_ASIDE = "set-aside"
"""Folder of a sweep with what is left of runs that began anew."""
MOST_DEPTH = 50
"""Folders below a folder of runs that are searched; os.walk itself ends with an error at a thousand."""


def run_directories(root: Path, trouble: Callable[[str], None]) -> Iterator[Path]:
    """Yield the run directories in `root` and below, by name; `trouble` gets a line for each unreadable folder.

    Links are not followed, and run directories are not searched for further runs. Runs that a sweep has set aside are
    left out, those that are being removed, and those more than `MOST_DEPTH` folders below `root`.
    """
    above = os.path.normpath(root).count(os.sep)
    for folder, names, files in os.walk(root, onerror=lambda error: trouble(f"{error.filename}: {error.strerror}")):
        if "run.json" in files:
            names.clear()
            yield Path(folder)
        if os.path.normpath(folder).count(os.sep) - above >= MOST_DEPTH:
            names.clear()
        names[:] = sorted(name for name in names if name != SET_ASIDE and not name.startswith(TEMPORARY))


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends that distinguish the paths: most often the directories' own names."""
    return distinct_ends([tuple(map(readable, path.resolve().parts)) for path in paths])


def distinct_ends(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the ends of paths, given by their parts: the shortest common length that distinguishes all."""
    for length in range(1, min(max(map(len, paths), default=0), MOST_DEPTH) + 1):
        names = ["/".join(each[-length:]) for each in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return ["/".join(each) for each in paths]


def readable(name: str) -> str:
    """Return a file name as text that UTF-8 can hold: other bytes are escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")


def run_directory(name: str | None, root: Path = ROOT) -> Path:
    """Return the directory of a run or job: a path, an id under `root`, or, for None, the one that began last.

    A path with a slash need not exist.

    Raises:
        ConfigError: There is none of that name, or none at all.
    """
    if name is None:
        newest = max(records_under(root), key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            raise ConfigError(f"there is no run under {root.resolve()}; name one: distrl status RUN")
        return newest.parent
    path = Path(name)
    if os.sep in name or _has_record(path):
        return path
    if (found := directory_of_id(name, root)) is not None:
        return found
    if path.exists():  # whose reader says what is missing there
        return path
    raise ConfigError(f"{name} is no run's directory, and no run under {root}/ has this id; distrl jobs lists jobs")


def directory_of_id(run_id: str, root: Path = ROOT) -> Path | None:
    """Return the directory directly under `root` of the run or job with an id; None if there is none."""
    if _has_record(root / run_id):
        return root / run_id
    return next((path.parent for path in records_under(root) if _id_in(path) == run_id), None)


def records_under(root: Path) -> list[Path]:
    """Return run.json and job.json of all directories directly under `root`, which a submitted job alone may have."""
    found = sorted(path for name in RECORDS for path in root.glob(f"*/{name}"))
    return [path for path in found if not path.parent.name.startswith(TEMPORARY)]


def _has_record(folder: Path) -> bool:
    return any((folder / name).exists() for name in RECORDS)


def _id_in(record: Path) -> str | None:
    """Return the id of the run or job with this record; None where it is damaged."""
    try:
        return read_model(_Named, record).run_id
    except ConfigError:
        return None


class _Named(BaseModel):
    run_id: str


def process_mark(pid: int) -> str:
    """Return the boot id and start tick of a process; "" where it is dead or there is no /proc.

    After a restart of the machine, or in the next container, another process may have the same pid.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The program's name, second and in parentheses, may hold anything. The state comes third, the start 22nd.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else f"{boot}:{fields[19]}"


def _is_elsewhere(record: RunRecord) -> bool:
    """Whether the launch was on another host, and its Redis is not that host's alone."""
    elsewhere = record.host not in ("", socket.gethostname())
    return elsewhere and record.redis_url is not None and not record.redis_url.startswith("unix:")


def is_alive(record: RunRecord) -> bool:
    """Whether the process that launched a run is alive on this host."""
    if record.pid == 0:  # which os.kill would take for this process' own group
        return False
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        pass
    return record.process in ("", process_mark(record.pid))
