"""Batches in minibatches: which items, and what belongs to them. Runs on every Keras backend."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from distrl.algorithms.epochs import by_rows, by_sequences, shuffled
from distrl.networks.steps import sequences_of
from distrl.types import Batch

T, N = 3, 2
NUMBERS = np.arange(T * N, dtype="float32").reshape(T, N)  # row t of sequence n is 2 t + n


def make_batch():
    rows = np.arange((T + 1) * N, dtype="float32").reshape(T + 1, N, 1)
    flags = NUMBERS > 100
    return Batch(
        observations={"observation": rows},
        actions={"action": NUMBERS.astype("int32"), "turn": np.stack([NUMBERS, -NUMBERS], axis=-1)},
        rewards=NUMBERS,
        terminated=flags,
        truncated=flags,
        valid=NUMBERS != 3.0,
        behaviour_log_probabilities=NUMBERS,
        recurrent_state={"lstm_h": np.float32([[10.0], [11.0]])},
    )


def arrays(tree):
    return {name: ops.convert_to_numpy(rows) for name, rows in tree.items()}


def test_a_minibatch_of_sequences_has_their_rows_and_their_state():
    experience = by_sequences(make_batch(), {"advantages": NUMBERS})
    taken = sequences_of(experience, np.int32([1]))
    np.testing.assert_array_equal(arrays(taken.observations)["observation"][..., 0], [[1], [3], [5]])
    np.testing.assert_array_equal(arrays(taken.actions)["action"], [[1], [3], [5]])
    np.testing.assert_array_equal(arrays(taken.actions)["turn"][:, 0], [[1, -1], [3, -3], [5, -5]])
    np.testing.assert_array_equal(ops.convert_to_numpy(taken.valid), [[True], [False], [True]])
    np.testing.assert_array_equal(arrays(taken.recurrent_state)["lstm_h"], [[11]])
    np.testing.assert_array_equal(arrays(taken.estimates)["advantages"], [[1], [3], [5]])


def test_a_minibatch_of_rows_has_everything_of_each_row():
    experience = by_rows(make_batch()._replace(recurrent_state={}), {"advantages": NUMBERS})
    assert experience.valid.shape == (1, 6)
    taken = sequences_of(experience, np.int32([4, 3, 0]))
    np.testing.assert_array_equal(arrays(taken.observations)["observation"], [[[4], [3], [0]]])
    np.testing.assert_array_equal(arrays(taken.actions)["action"], [[4, 3, 0]])
    np.testing.assert_array_equal(arrays(taken.actions)["turn"], [[[4, -4], [3, -3], [0, 0]]])
    np.testing.assert_array_equal(ops.convert_to_numpy(taken.valid), [[True, False, True]])
    np.testing.assert_array_equal(arrays(taken.estimates)["advantages"], [[4, 3, 0]])


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**31), st.integers(0, 2**31))
def test_every_epoch_goes_through_all_items_once(epochs, minibatches, size, seed, step):
    items = minibatches * size
    order = shuffled(items, epochs=epochs, minibatches=minibatches, seed=seed, step=step)
    assert (order.shape, order.dtype) == ((epochs * minibatches, size), np.int32)
    for epoch in order.reshape(epochs, items):
        assert sorted(epoch) == list(range(items))
    again = shuffled(items, epochs=epochs, minibatches=minibatches, seed=seed, step=step)
    np.testing.assert_array_equal(order, again)


@pytest.mark.parametrize("changed", [{"seed": 2}, {"step": 321}])
def test_other_seeds_other_updates_and_other_epochs_have_other_orders(changed):
    usual = {"epochs": 2, "minibatches": 4, "seed": 1, "step": 320}
    order = shuffled(64, **usual)
    assert (order != shuffled(64, **(usual | changed))).any()
    assert (order[:4] != order[4:]).any()
