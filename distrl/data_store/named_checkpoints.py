"""Names of checkpoints: RUN is the newest of a run, RUN@STEP that of so many updates, RUN@best the marked one.

The one place that turns such a name into a checkpoint's directory.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distrl.data_store.checkpoints import best_path, newest_first, step_of
from distrl.errors import CheckpointError, ConfigError

BEST: Literal["best"] = "best"
_MOST_STEPS = 20
"""Most steps that an error lists."""


@dataclass(frozen=True)
class CheckpointName:
    """A run and one of its checkpoints.

    Attributes:
        mark: Number of updates, or "best"; None: the newest.
    """

    run: Path
    mark: int | Literal["best"] | None = None

    def __str__(self) -> str:
        return str(self.run) if self.mark is None else f"{self.run}@{self.mark}"

    @property
    def directory(self) -> Path:
        """The directory of the run's checkpoints."""
        return self.run / "checkpoints"

    def find(self) -> Path:
        """Return the directory of the marked checkpoint, or of the newest, valid or not.

        Raises:
            ConfigError: The run has no such checkpoint; the message has the steps that there are.
            CheckpointError: The mark of the best is damaged.
        """
        if self.mark == BEST:
            return self._best()
        found = newest_first(self.directory)
        if not found:
            raise ConfigError(f"{self.run} has no checkpoint: there is none in {self.directory}")
        if self.mark is None:
            return found[0]
        chosen = [path for path in found if step_of(path) == self.mark]
        if not chosen:
            steps = sorted({step_of(path) for path in found})
            listed = ", ".join(map(str, steps[-_MOST_STEPS:]))
            earlier = f" and {len(steps) - _MOST_STEPS} earlier ones" if len(steps) > _MOST_STEPS else ""
            raise ConfigError(f"{self.run} has no checkpoint of update {self.mark}; there are {listed}{earlier}")
        return chosen[0]

    def _best(self) -> Path:
        path = best_path(self.directory)
        if path is not None:
            return path
        if (self.directory / "best").exists():
            raise CheckpointError(
                f"{self.directory / 'best'} is damaged: it names no checkpoint; choose one by its number of updates"
            )
        raise ConfigError(f"{self.run} has no best checkpoint: none is marked before 100 episodes, or an evaluation")


def parse(text: str) -> CheckpointName:
    """Read a name. A directory whose own name contains "@" is the run itself.

    Raises:
        ConfigError: "@" is followed by something else than a number or "best".
    """
    path = Path(text)
    name, at, mark = path.name.rpartition("@")
    if not at or path.exists():
        return CheckpointName(path)
    run = path.with_name(name) if name else path.parent
    if mark == BEST:
        return CheckpointName(run, BEST)
    if not (mark.isascii() and mark.isdecimal()):
        raise ConfigError(
            f"{text} does not exist; after a run's directory and @ comes a checkpoint's number of updates, or best"
        )
    return CheckpointName(run, int(mark))
