import numpy as np
import pytest
from scipy.special import log_softmax

from distrl.config.heads import ClassificationHeadParameters, RNDHeadParameters
from distrl.types import ArraySpec

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


@pytest.mark.row("D07.22", "D175")
def test_prediction_error_falls_where_it_is_trained_and_the_target_stays(build, choices):
    built = build(RNDHeadParameters(units=(16,), embedding_size=8), choices(2))
    frozen = {weight.path: np.array(weight) for weight in built.model.non_trainable_weights}
    seen, unseen = ROWS[:1], -ROWS[:1]
    before, elsewhere = built.outputs(observation=seen)["rnd"], built.outputs(observation=unseen)["rnd"]
    built.train({}, steps=100, rate=0.1, observation=seen)
    assert built.outputs(observation=seen)["rnd"] < 0.05 * before
    assert built.outputs(observation=unseen)["rnd"] > 0.2 * elsewhere
    assert {path.split("/")[-2] for path in frozen} == {"rnd_head_random_hidden_0", "rnd_head_random_embedding"}
    for weight in built.model.non_trainable_weights:
        np.testing.assert_array_equal(np.array(weight), frozen[weight.path])


@pytest.mark.row("D07.22")
def test_prediction_error_is_the_mean_square_over_all_observations(build, choices):
    spec = choices(2, camera=ArraySpec((2, 2), "uint8"), speed=ArraySpec((), "float64"))
    built = build(RNDHeadParameters(units=(), embedding_size=8), spec)
    camera, speed = RNG.integers(0, 256, (5, 2, 2)).astype(np.uint8), RNG.standard_normal(5)
    weights = {weight.path: np.array(weight) for weight in built.model.weights}
    predicted = (
        np.concatenate([camera.reshape(5, 4), speed[:, np.newaxis]], -1) @ weights["main/rnd_head_predictor/kernel"]
    )
    wanted = (
        np.concatenate([camera.reshape(5, 4) / 255.0, speed[:, np.newaxis]], -1)
        @ weights["main/rnd_head_random_embedding/kernel"]
    )
    expected = ((predicted - wanted) ** 2).mean(axis=-1)
    computed = built.outputs(camera=camera, speed=speed)["rnd"]
    np.testing.assert_allclose(computed, expected, rtol=1e-4)
    np.testing.assert_array_equal(built.loss({}, camera=camera, speed=speed), computed)


def test_prediction_takes_no_target(build, choices):
    built = build(RNDHeadParameters(units=(), embedding_size=2), choices(2))
    with pytest.raises(ValueError, match="unknown target 'targets'"):
        built.loss({"targets": np.zeros(3, np.float32)}, observation=ROWS)
