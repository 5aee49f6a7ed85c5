"""The socket of everything that shows, stores or passes on what happens in a run while it lasts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from distrl.config import RunConfig
from distrl.config.settings import Settings
from distrl.memory_backend.records import Evaluation
from distrl.metrics.snapshot import Snapshot
from distrl.observers.fleet_state import FleetState
from distrl.runs.summary import Summary
from distrl.terminal.console import View


@dataclass(frozen=True)
class ObservedRun:
    """One launch of a run, as its observers see it.

    Attributes:
        run_id: The same for all launches of a run.
        resumed: Whether this launch goes on from a checkpoint of an earlier one.
        view: Shows lines and numbers to the user.
        report: Takes one line for all observers, also from other threads.
    """

    run_id: str
    run_dir: Path
    config: RunConfig
    resumed: bool
    view: View
    report: Callable[[str], None]


class Observer(Protocol):
    """Takes what happens in one launch. Classes leave out what they do not need.

    Files that are made before the first snapshot must be named in `runs/trial.py`, which removes them again if the
    launch is refused.
    """

    writes: ClassVar[str | None] = None
    """The file, as messages name it, of which an OSError costs content alone. None: an OSError ends the run."""

    def __init__(self, run: ObservedRun) -> None:
        """Open the files; a ConfigError or an OSError refuses the launch."""

    @classmethod
    def check(cls, config: RunConfig) -> None:
        """Raise a ConfigError for a configuration that cannot work here, before the run's directory is made."""
        return

    def begin(self, settings: Settings) -> None:
        """Take every setting with its origin, without secrets."""
        return

    def snapshot(self, snapshot: Snapshot) -> None:
        """Take the newest numbers, about once a second: names of `metrics.snapshot.METRICS` and the algorithm's."""
        return

    def event(self, text: str) -> None:
        """Take one printable line on what has happened."""
        return

    def evaluation(self, evaluation: Evaluation) -> None:
        """Take the result of an evaluation; an event with its numbers follows."""
        return

    def roles(self, fleet: FleetState) -> None:
        """Take the newest heartbeats, about twice a second, after the snapshots and evaluations that came with them."""
        return

    def end(self, summary: Summary | None) -> Mapping[str, str] | None:
        """Finish, and close the files.

        Args:
            summary: The end of the launch; it is refused if `accepted` is False. None: it is refused before it begins.

        Returns:
            Name -> what it lacks, of what an outage has left incomplete, for `untracked` in the summary.
        """
        return None
