"""Observation normalisation: a layer of the network, with statistics that the learner keeps.

Observations travel raw. The learner adds the valid rows that it consumes to running moments and writes mean and
variance into the network, where they are weights like others that are not trained: published with a version, frozen in
it, part of checkpoint, policy and export. Actor and learner cannot disagree, and replay mixes no scales.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from distrl.types import Array

EPSILON = 1e-8
CLIP = 10.0
"""Normalised values are cut to ± this, so that a rare observation cannot blow an update up."""


class ObservationNormalization(keras.layers.Layer):  # type: ignore[misc]
    """``clip((x - mean) / sqrt(variance + 1e-8), -10, 10)``, elementwise; mean 0 and variance 1 before any statistics.

    Always in float32: 16 bits would lose what is left of a large observation once its mean is taken away.
    """

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name, dtype="float32")

    def build(self, shape: Any) -> None:
        """Makes mean and variance, float32, of one observation's shape."""
        self.mean = self.add_weight(shape=shape[1:], initializer="zeros", trainable=False, name="mean")
        self.variance = self.add_weight(shape=shape[1:], initializer="ones", trainable=False, name="variance")

    def call(self, observation: Any) -> Any:
        """observation: floating [batch, ...] -> the same shape."""
        scaled = (observation - self.mean) / ops.sqrt(self.variance + EPSILON)
        return ops.clip(scaled, -CLIP, CLIP)


class RunningMoments:
    """Count, mean and sum of squared deviations of all rows seen, in float64 (Chan, Golub and LeVeque 1983, eq. 2.1).

    The order of rows and how they were batched changes the result by rounding alone.
    """

    _PART_ROWS = 256
    """Images in float64 take eight times their room, so that many rows are added one part after the other."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0.0
        self.mean = np.zeros(shape, np.float64)
        self.squares = np.zeros(shape, np.float64)

    def add(self, rows: Array) -> None:
        """Adds rows [K, ...]; none is fine."""
        for start in range(0, len(rows), self._PART_ROWS):
            part = np.asarray(rows[start : start + self._PART_ROWS], np.float64)
            mean = part.mean(axis=0)
            self.merge(float(len(part)), mean, np.square(part - mean).sum(axis=0))

    def merge(self, count: float, mean: Array, squares: Array) -> None:
        """Adds rows by their own moments: how many, their mean, their sum of squared deviations from it."""
        if count == 0.0:
            return
        total = self.count + count
        difference = mean - self.mean
        self.mean = self.mean + difference * (count / total)
        self.squares = self.squares + squares + np.square(difference) * (self.count * count / total)
        self.count = total

    @property
    def variance(self) -> Array:
        """Of the population; 1 before two rows have been seen."""
        return self.squares / self.count if self.count > 1.0 else np.ones_like(self.squares)

    def state(self) -> dict[str, Array]:
        """Copies of the three, for a checkpoint."""
        return {"count": np.array(self.count), "mean": self.mean.copy(), "squares": self.squares.copy()}

    def restore(self, state: dict[str, Array]) -> None:
        """Sets everything to what `state` returned."""
        self.count = float(state["count"])
        self.mean, self.squares = state["mean"].copy(), state["squares"].copy()
