"""Callbacks that receive every snapshot of a run, beside the terminal's view."""

from collections.abc import Callable, Sequence

from distrl.config import RunConfig
from distrl.metrics.phrases import RoleRow
from distrl.metrics.snapshot import Snapshot
from distrl.runs.summary import Summary
from distrl.terminal.console import View

Listener = Callable[[Snapshot], object]
"""Takes a snapshot, a mapping of names in `metrics.snapshot.METRICS` to values; its return value is ignored."""


class ListenedView:
    """A view, and listeners that get each snapshot once. What a listener raises ends the run, and is raised on.

    Snapshots that follow each other within half a second may be skipped; the last one is not.
    """

    def __init__(self, view: View, listeners: Sequence[Listener]) -> None:
        self._view = view
        self._listeners = listeners
        self._last: Snapshot = {}

    def update(self, snapshot: Snapshot, roles: Sequence[RoleRow], config: RunConfig) -> None:
        """Update the view, then call the listeners if the snapshot is new."""
        self._view.update(snapshot, roles, config)
        if snapshot and snapshot is not self._last:
            self._last = snapshot
            for listener in self._listeners:
                listener(snapshot)

    def event(self, text: str) -> None:
        self._view.event(text)

    def close(self, summary: Summary) -> None:
        self._view.close(summary)

    def stop(self) -> None:
        self._view.stop()
