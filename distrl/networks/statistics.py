"""Statistics that one network normalises by: of inputs, which are weights of every copy, and of rewards."""

from collections.abc import Mapping, Sequence

import numpy as np

from distrl.config.algorithms import RewardNormalizationParameters
from distrl.errors import CheckpointError
from distrl.networks.framework.backend import compiled_write
from distrl.networks.network import NetworkCopy
from distrl.networks.parts.normalization import RewardNormalization, RunningMoments
from distrl.networks.weights import to_numpy
from distrl.types import Array, Batch

StateArrays = dict[str, dict[str, Array]]


class Statistics:
    """Running moments, and the layers of all copies of one network that normalise by them.

    Attributes:
        moments: Input name -> statistics of the inputs that the network normalises.
        rewards: Normalisation of rewards; None: rewards are not normalised.
    """

    def __init__(
        self, copies: Sequence[NetworkCopy], reward_normalization: RewardNormalizationParameters | None
    ) -> None:
        self.moments = {name: RunningMoments(shape) for name, shape in copies[0].normalized_inputs.items()}
        self.rewards = None if reward_normalization is None else RewardNormalization(reward_normalization)
        layers = [item for copy in copies for item in copy.assembly.normalizations]
        self._layers = dict(copies[0].assembly.normalizations)
        self._writes = {
            name: compiled_write(
                [
                    [layer.mean for key, layer in layers if key == name],
                    [layer.variance for key, layer in layers if key == name],
                ]
            )
            for name in self.moments
        }

    def adopt(self, rows: int) -> None:
        """Continue from the mean and variance in the layers, as statistics of that many rows."""
        for name, moments in self.moments.items():
            layer = self._layers[name]
            mean, variance = (to_numpy(weight).astype(np.float64) for weight in (layer.mean, layer.variance))
            moments.restore({"count": np.array(float(rows)), "mean": mean, "squares": variance * rows})

    def observe(self, batch: Batch) -> None:
        """Add a batch's valid rows and its reward moments; write the new statistics into every copy."""
        for name, moments in self.moments.items():
            rows = batch.observations[name][:-1]  # the last row is the first of the next unroll
            moments.add(rows[batch.valid])
            self._write(name)
        self.observe_rewards(batch.reward_moments)

    def observe_moments(self, moments: Mapping[str, Mapping[str, Array]]) -> None:
        """Add rows by input name as count, mean and squares, which gradient actors send."""
        for name, of_rows in moments.items():
            self.moments[name].merge(float(of_rows["count"]), of_rows["mean"], of_rows["squares"])
            self._write(name)

    def observe_rewards(self, moments: Mapping[str, Array]) -> None:
        """Merge the reward moments of actors; do nothing if rewards are not normalised."""
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
        """Restore the moments that `state_arrays` returned; the layers' weights are part of the copies' state."""
        for name, moments in self.moments.items():
            moments.restore({key: state["statistics"][f"{name}/{key}"] for key in moments.state()})
        if self.rewards is not None:
            self.rewards.restore(dict(state["rewards"]))

    def _write(self, name: str) -> None:
        """Write mean and variance of one input into every copy."""
        moments = self.moments[name]
        self._writes[name]([moments.mean.astype(np.float32), moments.variance.astype(np.float32)])
