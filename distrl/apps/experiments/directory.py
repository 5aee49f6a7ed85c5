"""The directory of a sweep: its runs are ordinary run directories, and one file lists them.

base.yaml        the configuration that all runs share
sweep.yaml       what varies; the budget there may be changed between two launches
sweep.json       the list of runs: settings, seed, state, outcome; written anew whenever one of them changes
0001/ 0002/ …    a run each
logs/0001.log    its output
"""

import fcntl
import json
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import yaml

from distrl.apps.experiments.sweep import Planned, Varying
from distrl.config.document import parse_mapping
from distrl.config.load import LoadedConfig, dump_given, validated
from distrl.data_store.atomic import TEMPORARY, put_file
from distrl.data_store.saved_elsewhere import newest_resumable
from distrl.errors import ConfigError, DistrlError, printable
from distrl.files import read_end, read_given
from distrl.metrics.phrases import return_words
from distrl.metrics.snapshot import Value
from distrl.runs.last_row import last_row
from distrl.runs.summary import Summary
from distrl.runs.sweeps import read_index

FORMAT = 1
LOG_TAIL_BYTES = 65_536
PATIENCE_S = 30.0
"""Time in which the runs of a sweep that was killed end themselves."""
_BEGUN = {"sweep.lock", "base.yaml", "logs"}
"""Files of a sweep whose creation was interrupted: the file that says what varies comes last."""
State = Literal["waiting", "running", "done", "failed", "interrupted"]


@dataclass(frozen=True)
class RunResult:
    """A run of a sweep, as its directory shows it.

    Attributes:
        state: interrupted: it has not ended in order, and goes on with the next launch.
        mean_return: That of the newest evaluation, or else of the last 100 episodes.
        error: In one line, of a failed run; of an interrupted one that ended in order, its stop reason.
        is_evaluated: The mean return is that of an evaluation.
    """

    state: State = "waiting"
    env_steps: int = 0
    wall_s: float = 0.0
    mean_return: float | None = None
    error: str | None = None
    is_evaluated: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state in ("done", "failed")


class SweepRun(NamedTuple):
    """A run of a sweep, and what has become of it."""

    planned: Planned
    outcome: RunResult


Described = TypeVar("Described", bound=Varying)


