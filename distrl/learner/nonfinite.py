"""The error of an update that is not finite, and numbers of its batch that may be the cause."""

from collections.abc import Mapping

import numpy as np

from distrl.errors import NonFiniteError
from distrl.learner.batches import LearnerBatch
from distrl.types import Array, Batch, Contributions

_LARGE = 1e3
"""Networks are made for numbers near 1."""
_REMEDIES = {
    "observations": "network.input_embedders_parameters.NAME.normalize, or a step of environment.preprocessing",
    "rewards": "algorithm.reward_scale, or algorithm.reward_normalization",
}


class NonFiniteBatchError(NonFiniteError):
    """An update that was not finite, with its number and its batch, which is saved beside the log."""

    def __init__(self, collected: LearnerBatch, number: int, what: str) -> None:
        super().__init__(f"update {number} is not finite: {what}{large_numbers(collected.batch)}")
        self.batch = collected.batch
        self.number = number


def large_numbers(batch: Batch | Contributions) -> str:
    """Return a clause on observations and rewards that are far from 1, with what makes them smaller; "": none are.

    They are as they came: a network that normalises them may have another problem.
    """
    if not isinstance(batch, Batch):
        return ""
    sizes = {name: _size(array) for name, array in batch.observations.items()}
    parts = [_told("observations", sizes), _told("rewards", {"rewards": _size(batch.rewards)})]
    return "".join(parts)


def _size(given: Array) -> float:
    array = np.asarray(given)  # it may be on the device
    return float(np.abs(array).max()) if array.dtype.kind == "f" and array.size else 0.0


def _told(kind: str, sizes: Mapping[str, float]) -> str:
    name, size = max(sizes.items(), key=lambda entry: entry[1])
    if size <= _LARGE:
        return ""
    what = "rewards reach" if kind == "rewards" else f"observation '{name}' reaches"
    return f"; {what} {size:.1e}, see {_REMEDIES[kind].replace('NAME', name)}"
