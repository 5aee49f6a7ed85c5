"""An attendant of an agent's training: it passes on the settings in force, and the metrics of updates."""

from collections.abc import Callable

from distrl.config import RunConfig
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import Trained


class Following(Attendant):
    """Passes both on, on the training's thread."""

    def __init__(self, steered: Callable[[RunConfig], None], updated: Callable[[Trained], None]) -> None:
        self._steered, self._updated = steered, updated

    def steer(self, config: RunConfig) -> None:
        self._steered(config)

    def attend(self, trained: Trained | None) -> None:
        if trained is not None:
            self._updated(trained)
