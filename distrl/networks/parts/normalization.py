"""Normalisation by running statistics that the learner keeps.

Observations travel raw. The learner adds the valid rows that it consumes to running moments and writes mean and
variance into the network, as weights that are not trained: published with a version, frozen in it, part of checkpoint,
policy and export. Actor and learner cannot disagree, and replay mixes no scales.

Rewards travel raw as well. Actors send moments of their discounted return with every unroll; the learner merges them
and normalises the rewards of each update by the moments from before that update.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from distrl.config.algorithms import RewardNormalizationParameters
from distrl.errors import CheckpointError
from distrl.networks.framework.backend import compiled_write
from distrl.networks.policy.description import RewardStatistics
from distrl.networks.weights import to_numpy
from distrl.types import Array, ArraySpec, Batch

EPSILON = 1e-8
CLIP = 10.0
"""Bound of normalised values, so that a rare observation cannot blow an update up."""


class ObservationNormalization(keras.layers.Layer):  # type: ignore[misc]
    """``clip((x - mean) / sqrt(variance + 1e-8), -10, 10)``, elementwise; mean 0 and variance 1 before any statistics.

    Always in float32: 16 bits would lose the small rest of a large observation less its mean.
    """

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name, dtype="float32")

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=shape[1:], initializer="zeros", trainable=False, name="mean")
        self.variance = self.add_weight(shape=shape[1:], initializer="ones", trainable=False, name="variance")

    def call(self, observation: Any) -> Any:
        """observation: floating [batch, ...] -> the same shape."""
        scaled = (observation - self.mean) / ops.sqrt(self.variance + EPSILON)
        return ops.clip(scaled, -CLIP, CLIP)


class RunningMoments:
    """Count, mean and sum of squared deviations of all rows seen, in float64 (Chan, Golub and LeVeque 1983, eq. 2.1).

    The order of rows and how they were batched changes the result only by rounding.
    """

    _PART_ROWS = 256
    """Rows added at once; images in float64 take eight times their memory."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0.0
        self.mean = np.zeros(shape, np.float64)
        self.squares = np.zeros(shape, np.float64)

    def add(self, rows: Array) -> None:
        """Add rows [K, ...]; K may be 0."""
        for start in range(0, len(rows), self._PART_ROWS):
            part = np.asarray(rows[start : start + self._PART_ROWS], np.float64)
            mean = part.mean(axis=0)
            self.merge(float(len(part)), mean, np.square(part - mean).sum(axis=0))

    def merge(self, count: float, mean: Array, squares: Array) -> None:
        """Add rows by their number, their mean and their sum of squared deviations from it."""
        if count == 0.0:
            return
        total = self.count + count
        difference = mean - self.mean
        self.mean = self.mean + difference * (count / total)
        self.squares = self.squares + squares + np.square(difference) * (self.count * count / total)
        self.count = total

    @property
    def variance(self) -> Array:
        """Variance of the population; 1 before two rows have been seen."""
        return self.squares / self.count if self.count > 1.0 else np.ones_like(self.squares)

    def state(self) -> dict[str, Array]:
        """Return copies of the three, for a checkpoint."""
        return {"count": np.array(self.count), "mean": self.mean.copy(), "squares": self.squares.copy()}

    def restore(self, state: dict[str, Array]) -> None:
        self.count = float(state["count"])
        self.mean, self.squares = state["mean"].copy(), state["squares"].copy()


class RewardNormalization:
    """Normalises rewards by the statistics in force, which change between updates only.

    discounted_return: ``clip(r / deviation)``, the deviation being that of the discounted return (Engstrom et al. 2020,
    arXiv:2005.12729, section 3; VecNormalize of OpenAI's baselines). Signs and ratios of rewards stay.
    reward: ``clip((r - mean) / deviation)``, both of the rewards themselves: Coach's filter.

    Attributes:
        moments: Statistics of everything observed.
        mean: Subtracted from rewards; 0 for discounted_return, and before any statistics.
        deviation: Divisor; 1 before two steps have been seen.
    """

    _MEAN, _DEVIATION = "reward_normalization/mean", "reward_normalization/deviation"

    def __init__(self, parameters: RewardNormalizationParameters) -> None:
        self.parameters = parameters
        self.moments = RunningMoments(())
        self._settle()

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with rewards float32 [T, N] normalised, 0 where not valid, and without moments."""
        rewards = (np.asarray(batch.rewards, np.float64) - self.mean) / self.deviation
        if self.parameters.clip is not None:
            rewards = np.clip(rewards, -self.parameters.clip, self.parameters.clip)
        rewards = np.where(batch.valid, rewards, 0.0).astype(np.float32)
        return batch._replace(rewards=rewards, reward_moments={})

    def observe(self, moments: Mapping[str, Array]) -> None:
        """Merge the moments of actors: "count", "mean", "squares", each a number or one per unroll."""
        columns = (np.atleast_1d(moments[name]) for name in ("count", "mean", "squares"))
        for count, mean, squares in zip(*columns, strict=True):
            self.moments.merge(float(count), mean, squares)
        self._settle()

    def published(self) -> dict[str, Array]:
        """Return the statistics in force, for gradient actors."""
        return {self._MEAN: np.array(self.mean), self._DEVIATION: np.array(self.deviation)}

    def take(self, arrays: Mapping[str, Array]) -> None:
        """Put statistics in force that another process `published`."""
        self.mean, self.deviation = float(arrays[self._MEAN]), float(arrays[self._DEVIATION])

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the moments, and put them in force."""
        self.moments.restore(state)
        self._settle()

    def described(self) -> RewardStatistics:
        """Return the statistics in force, for the description of a policy."""
        parameters = self.parameters
        return RewardStatistics(parameters.kind, parameters.clip, self.mean, self.deviation, int(self.moments.count))

    def _settle(self) -> None:
        known = self.moments.count > 1.0
        self.mean = float(self.moments.mean) if known and self.parameters.kind == "reward" else 0.0
        # While all rewards are equal there is no scale to divide by.
        varied = known and self.moments.variance > 0.0
        self.deviation = float(np.sqrt(self.moments.variance + EPSILON)) if varied else 1.0


