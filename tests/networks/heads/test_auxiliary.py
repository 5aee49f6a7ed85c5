import numpy as np
import pytest
from scipy.special import log_softmax

from distrl.config.heads import ClassificationHeadParameters, EmbeddingHeadParameters

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3, 4)).astype(np.float32)


@pytest.mark.row("D07.19")
def test_cross_entropy_of_a_coin(build, choices):
    built = build(ClassificationHeadParameters(), choices(2))
    built.set_constant(classification_head=[0.0, 0.0])
    np.testing.assert_allclose(built.loss(np.array([0], np.int32), observation=ROWS[:1]), [0.693147], atol=1e-6)


@pytest.mark.row("D07.19", "A23", "L17")
def test_probabilities_sum_to_one_and_take_the_temperature(build, choices):
    built = build(ClassificationHeadParameters(), choices(2), softmax_temperature=0.5)
    built.set_constant(classification_head=[1.0, 2.0])
    outputs = built.outputs(observation=ROWS)
    np.testing.assert_allclose(outputs["classification/softmax"], [[0.1192, 0.8808]] * 3, atol=1e-4)
    labels = np.array([0, 1, 0], np.int32)
    expected = -log_softmax([2.0, 4.0])[labels]
    np.testing.assert_allclose(built.loss(labels, observation=ROWS), expected, rtol=1e-6)


def test_classification_learns_labels(build, choices):
    built = build(ClassificationHeadParameters(), choices(3))
    labels = np.array([2, 0, 1], np.int32)
    built.train(labels, steps=100, rate=1.0, observation=ROWS)
    np.testing.assert_array_equal(built.outputs(observation=ROWS)["classification"].argmax(axis=-1), labels)


def test_an_embedding_is_a_vector_and_learns_vectors(build, choices):
    built = build(EmbeddingHeadParameters(embedding_size=2), choices(2))
    built.set_constant(embedding_head=[1.0, 2.0])
    np.testing.assert_allclose(built.outputs(observation=ROWS)["embedding"], [[1.0, 2.0]] * 3)
    targets = np.float32([[1.0, 2.0], [0.0, 4.0], [3.0, 2.0]])
    np.testing.assert_allclose(built.loss(targets, observation=ROWS), [0.0, 2.5, 2.0])  # means of squares
    with pytest.raises(ValueError, match="must be one tensor"):
        built.loss({"targets": targets}, observation=ROWS)
