"""Distributions over choices and switches against SciPy. Runs on every Keras backend."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from keras import ops, random
from scipy import stats
from scipy.special import log_expit, log_softmax

from distrl.networks.actions.bernoulli import Bernoulli
from distrl.networks.actions.categorical import Categorical, MultiCategorical, MultiCategoricalSpec

LOGITS = arrays(np.float32, (3, 4), elements=st.floats(-50, 50, width=32))
CATEGORICAL, BERNOULLI = Categorical(), Bernoulli()
MULTI = MultiCategorical(MultiCategoricalSpec((2, 3)))


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def log(*p):
    return np.log(np.array(p)).astype(np.float32)


def logit(*p):
    return np.log(np.array(p) / (1 - np.array(p))).astype(np.float32)


class TestCategorical:
    def test_log_probability_of_known_probabilities(self):
        computed = numpy(CATEGORICAL.log_probability(log([0.2, 0.8], [0.5, 0.5]), np.array([1, 0], np.int32)))
        np.testing.assert_allclose(computed, np.log([0.8, 0.5]), rtol=1e-6)

    def test_log_probability_keeps_leading_axes(self):
        computed = numpy(CATEGORICAL.log_probability(np.zeros((5, 3, 4), np.float32), np.zeros((5, 3), np.int32)))
        np.testing.assert_allclose(computed, np.full((5, 3), -np.log(4)), rtol=1e-6)

    def test_log_probability_of_huge_logits(self):
        logits = np.array([[1e4, 0.0], [-1e4, 1e4]], np.float32)
        computed = numpy(CATEGORICAL.log_probability(logits, np.array([1, 1], np.int32)))
        np.testing.assert_array_equal(computed, [-1e4, 0.0])

    def test_log_probability_refuses_wrong_ranks(self):
        with pytest.raises(ValueError, match="actions must have 1 axes"):
            CATEGORICAL.log_probability(np.zeros((3, 2), np.float32), np.zeros((3, 1), np.int32))

    @pytest.mark.row("L23.3")
    def test_entropy_of_known_probabilities(self):
        computed = numpy(CATEGORICAL.entropy(log([0.9, 0.1], [0.5, 0.5], [1.0, 1e-30])))
        np.testing.assert_allclose(computed, [0.325083, np.log(2), 0.0], atol=1e-6)

    @pytest.mark.row("L23.3")
    def test_kl_of_known_probabilities(self):
        p, q = log([0.5, 0.5], [0.25, 0.75]), log([0.9, 0.1], [0.5, 0.5])
        expected = [0.510826, 0.25 * np.log(0.5) + 0.75 * np.log(1.5)]
        np.testing.assert_allclose(numpy(CATEGORICAL.kl(p, q)), expected, atol=1e-6)

    @pytest.mark.row("L23.3")
    def test_state_value(self):
        computed = numpy(CATEGORICAL.state_value(np.array([[0.0, 0.0], [1e4, 0.0]], np.float32)))
        np.testing.assert_allclose(computed, [0.693147, 1e4], atol=1e-6)

    @pytest.mark.row("L23.3", "D83", "D86")
    def test_mode_takes_the_first_of_equals(self):
        logits = np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 1.0], np.log([0.2, 0.8, 1e-9])], np.float32)
        computed = numpy(CATEGORICAL.mode(logits))
        np.testing.assert_array_equal(computed, [1, 0, 1])
        assert computed.dtype == np.int32

    @pytest.mark.row("L23.3", "D83")
    @pytest.mark.parametrize("p", [[0.2, 0.8], [0.05, 0.15, 0.3, 0.5]])
    def test_frequencies_are_the_probabilities(self, p):
        drawn = numpy(CATEGORICAL.sample(np.tile(log(*p), (100_000, 1)), 3))
        assert (drawn.dtype, drawn.shape) == (np.int32, (100_000,))
        np.testing.assert_allclose(np.bincount(drawn, minlength=len(p)) / 1e5, p, atol=0.01)

    def test_a_generator_advances_and_an_int_does_not(self):
        logits, generator = np.zeros((64, 4), np.float32), random.SeedGenerator(1)
        first, second = (numpy(CATEGORICAL.sample(logits, generator)) for _ in range(2))
        assert (first != second).any()
        np.testing.assert_array_equal(numpy(CATEGORICAL.sample(logits, 1)), numpy(CATEGORICAL.sample(logits, 1)))

    @given(LOGITS, LOGITS)
    def test_twins_of_the_definitions(self, logits, others):
        log_p, log_q = (log_softmax(each.astype(np.float64), axis=-1) for each in (logits, others))
        actions = np.argmin(others, axis=-1).astype(np.int32)
        taken = log_p[np.arange(3), actions]
        np.testing.assert_allclose(numpy(CATEGORICAL.log_probability(logits, actions)), taken, rtol=1e-5, atol=1e-5)
        expected = stats.entropy(np.exp(log_p), axis=-1)
        np.testing.assert_allclose(numpy(CATEGORICAL.entropy(logits)), expected, atol=1e-5)
        divergence = (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)
        np.testing.assert_allclose(numpy(CATEGORICAL.kl(logits, others)), divergence, rtol=1e-5, atol=1e-4)


@pytest.mark.row("L23.5")
class TestMaskedCategorical:
    """Choice 1 is not allowed: what is left are the logits 1 and 3."""

    logits = np.array([1.0, 2.0 - 1e9, 3.0], np.float32)
    others = np.array([0.5, -7.0 - 1e9, -1.0], np.float32)
    left, others_left = np.array([1.0, 3.0], np.float32), np.array([0.5, -1.0], np.float32)

    def test_probability_is_exactly_0(self):
        logits = np.tile(self.logits, (3, 1))
        probabilities = np.exp(numpy(CATEGORICAL.log_probability(logits, np.arange(3, dtype=np.int32))))
        assert probabilities[1] == 0.0
        np.testing.assert_allclose(probabilities[[0, 2]], np.exp(log_softmax([1.0, 3.0])), rtol=1e-6)

    def test_entropy_and_kl_ignore_it(self):
        assert float(CATEGORICAL.entropy(self.logits)) == pytest.approx(float(CATEGORICAL.entropy(self.left)), rel=1e-6)
        masked, left = CATEGORICAL.kl(self.logits, self.others), CATEGORICAL.kl(self.left, self.others_left)
        assert float(masked) == pytest.approx(float(left), rel=1e-6)

    def test_kl_against_another_mask_is_finite(self):
        divergence = float(CATEGORICAL.kl(np.array([1.0, 2.0, 3.0], np.float32), self.logits))
        assert divergence == pytest.approx(1e9 * np.exp(log_softmax([1.0, 2.0, 3.0])[1]), rel=1e-5)

    def test_it_is_never_drawn(self):
        drawn = numpy(CATEGORICAL.sample(np.tile(self.logits, (100_000, 1)), 5))
        assert set(drawn) == {0, 2}

    def test_with_nothing_left_all_are_equal(self):
        everything = np.full(4, -1e9, np.float32)
        assert float(CATEGORICAL.entropy(everything)) == pytest.approx(np.log(4))


@pytest.mark.row("L23.5")
class TestMultiCategorical:
    logits = np.concatenate([log(0.2, 0.8), log(0.5, 0.1, 0.4)])[None]

    def test_log_probability_is_the_sum(self):
        computed = numpy(MULTI.log_probability(self.logits, np.array([[1, 2]], np.int32)))
        np.testing.assert_allclose(computed, [np.log(0.8 * 0.4)], rtol=1e-6)

    def test_log_probability_refuses_wrong_ranks(self):
        with pytest.raises(ValueError, match="actions must have 2 axes"):
            MULTI.log_probability(self.logits, np.array([1], np.int32))

    def test_entropy_is_the_sum(self):
        expected = stats.entropy([0.2, 0.8]) + stats.entropy([0.5, 0.1, 0.4])
        np.testing.assert_allclose(numpy(MULTI.entropy(self.logits)), [expected], rtol=1e-6)

    def test_kl_is_the_sum(self):
        expected = stats.entropy([0.2, 0.8], [0.5, 0.5]) + stats.entropy([0.5, 0.1, 0.4], [1 / 3] * 3)
        computed = numpy(MULTI.kl(self.logits, np.zeros((1, 5), np.float32)))
        np.testing.assert_allclose(computed, [expected], rtol=1e-5)

    def test_mode(self):
        computed = numpy(MULTI.mode(self.logits))
        assert (computed.dtype, computed.tolist()) == (np.int32, [[1, 0]])

    def test_frequencies_and_independence(self):
        drawn = numpy(MULTI.sample(np.tile(self.logits, (100_000, 1)), 7))
        assert (drawn.dtype, drawn.shape) == (np.int32, (100_000, 2))
        table = np.histogram2d(*drawn.T, bins=[range(3), range(4)])[0] / 1e5
        np.testing.assert_allclose(table, np.outer([0.2, 0.8], [0.5, 0.1, 0.4]), atol=0.01)


@pytest.mark.row("L23.2")
class TestBernoulli:
    def test_known_numbers(self):
        logits = logit([0.3], [0.5])
        np.testing.assert_allclose(numpy(BERNOULLI.entropy(logits)), [0.610864, np.log(2)], atol=1e-6)
        for action, expected in ((1, [0.3, 0.5]), (0, [0.7, 0.5])):
            computed = numpy(BERNOULLI.log_probability(logits, np.full((2, 1), action, np.int32)))
            np.testing.assert_allclose(np.exp(computed), expected, rtol=1e-6)

    def test_mode_is_1_from_one_half(self):
        computed = numpy(BERNOULLI.mode(np.array([[-1e-6, 0.0, 1e-6]], np.float32)))
        assert (computed.dtype, computed.tolist()) == (np.int32, [[0, 1, 1]])

    def test_frequencies(self):
        drawn = numpy(BERNOULLI.sample(np.tile(logit(0.3, 0.9), (100_000, 1)), 9))
        assert drawn.dtype == np.int32
        np.testing.assert_allclose(drawn.mean(axis=0), [0.3, 0.9], atol=0.01)
        assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.02

    def test_log_probability_refuses_wrong_ranks(self):
        with pytest.raises(ValueError, match="actions must have 2 axes"):
            BERNOULLI.log_probability(np.zeros((3, 1), np.float32), np.zeros(3, np.int32))

    @given(LOGITS, LOGITS)
    def test_twins_of_the_definitions(self, logits, others):
        p, q = logits.astype(np.float64), others.astype(np.float64)
        actions = (others > 0).astype(np.int32)
        expected = log_expit((2 * actions - 1) * p).sum(axis=-1)
        np.testing.assert_allclose(numpy(BERNOULLI.log_probability(logits, actions)), expected, rtol=1e-5, atol=1e-5)
        entropies = stats.bernoulli.entropy(np.exp(log_expit(-np.abs(p)))).sum(axis=-1)
        np.testing.assert_allclose(numpy(BERNOULLI.entropy(logits)), entropies, rtol=1e-5, atol=1e-6)
        terms = [np.exp(log_expit(s * p)) * (log_expit(s * p) - log_expit(s * q)) for s in (1, -1)]
        np.testing.assert_allclose(numpy(BERNOULLI.kl(logits, others)), sum(terms).sum(-1), rtol=1e-5, atol=1e-5)