StateArrays = dict[str, dict[str, Array]]
"""Group -> name -> array, for a checkpoint."""


class Statistics:
    """Running moments of inputs and rewards, and the layers of all copies of one network that normalise by them.

    Frozen layers keep their statistics; `moments` then holds those from which the training began.

    Attributes:
        moments: Input name -> statistics of the inputs that the network normalises.
        rewards: Normalisation of rewards; None: rewards are not normalised.

    Args:
        layers: (input name, layer) of every copy, one copy after the other.
        observations: Specs of the observations by name; categories are normalised as one-hot rows.
    """

    def __init__(
        self,
        layers: Sequence[tuple[str, ObservationNormalization]],
        observations: Mapping[str, ArraySpec],
        reward_normalization: RewardNormalizationParameters | None,
    ) -> None:
        self._layers, self._observations = dict(layers), observations
        self.moments = {name: RunningMoments(layer.mean.shape) for name, layer in self._layers.items()}
        self.rewards = None if reward_normalization is None else RewardNormalization(reward_normalization)
        moving = {name: [layer for key, layer in layers if key == name and layer.trainable] for name in self.moments}
        self._writes = {
            name: compiled_write([[layer.mean for layer in equal], [layer.variance for layer in equal]])
            for name, equal in moving.items()
            if equal
        }

    def with_normal_rewards(self, batch: Batch) -> Batch:
        """Return the batch with rewards normalised as configured."""
        return batch if self.rewards is None else self.rewards(batch)

    def adopt(self, rows: Mapping[str, float]) -> None:
        """Continue from the mean and variance in the layers, as statistics of that many rows: input name -> rows."""
        for name, count in rows.items():
            layer = self._layers[name]
            mean, variance = (to_numpy(weight).astype(np.float64) for weight in (layer.mean, layer.variance))
            self.moments[name].restore({"count": np.array(count), "mean": mean, "squares": variance * count})

    def observe(self, batch: Batch) -> None:
        """Add a batch's valid rows and its reward moments; write the new statistics into every copy."""
        for name in self._writes:
            rows = np.asarray(batch.observations[name])[:-1]  # the last row is the first of the next unroll
            self.moments[name].add(self._observations[name].expand(rows[batch.valid]))
            self._write(name)
        self.observe_rewards(batch.reward_moments)

    def observe_moments(self, moments: Mapping[str, Mapping[str, Array]]) -> None:
        """Add rows by input name as count, mean and squares, which gradient actors send."""
        for name, of_rows in moments.items():
            self.moments[name].merge(float(of_rows["count"]), of_rows["mean"], of_rows["squares"])
            self._write(name)

    def observe_rewards(self, moments: Mapping[str, Array]) -> None:
        """Merge the reward moments of actors, if rewards are normalised."""
        if self.rewards is not None:
            self.rewards.observe(moments)

    def state_arrays(self) -> StateArrays:
        """Return moments by group: "statistics" of inputs, and "rewards" if they are normalised."""
        inputs = {
            f"{name}/{key}": array for name, moments in self.moments.items() for key, array in moments.state().items()
        }
        rewards = {} if self.rewards is None else {"rewards": self.rewards.moments.state()}
        return {"statistics": inputs, **rewards}

    def check(self, network: str, state: Mapping[str, Mapping[str, Array]]) -> None:
        """Raise CheckpointError unless `restore` accepts the groups of `state_arrays` in `state`."""
        for group, expected in self.state_arrays().items():
            where, given = f"{network}/{group}", state[group]
            if odd := sorted(expected.keys() ^ given.keys()):
                raise CheckpointError(f"{where}: {odd[0]}: the checkpoint normalises other inputs")
            for name, array in given.items():
                if array.shape != expected[name].shape or not np.isfinite(array).all():
                    raise CheckpointError(f"{where}: {name} must be finite and of shape {expected[name].shape}")

    def restore(self, state: Mapping[str, Mapping[str, Array]]) -> None:
        """Restore the moments that `state_arrays` returned, and write them into every copy."""
        for name, moments in self.moments.items():
            moments.restore({key: state["statistics"][f"{name}/{key}"] for key in moments.state()})
            self._write(name)
        if self.rewards is not None:
            self.rewards.restore(dict(state["rewards"]))

    def _write(self, name: str) -> None:
        moments = self.moments[name]
        if name in self._writes:
            self._writes[name]([moments.mean.astype(np.float32), moments.variance.astype(np.float32)])
