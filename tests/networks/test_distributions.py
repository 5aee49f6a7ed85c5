import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from keras import ops

from distrl.networks import distributions

LOGITS = arrays(np.float32, (3, 4), elements=st.floats(-50, 50, width=32))


def probabilities(logits):
    """The definition, in float64."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def numpy(tensor):
    return np.asarray(ops.convert_to_tensor(tensor))


def test_log_probability_of_known_probabilities():
    logits = np.log(np.array([[0.2, 0.8], [0.5, 0.5]], np.float32))
    computed = numpy(distributions.log_probability(logits, np.array([1, 0], np.int32)))
    np.testing.assert_allclose(computed, np.log([0.8, 0.5]), rtol=1e-6)


def test_log_probability_keeps_leading_axes():
    logits = np.zeros((5, 3, 4), np.float32)
    computed = numpy(distributions.log_probability(logits, np.zeros((5, 3), np.int32)))
    np.testing.assert_allclose(computed, np.full((5, 3), -np.log(4)), rtol=1e-6)


def test_log_probability_of_huge_logits():
    logits = np.array([[1e4, 0.0], [-1e4, 1e4]], np.float32)
    computed = numpy(distributions.log_probability(logits, np.array([1, 1], np.int32)))
    np.testing.assert_array_equal(computed, [-1e4, 0.0])


def test_log_probability_refuses_wrong_ranks():
    with pytest.raises(ValueError, match="one axis more"):
        distributions.log_probability(np.zeros((3, 2), np.float32), np.zeros((3, 1), np.int32))


def test_entropy_of_known_probabilities():
    logits = np.array([[0.0, 0.0], [1e4, 0.0], np.log([0.25, 0.75])], np.float32)
    expected = [np.log(2), 0.0, -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))]
    np.testing.assert_allclose(numpy(distributions.entropy(logits)), expected, rtol=1e-6)


def test_kl_of_known_probabilities():
    p, q = np.array([[0.25, 0.75]], np.float32), np.array([[0.5, 0.5]], np.float32)
    expected = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    np.testing.assert_allclose(numpy(distributions.kl(np.log(p), np.log(q))), [expected], rtol=1e-5)


def test_mode_takes_the_first_of_equals():
    computed = numpy(distributions.mode(np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 1.0]], np.float32)))
    np.testing.assert_array_equal(computed, [1, 0])
    assert computed.dtype == np.int32


@given(LOGITS, LOGITS)
def test_twins_of_the_definitions(logits, others):
    p, q = probabilities(logits), probabilities(others)
    actions = np.argmin(others, axis=-1).astype(np.int32)
    taken = np.log(p)[np.arange(len(p)), actions]
    np.testing.assert_allclose(numpy(distributions.log_probability(logits, actions)), taken, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(numpy(distributions.entropy(logits)), -(p * np.log(p)).sum(axis=-1), atol=1e-5)
    divergence = (p * (np.log(p) - np.log(q))).sum(axis=-1)
    np.testing.assert_allclose(numpy(distributions.kl(logits, others)), divergence, rtol=1e-5, atol=1e-4)
