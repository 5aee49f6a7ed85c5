"""Runs of a sweep on this machine, and the seam to the other places where runs train."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from distrl.apps.config.configuration import Configuration, load
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.pool import Pool
from distrl.apps.experiments.sweep import Planned
from distrl.errors import DistrlError


class ConcurrentRuns(Protocol):
    """Runs that train at the same time.

    Attributes:
        outlive: Whether they go on after this process.
    """

    outlive: bool

    @property
    def running(self) -> list[str]:
        """Names of the runs that have not been reported as ended."""

    @property
    def has_room(self) -> bool: ...

    def take_up(self, planned: Planned) -> bool:
        """Watch a run that an earlier launch has started and that may still train; return whether there is one."""

    def start(self, planned: Planned) -> bool:
        """Start a run, or go on with it; return whether it goes on.

        Raises:
            DistrlError: It cannot be started.
        """

    def ended(self) -> Iterator[tuple[str, int | None]]:
        """Yield the name and exit code of every run that has ended, once; None where the exit code is not known."""

    def cause(self, planned: Planned, code: int | None) -> str:
        """Return in one line why a run has ended that left no summary."""

    def stop(self) -> None:
        """Make all of them stop after a last checkpoint; those that outlive this process are left alone."""


class RunsHere:
    """Processes of this machine, which share its cores. They end with this process."""

    outlive = False

    def __init__(self, directory: SweepDirectory, pool: Pool, lock: int) -> None:
        self._directory, self._pool, self._lock = directory, pool, lock
        self._log_starts: dict[str, int] = {}

    @property
    def running(self) -> list[str]:
        return self._pool.running

    @property
    def has_room(self) -> bool:
        return self._pool.has_room

    def take_up(self, planned: Planned) -> bool:
        return False

    def start(self, planned: Planned) -> bool:
        """Start the process of a run, which inherits the sweep's lock."""
        goes_on = self._directory.run(planned).is_dir()
        try:
            self._log_starts[planned.name] = self._directory.begin(planned)
            arguments, log = self._directory.train_arguments(planned), self._directory.log(planned)
            self._pool.start(planned.name, arguments, log, [self._lock])
        except OSError as error:
            raise DistrlError(f"run {planned.name} cannot be started: {error}") from error
        return goes_on

    def ended(self) -> Iterator[tuple[str, int]]:
        yield from self._pool.ended()

    def cause(self, planned: Planned, code: int | None) -> str:
        assert code is not None
        return self._directory.cause(planned, code, self._log_starts[planned.name])

    def stop(self) -> None:
        self._pool.stop()


@contextmanager
def runs_here(directory: SweepDirectory, parallel: int, lock: int) -> Iterator[RunsHere]:
    """Yield room for `parallel` runs; stop those that still train when the context is left."""
    with Pool(parallel, Configuration.of(load(file=directory.base).config).end_s) as pool:
        yield RunsHere(directory, pool, lock)
