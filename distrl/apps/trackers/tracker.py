"""The three methods of a tracker, and what they get."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from distrl.runs.summary import RunEnd, end_of


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker sees it.

    Attributes:
        run_id: The same for all launches of a run.
        run_dir: Absolute path of its directory.
        config: The whole configuration as nested mappings of plain data, with secrets masked.
        resumed: Whether this launch goes on from a checkpoint of an earlier one.
    """

    run_id: str
    run_dir: Path
    config: Mapping[str, Any]
    resumed: bool


@dataclass(frozen=True)
class Ending:
    """The end of a launch.

    Attributes:
        exit_code: Exit code of `distrl train`; 0 for a run that ended as configured or as requested.
        stop_reason: As in summary.json.
        error: The cause of a failure, in one line.
    """

    exit_code: int
    stop_reason: str
    error: str | None = None

    @property
    def end(self) -> RunEnd:
        """How the launch has ended: solved, ended, stopped, interrupted or failed."""
        return end_of(self.exit_code, self.stop_reason, self.error)


class Tracker(Protocol):
    """Gets the rows of metrics.csv while a run trains.

    distrl makes the instance and calls its methods in a process of its own, one call at a time. A tracker that raises
    is not called again; the training goes on. Output goes to logs/trackers.log in the run's directory.
    """

    def begin(self, run: TrackedRun) -> str | None:
        """Prepare for the rows of one launch. Text that it returns is printed, such as an address."""

    def record(self, row: Mapping[str, float], step: int) -> None:
        """Record one row.

        Args:
            row: Columns of metrics.csv that have a number. `updates` is greater in each row than in the one before; a
                resumed launch begins with the updates after its checkpoint.
            step: Environment steps.
        """

    def end(self, ending: Ending) -> None:
        """Finish. It is called once, also where the training has failed or was killed."""
