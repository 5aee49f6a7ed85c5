"""The terminal, or the view that a caller of `distrl.train` has given."""

from dataclasses import asdict

from distrl.config.settings import Settings
from distrl.memory_backend.records import rates_while_paused
from distrl.metrics.snapshot import Snapshot
from distrl.observers.fleet_state import FleetState
from distrl.observers.observer import ObservedRun, Observer


class Terminal(Observer):
    """Shows numbers, roles and events. What a view raises, such as a callback of the user, ends the run."""

    def __init__(self, run: ObservedRun) -> None:
        self._view = run.view
        self._config = run.config
        self._latest: Snapshot = {}

    def begin(self, settings: Settings) -> None:
        """Show the settings if `tensorboard.labels` ask for that."""
        if self._config.tensorboard.has("print_configuration"):
            for path, setting in settings.items():
                self._view.event(f"{path}: {setting.text}")

    def snapshot(self, snapshot: Snapshot) -> None:
        self._latest = snapshot

    def event(self, text: str) -> None:
        self._view.event(text)

    def roles(self, fleet: FleetState) -> None:
        """Show the newest snapshot, which of a paused run has no rates, beside the roles."""
        shown = self._latest and {**self._latest, **rates_while_paused(fleet.roles)}
        actors = self._config.actors.model_copy(update={"count": fleet.actors})
        config = self._config.model_copy(update={"actors": actors})
        self._view.update(shown, [asdict(role) for role in fleet.roles], config)
