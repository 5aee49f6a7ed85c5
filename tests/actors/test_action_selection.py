import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from distrl.actors.action_selection import greedy, sample_categorical
from distrl.networks import distributions

LOGITS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-100, 100, width=32))


@pytest.mark.row("D83")
@pytest.mark.parametrize("p", [[0.2, 0.8], [0.5, 0.1, 0.4], [0.05, 0.15, 0.3, 0.5]])
def test_frequencies_are_the_probabilities(p):
    logits = np.tile(np.log(np.array(p, np.float32)), (100_000, 1))
    actions, _ = sample_categorical(logits, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(actions, minlength=len(p)) / 1e5, p, atol=0.01)


def test_rows_are_drawn_independently():
    logits = np.zeros((50_000, 2), np.float32)
    actions, _ = sample_categorical(logits, np.random.default_rng(0))
    assert abs(np.corrcoef(actions[:-1], actions[1:])[0, 1]) < 0.02


def test_dtypes_shapes_and_seed():
    logits = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    actions, log_probabilities = sample_categorical(logits, np.random.default_rng(2))
    assert (actions.dtype, actions.shape) == (np.int32, (5,))
    assert (log_probabilities.dtype, log_probabilities.shape) == (np.float32, (5,))
    again, _ = sample_categorical(logits, np.random.default_rng(2))
    np.testing.assert_array_equal(actions, again)


@given(LOGITS, st.integers(0, 2**32 - 1))
def test_log_probabilities_are_the_learners(logits, seed):
    actions, log_probabilities = sample_categorical(logits, np.random.default_rng(seed))
    learners = np.asarray(distributions.log_probability(logits, actions))
    np.testing.assert_allclose(log_probabilities, learners, rtol=1e-6, atol=1e-6)
    assert ((actions >= 0) & (actions < logits.shape[1])).all()


@given(LOGITS, st.integers(0, 2**32 - 1))
def test_logits_stay_as_they_are(logits, seed):
    before = logits.copy()
    sample_categorical(logits, np.random.default_rng(seed))
    np.testing.assert_array_equal(logits, before)


class Edge:
    """A generator at the edges of [0, 1)."""

    def __init__(self, number):
        self._number = np.float32(number)

    def random(self, size, dtype):
        return np.full(size, self._number, dtype)


@pytest.mark.parametrize("number", [0.0, 1.0 - 2.0**-24])
@pytest.mark.parametrize("logits", [[-1e4, 0.0, -1e4], [-1e4, 1e4, -1e4], [-200.0, 3.7, -200.0]])
def test_an_impossible_action_is_never_drawn(number, logits):
    actions, log_probabilities = sample_categorical(np.array([logits], np.float32), Edge(number))
    assert actions.tolist() == [1]
    assert log_probabilities.tolist() == [0.0]


def test_edges_of_the_generator_reach_the_first_and_the_last_action():
    logits = np.zeros((1, 4), np.float32)
    assert sample_categorical(logits, Edge(1.0 - 2.0**-24))[0].tolist() == [0]
    assert sample_categorical(logits, Edge(0.0))[0].tolist() == [3]


@pytest.mark.row("D83", "D86")
def test_greedy_takes_the_first_of_the_best():
    actions = greedy(np.array([[1.0, 3.0, 2.0], [5.0, 0.0, 5.0], np.log([0.2, 0.5, 0.3])], np.float32))
    assert actions.tolist() == [1, 0, 1]
    assert actions.dtype == np.int32
