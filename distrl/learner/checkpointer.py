"""When the learner saves, and what a checkpoint holds: every copy of every network, the optimizer, `LearnerState`."""

import time
from collections.abc import Mapping
from pathlib import Path

from distrl.algorithms.algorithm import Networks
from distrl.config.run import CheckpointConfig
from distrl.data_store.checkpoints import LoadedCheckpoint, load_newest, save
from distrl.errors import CheckpointError
from distrl.learner.replay_set_up import remove_older, save_replay
from distrl.learner.state import LearnerState
from distrl.memory_backend.replay import Replay
from distrl.types import Array

RETRY_S = 10.0
"""After a disk has refused."""


class Checkpointer:
    """Saves to `directory` by the clock (`every_s`), by updates (`every_updates`), or by whichever comes first.

    Args:
        replay: Saved as well, beside the newest checkpoint; None: there is none, or it is not to outlive the learner.
        by_evaluation: Which checkpoint is the best is decided by evaluations.
    """

    def __init__(
        self,
        directory: Path,
        config: CheckpointConfig,
        networks: Networks,
        state: LearnerState,
        *,
        replay: Replay | None = None,
        by_evaluation: bool = False,
    ) -> None:
        self._replay = replay
        self._by_evaluation = by_evaluation
        self._directory = directory
        self._config = config
        self._networks = networks
        self._state = state
        self._saved_at = time.monotonic()
        self._saved_updates = state.updates
        self._retry_at = 0.0

    @property
    def due(self) -> bool:
        """A save is due: time or updates have passed, and something was learned since."""
        since = self._state.updates - self._saved_updates
        if since == 0 or time.monotonic() < self._retry_at:
            return False
        by_updates = self._config.every_updates is not None and since >= self._config.every_updates
        by_time = self._config.every_s is not None and time.monotonic() - self._saved_at >= self._config.every_s
        return by_updates or by_time

    @property
    def behind(self) -> bool:
        """There are updates that no checkpoint holds."""
        return self._state.updates > self._saved_updates or self._state.updates == 0

    def save(self) -> Path:
        """Writes one checkpoint; it is the best if no saved one had as high a mean return, or best evaluation.

        Raises:
            OSError: The disk is full or refuses. Earlier checkpoints are as they were; none is due for `RETRY_S`.
        """
        state = self._state
        saved = state.best_saved_return, state.best_saved_evaluation
        try:
            path = self._write()
        except OSError:
            state.best_saved_return, state.best_saved_evaluation = saved
            self._retry_at = time.monotonic() + RETRY_S
            raise
        self._saved_at, self._saved_updates = time.monotonic(), state.updates
        return path

    def _write(self) -> Path:
        arrays = {
            f"{name}.{group}": values
            for name, network in self._networks.items()
            for group, values in network.state_arrays().items()
        }
        if self._replay is not None:
            save_replay(self._directory, self._replay, self._state)
        best = self._state.take_best(by_evaluation=self._by_evaluation)
        path = save(
            self._directory, self._state.updates, arrays, self._state.to_meta(), keep=self._config.keep, best=best
        )
        if self._replay is not None:
            remove_older(self._directory, self._state.updates)
        return path


def restore(directory: Path, networks: Networks) -> tuple[LearnerState, LoadedCheckpoint] | None:
    """Sets `networks` to the newest valid checkpoint; None if the directory holds none at all.

    Raises:
        CheckpointError: There are checkpoints and none is valid, or it belongs to other networks.
    """
    loaded = load_newest(directory)
    if loaded is None:
        return None
    groups = _by_network(loaded.arrays)
    if odd := sorted(groups.keys() - networks.keys()):
        raise CheckpointError(f"{loaded.path} holds network {odd[0]}, configured are {', '.join(networks)}")
    for name, network in networks.items():
        try:
            network.restore(groups.get(name, {}))
        except CheckpointError as error:
            raise CheckpointError(f"{loaded.path} does not fit the configuration: {error}") from error
    return LearnerState.from_meta(loaded.meta), loaded


def _by_network(arrays: Mapping[str, Mapping[str, Array]]) -> dict[str, dict[str, Mapping[str, Array]]]:
    """{"main.online": values} -> {"main": {"online": values}}."""
    networks: dict[str, dict[str, Mapping[str, Array]]] = {}
    for key, values in arrays.items():
        name, _, group = key.partition(".")
        networks.setdefault(name, {})[group] = values
    return networks
