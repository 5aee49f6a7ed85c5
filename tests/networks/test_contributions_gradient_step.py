"""A gradient actor computes the gradient that the learner's own step would take; its own weights do not move."""

import numpy as np
import pytest
from keras import ops

from distrl.config.heads import ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.contributions import GradientStep
from distrl.networks.copies import Copies
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec
from tests.traces import traces

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((3,), "float32")}, {"action": DiscreteSpec(2)})
T, N = 3, 4
NORMALIZE = {"input_embedders_parameters": {"observation": {"normalize": True}}}


def wrap(middleware=None, **parameters):
    tree = {
        "optimizer_type": "SGD",
        "learning_rate": 0.5,
        "middleware_parameters": {"scheme": [5], "activation": "tanh", **(middleware or {})},
        **parameters,
    }
    heads = [ValueHeadParameters()]
    network = NetworkParameters.model_validate(tree)
    return Copies(network, SPEC, heads, has_target=False, has_global=True, name="main", seed=3)


def loss(outputs, batch):
    error = outputs["value"][:-1] - batch.rewards
    return {"value": ops.mean(error * error)}, {"error": ops.mean(error)}


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    valid = np.ones((T, N), bool)
    valid[1, 2] = valid[2, 0] = False
    return Batch(
        observations={"observation": rng.normal(2.0, 3.0, (T + 1, N, 3)).astype(np.float32)},
        actions={"action": np.zeros((T, N), np.int32)},
        rewards=rng.standard_normal((T, N)).astype(np.float32),
        terminated=np.zeros((T, N), bool),
        truncated=np.zeros((T, N), bool),
        valid=valid,
        behaviour_log_probabilities=np.zeros((T, N), np.float32),
        recurrent_state={},
    )


def weights(network):
    return network.online.named_weights()


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_the_gradient_is_that_of_the_learners_own_step(batch, clip):
    mine, learners = wrap(clip_gradients=clip), wrap(clip_gradients=clip)
    before = weights(mine)
    found = GradientStep(mine.online, loss)(batch)
    assert_same(weights(mine), before)
    told = learners.train_step(loss)(batch)
    assert list(found.gradients) == mine.online.names_of(mine.online.model.trainable_variables)
    for name, after in weights(learners).items():  # SGD: the step is the gradient
        np.testing.assert_allclose(found.gradients[name], (before[name] - after) / 0.5, atol=1e-6)
    norm = np.sqrt(sum(np.square(gradient).sum() for gradient in found.gradients.values()))
    assert norm == pytest.approx(told["gradient_norm"] if clip is None else clip, rel=1e-5)
    assert found.metrics == pytest.approx({"loss": told["loss"], "error": told["error"]}, rel=1e-5)
    assert (found.averages, found.moments) == ({}, {})


def test_it_is_compiled_once(batch):
    step = GradientStep(wrap().online, loss)
    first, second = step(batch), step(batch)
    assert_same(first.gradients, second.gradients)
    assert traces(step) == 1


def test_moments_are_of_the_valid_rows_before_the_last(batch):
    network = wrap(**NORMALIZE)
    found = GradientStep(network.online, loss)(batch).moments
    rows = batch.observations["observation"][:-1][batch.valid].astype(np.float64)
    assert rows.shape == (T * N - 2, 3)
    assert float(found["observation"]["count"]) == len(rows)
    np.testing.assert_allclose(found["observation"]["mean"], rows.mean(axis=0))
    np.testing.assert_allclose(found["observation"]["squares"], np.square(rows - rows.mean(axis=0)).sum(axis=0))
    assert network.statistics.moments["observation"].count == 0  # statistics are the learner's
    assert network.online.normalized_inputs == {"observation": (3,)}
    assert network.online.moving_averages == {}


def test_averages_of_batch_normalisation_move_as_in_the_learners_own_step(batch):
    batchnorm = {"batchnorm": True}
    mine, learners = wrap(batchnorm, **NORMALIZE), wrap(batchnorm, **NORMALIZE)
    before = weights(mine)
    found = GradientStep(mine.online, loss)(batch).averages
    assert sorted(name.rsplit("/")[-1] for name in found) == ["moving_mean", "moving_variance"]
    learners.train_step(loss)(batch)
    for name, array in found.items():
        assert not np.array_equal(array, before[name])
        np.testing.assert_allclose(array, weights(learners)[name], rtol=1e-5)
        np.testing.assert_array_equal(weights(mine)[name], array)


def test_dropout_goes_on_from_a_seed_of_its_own(batch):
    network = wrap({"dropout_rate": 0.5})
    step = GradientStep(network.online, loss)

    def gradient():
        return np.concatenate([array.ravel() for array in step(batch).gradients.values()])

    step.reseed(np.random.SeedSequence(1))
    first, second = gradient(), gradient()
    assert not np.array_equal(first, second)
    step.reseed(np.random.SeedSequence(1))
    np.testing.assert_array_equal(gradient(), first)
    step.reseed(np.random.SeedSequence(2))
    assert not np.array_equal(gradient(), first)
    assert traces(step) == 1
