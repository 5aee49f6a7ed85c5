"""Savers: a network's weights as .npz, and the network with its weights as .onnx."""

from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from distrl.errors import CheckpointError
from distrl.files import open_regular
from distrl.networks.network import Network
from distrl.networks.parts.normalization import RunningMoments
from distrl.networks.policy.bundle import export_whole
from distrl.types import Array


class WeightsSaver:
    """Saves weights by name in ``<name>.npz``.

    Args:
        statistics: Moments of normalised inputs by name, saved with the weights.
        restored: Called after the weights have been restored.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        statistics: Mapping[str, RunningMoments],
        restored: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._network = network
        self._statistics = statistics
        self._restored = restored

    def save(self, directory: Path) -> Path:
        """Write the file and return its path."""
        path = directory / f"{self.name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **self._network.named_weights(), **self._moments())
        return path

    def restore(self, directory: Path) -> None:
        """Restore saved weights.

        Raises:
            CheckpointError: The file is missing or belongs to another network; nothing was changed.
        """
        path = directory / f"{self.name}.npz"
        names, moments = list(self._network.named_weights()), self._moments()
        try:
            with open_regular(path) as file, np.load(file, allow_pickle=False) as arrays:
                if odd := sorted(set(arrays.files) ^ {*names, *moments}):
                    raise CheckpointError(f"{path} belongs to another network: {odd[0]}")
                read = {name: arrays[name] for name in moments}
                if wrong := [name for name in moments if read[name].shape != moments[name].shape]:
                    raise CheckpointError(f"{path} belongs to another network: {wrong[0]}")
                self._network.set_weights([arrays[name] for name in names])
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise CheckpointError(f"{path} cannot be restored: {error}") from error
        for name, statistics in self._statistics.items():
            statistics.restore({key: read[f"statistics/{name}/{key}"] for key in statistics.state()})
        if self._restored is not None:
            self._restored()

    def _moments(self) -> dict[str, Array]:
        return {
            f"statistics/{name}/{key}": array
            for name, statistics in self._statistics.items()
            for key, array in statistics.state().items()
        }


class OnnxSaver:
    """Saves the network with its weights as ``<name>.onnx``, which needs no other code."""

    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self._network = network

    def save(self, directory: Path) -> Path:
        """Write the file and return its path; MissingExtraError without tf2onnx."""
        path = directory / f"{self.name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(export_whole(self._network))
        return path


def savers_of(
    network: Network,
    parent_path_suffix: str,
    statistics: Mapping[str, RunningMoments] | None = None,
    restored: Callable[[], None] | None = None,
) -> list[WeightsSaver | OnnxSaver]:
    """Return both savers of one network copy, under ``<parent>/<network>``; for the arguments see `WeightsSaver`."""
    name = f"{parent_path_suffix}/{network.name}" if parent_path_suffix else network.name
    return [WeightsSaver(name, network, statistics or {}, restored), OnnxSaver(name, network)]
