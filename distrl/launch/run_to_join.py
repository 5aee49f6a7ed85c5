"""The run that actors of this host join: named by its Redis and id, or by its directory on a disk that hosts share."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from distrl.errors import EXIT_OK, ConfigError, MissingRunError
from distrl.roles.trust import KEY_FILE, Trust, key_in, key_may_change
from distrl.runs.directories import RunRecord
from distrl.runs.summary import RECLAIMED, Summary

KEYS_REMOVED = "its keys are removed"
"""Stop reason that an actors' host gives a launch which has ended before it could read why."""


class RunToJoin(ABC):
    """Where actors find a run, and its next launch, which only the directory of a run names.

    Attributes:
        name: Name of the run for the user.
    """

    name: str

    @property
    def may_change(self) -> bool:
        """Whether a key that is missing or wrong may be replaced while this process waits."""
        return True

    @abstractmethod
    def address(self) -> tuple[str, str]:
        """Return the URL of the run's Redis and the run's id.

        Raises:
            MissingRunError: There is no such run yet, or its newest launch has ended.
            ConfigError: Other hosts cannot join it.
        """

    @abstractmethod
    def trust(self) -> Trust:
        """Return the trust in its description; called once the run is there.

        Raises:
            RunKeyError: The key cannot be read, or is none.
        """

    def moved(self) -> bool:
        """Return whether the run was launched again since the last `address`, maybe with another Redis."""
        return False

    def ended(self) -> str | None:
        """Return the stop reason of a run that has reached its end; None if it goes on, or cannot be known here."""
        return None

    def launch_ended(self) -> str | None:
        """Return as `ended`, and also the stop reason of a launch whose host wanted its resources back."""
        return None

    def leave_launch(self, stop: str) -> bool:
        """Return whether the run goes on with another launch after the stop of this one, which is joined no more."""
        return False


class NamedRun(RunToJoin):
    """A run by the URL of its Redis and its id; `given` reads key and allowed code, which a new launch may change."""

    def __init__(self, redis_url: str, run_id: str, given: Callable[[], Trust]) -> None:
        self.name, self._redis_url, self._given = run_id, redis_url, given

    @property
    def may_change(self) -> bool:
        return key_may_change()

    def address(self) -> tuple[str, str]:
        return self._redis_url, self.name

    def trust(self) -> Trust:
        return self._given()


class RunOfDirectory(RunToJoin):
    """A run by its directory: run.json has its Redis, run.key its key, summary.json its end."""

    def __init__(self, run_dir: Path, allowed: frozenset[str] = frozenset()) -> None:
        self.name = str(run_dir)
        self._run_dir, self._allowed = run_dir, allowed
        self._launch: str | None = None  # that `address` has named
        self._left: str | None = None

    def address(self) -> tuple[str, str]:
        record = self._record()
        if record is None:
            raise MissingRunError(f"there is no run in {self._run_dir} yet")
        if record.redis_url is None:
            raise ConfigError(f"the run in {self._run_dir} is one process without Redis, which no actor can join")
        if record.redis_url.startswith("unix:") and record.host not in ("", socket.gethostname()):
            raise ConfigError(
                f"the Redis of the run in {self._run_dir} is on host {record.host} alone; launch the run with --set "
                "memory.listen=auto"
            )
        if record.launch == self._left:
            raise MissingRunError(f"the launch in {self._run_dir} has ended")
        self._launch = record.launch
        return record.redis_url, record.run_id

    def trust(self) -> Trust:
        return Trust(key_in(str(self._run_dir / KEY_FILE), KEY_FILE), self._allowed)

    def moved(self) -> bool:
        record = self._record()
        return record is not None and record.launch != self._launch

    def ended(self) -> str | None:
        stop = self.launch_ended()
        return None if stop == RECLAIMED else stop

    def launch_ended(self) -> str | None:
        record, path = self._record(), self._run_dir / "summary.json"
        if record is None or not path.exists():
            return None
        summary = Summary.read(path)
        in_order = summary.exit_code == EXIT_OK or summary.stop_reason == RECLAIMED
        return summary.stop_reason if in_order and summary.launch == record.launch else None

    def leave_launch(self, stop: str) -> bool:
        self._left = self._launch
        return stop in (RECLAIMED, KEYS_REMOVED)  # the summary will say whether the run has ended

    def _record(self) -> RunRecord | None:
        path = self._run_dir / "run.json"
        return RunRecord.read(path) if path.exists() else None