class SweepDirectory:
    """The files of a sweep, or of a search.

    Args:
        file: Name of the file that says what varies.
    """

    def __init__(self, path: Path, file: str = "sweep.yaml") -> None:
        self.path = path
        self.file = path / file

    @property
    def exists(self) -> bool:
        return self.file.is_file()

    @property
    def base(self) -> Path:
        """The configuration that all runs share."""
        return self.path / "base.yaml"

    def run(self, planned: Planned) -> Path:
        """Return the directory of a run."""
        return self.path / planned.name

    def log(self, planned: Planned) -> Path:
        """Return the file with a run's output."""
        return self.path / "logs" / f"{planned.name}.log"

    def create(self, described: Varying, base: LoadedConfig) -> None:
        """Write the files of a new sweep or search.

        Raises:
            ConfigError: The directory holds something else already, or cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            others = [path for path in self.path.iterdir() if path.name not in _BEGUN]
            if any(not path.name.startswith(TEMPORARY) for path in others):
                raise ConfigError(f"{self.path} is not empty; choose another --dir")
            (self.path / "logs").mkdir(exist_ok=True)
            put_file(self.base, dump_given(base).encode(), private=True)
            tree = described.model_dump(mode="json", exclude_defaults=True)
            put_file(self.file, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode())
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be used: {error.strerror}; choose another --dir") from error

    @contextmanager
    def locked(self, say: Callable[[str], None]) -> Iterator[int]:
        """Hold the lock of the sweep, which its runs inherit; yield its file descriptor.

        Raises:
            ConfigError: Another process works on the sweep, or the directory cannot be used.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "sweep.lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be used: {error.strerror}; choose another --dir") from error
        try:
            deadline, told = time.monotonic() + PATIENCE_S, False
            while not _taken(lock):
                if time.monotonic() > deadline:
                    raise ConfigError(f"another process works on the sweep in {self.path}; wait for it, or stop it")
                if not told:
                    say("waiting for the runs of an earlier launch to end …")
                told = True
                time.sleep(0.2)
            try:
                yield lock
            finally:
                self.tell_saved_elsewhere(say)
        finally:
            os.close(lock)

    def tell_saved_elsewhere(self, say: Callable[[str], None]) -> None:
        """Name the folders with the newest checkpoints of runs whose directories did not take them."""
        for run_dir in sorted(path for path in self.path.glob("[0-9]*") if path.is_dir()):
            newest = newest_resumable(run_dir)
            if newest not in (None, run_dir):
                say(
                    f"run {run_dir.name}: its newest checkpoint is in {newest}; it goes on from there after: "
                    f"cp -r {shlex.quote(str(newest))}/checkpoints {shlex.quote(str(run_dir))}"
                )

    def outcome(self, planned: Planned) -> RunResult:
        """Return the outcome of a run; waiting before its first launch."""
        if not self.run(planned).is_dir():
            return RunResult()
        try:
            summary = Summary.read(self.run(planned) / "summary.json")
        except (ConfigError, FileNotFoundError):
            return RunResult("interrupted")
        evaluated = summary.evaluation_mean_return
        mean = summary.mean_return_100 if evaluated is None else evaluated
        wall_s = summary.resumed_wall_s + summary.wall_s
        end = summary.end
        state: State = end if end in ("failed", "interrupted") else "done"
        why = {"failed": summary.error, "interrupted": summary.stop_reason}.get(state)
        return RunResult(state, summary.env_steps, wall_s, mean, why, is_evaluated=evaluated is not None)

    def train_arguments(self, planned: Planned) -> list[str]:
        """Return the arguments of `distrl` that train a run, or go on with it."""
        # In order is in order, whatever the exit code that a cluster wants after SIGTERM.
        sets = [argument for one in (*planned.sets, "launch.sigterm_exit_code=0") for argument in ("--set", one)]
        where = ["--seed", str(planned.seed), "--run-dir", str(self.run(planned)), "--resume", "auto", "--dated"]
        return ["train", str(self.base), *where, *sets]

    def begin(self, planned: Planned) -> int:
        """Remove the summary of an earlier launch of a run, and return the length of its output so far."""
        (self.run(planned) / "summary.json").unlink(missing_ok=True)
        return self.log_bytes(planned)

    def log_bytes(self, planned: Planned) -> int:
        """Return the length of a run's output so far."""
        return self.log(planned).stat().st_size if self.log(planned).exists() else 0

    def cause(self, planned: Planned, code: int, start: int) -> str:
        """Return why a run ended that left no summary: the last error in its output, or how its process ended.

        Args:
            code: The exit code of its process; negative: a signal.
            start: Length of its output before this launch.
        """
        if code < 0:
            return f"killed by signal {-code}"
        lines = read_end(self.log(planned), LOG_TAIL_BYTES, start).decode(errors="replace").splitlines()
        errors = [printable(line.partition("error: ")[2]) for line in lines if "error: " in line]
        return errors[-1] if errors else f"exit code {code}; its output is in {self.log(planned)}"

    def row(self, planned: Planned) -> Mapping[str, Value]:
        """Return the newest row of a run's metrics.csv; empty before the first, and while the file is being written."""
        try:
            return last_row(self.run(planned) / "metrics.csv")
        except (ConfigError, OSError):
            return {}

    def progress(self, planned: Planned) -> str:
        """Return 'at 12,300 steps, mean return 45.1' of a run that trains; 'beginning' before its first numbers."""
        row = self.row(planned)
        steps, mean = row.get("env_steps"), row.get("mean_return_100")
        if not isinstance(steps, int | float):
            return "beginning"
        told = f", mean return {return_words(mean)}" if isinstance(mean, int | float) else ""
        return f"at {steps:,.0f} steps{told}"

    def write_index(self, runs: Iterable[SweepRun], minutes: float, planned: int | None = None) -> None:
        """Write sweep.json.

        Args:
            minutes: Time that all launches have taken.
            planned: Number of runs that there are to be; None where only time or steps limit them.

        Raises:
            DistrlError: It cannot be written, as on a full disk.
        """
        entries = [
            {
                "run": planned.name,
                "seed": planned.seed,
                "settings": dict(planned.values),
                "state": outcome.state,
                "mean_return": outcome.mean_return,
                "env_steps": outcome.env_steps,
                "wall_s": round(outcome.wall_s, 1),
                "error": outcome.error,
            }
            for planned, outcome in runs
        ]
        lines = ",\n  ".join(json.dumps(entry) for entry in entries)
        facts = f'"format": {FORMAT}, "minutes": {minutes:.3f}, "planned": {json.dumps(planned)}'
        text = f'{{{facts}, "runs": [\n  {lines}\n]}}\n'
        try:
            put_file(self.path / "sweep.json", text.encode())
        except OSError as error:
            raise DistrlError(
                f"{self.path}/sweep.json cannot be written: {error.strerror}; make room and go on with: "
                f"distrl sweep {self.path}"
            ) from error

    def index(self, planned: Iterable[Planned] = ()) -> tuple[list[SweepRun], float]:
        """Return the runs that earlier launches have begun, as they are now, and the minutes of all launches.

        A run that failed before it left a summary is still a failed one.

        Args:
            planned: The runs of the sweep in order, of which those with a directory have begun if sweep.json is lost.

        Raises:
            ConfigError: sweep.json is damaged.
        """
        try:
            tree = read_index(self.path)
        except FileNotFoundError:
            numbers = [int(path.name) for path in self.path.glob("[0-9]*") if path.name.isdecimal() and path.is_dir()]
            begun = islice(planned, max(numbers, default=0))
            return [SweepRun(each, self.outcome(each)) for each in begun if self.run(each).is_dir()], 0.0
        runs = []
        for entry in tree.runs:
            each = Planned(int(entry.run), entry.settings, entry.seed)
            outcome = self.outcome(each)
            if entry.state == "failed" and not outcome.has_ended:
                outcome = RunResult("failed", error=entry.error)
            runs.append(SweepRun(each, outcome))
        return runs, tree.minutes


_SHARED = ("preset", "config", "set")


def read_file(path: Path, kind: type[Described]) -> tuple[Described, dict[str, Any]]:
    """Read the file of a sweep or search: what varies, and `preset`, `config` and `set`, which all runs share.

    Raises:
        ConfigError: One line with the problem and the value.
    """
    try:
        text = read_given(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"file {path} is not UTF-8 text") from error
    except FileNotFoundError as error:
        what = kind.__name__.lower()
        raise ConfigError(f"there is no {path}; name the file of a {what}, or a {what}'s directory") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    tree = parse_mapping(text, f"file {path}")
    for name in ("preset", "config"):
        if not isinstance(tree.get(name, "x"), str) or tree.get(name) == "":
            raise ConfigError(f"{name} (from file {path}) must be a name, not {tree[name]!r}")
    shared = {name: tree.pop(name) for name in _SHARED if name in tree}
    origins = {str(key): f"file {path}" for key in tree}
    return validated(kind, tree, origins), shared


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
