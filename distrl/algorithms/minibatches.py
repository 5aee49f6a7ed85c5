"""A batch in minibatches: of rows where they stand alone, of whole sequences where memory runs through them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from distrl import nest
from distrl.networks.actions.family import Tensor
from distrl.types import Array, Batch, IntArray


class Experience(NamedTuple):
    """What a policy is learned from over several epochs: T rows, without the bootstrap row, which is used up.

    Attributes:
        observations: name -> [T, N, ...].
        recurrent_state: name -> [N, ...], before row 0.
        actions: name -> [T, N, ...].
        valid: bool [T, N].
        estimates: name -> [T, N, ...]. What was made of the batch before the first epoch, and stays.
    """

    observations: dict[str, Any]
    recurrent_state: dict[str, Any]
    actions: dict[str, Any]
    valid: Any
    estimates: Mapping[str, Any]


def by_sequences(batch: Batch, estimates: dict[str, Array]) -> Experience:
    """A batch [T, N] as T rows of N items, the sequences."""
    observations = {name: rows[:-1] for name, rows in batch.observations.items()}
    return Experience(observations, batch.recurrent_state, batch.actions, batch.valid, estimates)


def by_rows(batch: Batch, estimates: dict[str, Array]) -> Experience:
    """A batch [T, N] of a network without memory as one row of T*N items."""
    sequences = by_sequences(batch, estimates)
    flat: Experience = nest.map(lambda rows: rows.reshape(1, -1, *rows.shape[2:]), sequences)  # [T, N, ...]
    return flat


def take(experience: Experience, items: Tensor) -> Experience:
    """The minibatch of these items of `by_sequences` or `by_rows`; items int32 [M], in `keras.ops`."""
    state = {name: ops.take(rows, items, axis=0) for name, rows in experience.recurrent_state.items()}
    taken: Experience = nest.map(
        lambda rows: ops.take(rows, items, axis=1), experience._replace(recurrent_state={}, estimates={})
    )
    estimates = {name: ops.take(rows, items, axis=1) for name, rows in experience.estimates.items()}
    return taken._replace(recurrent_state=state, estimates=estimates)


def shuffled(items: int, *, epochs: int, minibatches: int, seed: int, step: int) -> IntArray:
    """The items of every minibatch: each epoch goes through all of them once, in an order of its own.

    Args:
        items: A multiple of `minibatches`.
        seed: The run's.
        step: Optimizer steps before this batch: with equal ones orders are equal, also in a resumed run.

    Returns:
        int32 [epochs * minibatches, items / minibatches].
    """
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2, step)))
    orders = [random.permutation(items) for _ in range(epochs)]
    return np.concatenate(orders).astype(np.int32).reshape(epochs * minibatches, items // minibatches)
