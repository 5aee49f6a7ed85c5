"""Hop 6: joins decoded unrolls side by side: each is written into its own columns of one batch."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from distrl import frames
from distrl.types import ATTRIBUTES, Array, Batch, Unroll
from distrl.unroll_schema import BATCH_EXTRAS


class Empty(Protocol):
    """Allocates an array of any content, as `numpy.empty` does."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array: ...


class Joined:
    """A batch that is being filled: [T, B] of each unroll -> [T, N]; the state before row 0, [S, B, ...] -> [N, ...].

    Unrolls may be written in any order, and by several threads at once: each has its place by its number. Reward
    moments become arrays [unrolls].

    Attributes:
        batch: Complete once every number has been written.
        columns: B.

    Args:
        like: An unroll of the run; all have its names, dtypes and shapes.
        count: Number of unrolls; N = count x B.
        frame_counts: Observation's name -> n, for stacks of n > 1 frames that are rebuilt from the single frames that
            unrolls carry: [T+n, B, ..., C] each -> [T+1, N, ..., n * C]. Others stay as they came.
        empty: Allocates the batch's arrays.
    """

    def __init__(self, like: Unroll, count: int, frame_counts: Mapping[str, int], empty: Empty = np.empty) -> None:
        self._frame_counts = frame_counts
        self.columns = like.valid.shape[1]
        total = count * self.columns

        def beside(array: Array) -> Array:
            return empty((array.shape[0], total, *array.shape[2:]), array.dtype)

        def observed(name: str, array: Array) -> Array:
            if (stacked := frame_counts.get(name)) is None:
                return beside(array)
            return empty((len(like.valid) + 1, total, *array.shape[2:-1], stacked * array.shape[-1]), array.dtype)

        self.batch = Batch(
            observations={name: observed(name, array) for name, array in like.observations.items()},
            actions={name: beside(array) for name, array in like.actions.items()},
            **{name: beside(getattr(like, name)) for name in ATTRIBUTES},
            extras={name: beside(like.extras[name]) for name in BATCH_EXTRAS if name in like.extras},
            recurrent_state={
                name: empty((total, *array.shape[2:]), array.dtype) for name, array in like.recurrent_state.items()
            },
            reward_moments={name: empty((count,), array.dtype) for name, array in like.reward_moments.items()},
        )

    def write(self, number: int, unroll: Unroll) -> None:
        """Write a whole unroll into its place, counted from 0."""
        self.write_steps(number, unroll)
        self.write_observations(number, unroll, 0, self.columns)

    def write_steps(self, number: int, unroll: Unroll) -> None:
        """Write all of an unroll but its observations."""
        batch, columns = self.batch, slice(number * self.columns, (number + 1) * self.columns)
        for name in ATTRIBUTES:
            getattr(batch, name)[:, columns] = getattr(unroll, name)
        for own, given in ((batch.actions, unroll.actions), (batch.extras, unroll.extras)):
            for name, array in own.items():
                array[:, columns] = given[name]
        for name, array in batch.recurrent_state.items():
            array[columns] = unroll.recurrent_state[name][0]
        for name, array in batch.reward_moments.items():
            array[number] = unroll.reward_moments[name]

    def write_observations(self, number: int, unroll: Unroll, begin: int, end: int) -> None:
        """Write the observations of an unroll's environments `begin` to `end` - 1."""
        part, first = slice(begin, end), number * self.columns
        columns = slice(first + begin, first + end)
        for name, array in self.batch.observations.items():
            given, out = unroll.observations[name][:, part], array[:, columns]
            if (stacked := self._frame_counts.get(name)) is None:
                out[...] = given
            else:
                frames.rebuilt(given, unroll.valid[:, part], stacked, out)


def stack(unrolls: Sequence[Unroll], frame_counts: Mapping[str, int]) -> Batch:
    """Join unrolls of the same shapes, in this order; see `Joined`."""
    joined = Joined(unrolls[0], len(unrolls), frame_counts)
    for number, unroll in enumerate(unrolls):
        joined.write(number, unroll)
    return joined.batch
