"""Looks at losses, gradients and activations: as the update has them, by hand, and nothing moves."""

import numpy as np
import pytest
from keras import ops

from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.networks.inspection import Activations, LossInspection, few_sequences
from distrl.types import Batch
from tests.traces import traces

T, N = 2, 3
VALUE = (ValueHeadParameters(),)


def loss(outputs, batch):
    error = outputs["value"][:-1] - batch.rewards
    return {"value": ops.mean(error * error)}, {}


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    nothing = np.zeros((T, N), np.float32)
    return Batch(
        observations={"observation": rng.standard_normal((T + 1, N, 4)).astype(np.float32)},
        actions={"action": np.zeros((T, N), np.int32)},
        rewards=rng.standard_normal((T, N)).astype(np.float32),
        terminated=nothing.astype(bool),
        truncated=nothing.astype(bool),
        valid=np.array([[True, True, True], [True, False, True]]),
        behaviour_log_probabilities=nothing,
        recurrent_state={},
        importance_weights=np.ones(N, np.float32),
    )


def loss_by_hand(network, batch):
    """The value head's mean squared error, tanh units below it, by NumPy."""
    named = network.online.named_weights()
    kernel, bias = (named[f"main/middleware_dense_0/{name}"] for name in ("kernel", "bias"))
    head, offset = (named[f"main/value_head/{name}"] for name in ("kernel", "bias"))
    hidden = np.tanh(batch.observations["observation"][:-1].astype(np.float64) @ kernel + bias)
    return np.mean(np.square((hidden @ head + offset)[..., 0] - batch.rewards))


TANH = {"middleware_parameters": {"scheme": [5], "activation": "tanh"}}


@pytest.mark.row("P02.1")
def test_a_loss_is_what_is_minimised_and_its_terms_are_in_it(wrap, batch):
    network = wrap(heads=VALUE, l2_regularization=0.5, **TANH)
    squares = sum(float(np.square(array).sum()) for array in network.online.named_weights().values())
    found = LossInspection({"main": network}, network.objective(loss))(batch)
    assert found.regularization == {"main/0": pytest.approx(0.25 * squares, rel=1e-5)}
    assert found.loss - found.regularization["main/0"] == pytest.approx(loss_by_hand(network, batch), rel=1e-4)


@pytest.mark.row("P02.11")
def test_every_term_of_regularization_by_itself(wrap, batch):
    scheme = [{"kind": "dense", "units": 5, "l1": 0.25}]
    network = wrap(heads=VALUE, l2_regularization=0.5, middleware_parameters={"scheme": scheme})
    (kernel,) = [array for name, array in network.online.named_weights().items() if name.endswith("dense_0/kernel")]
    found = LossInspection({"main": network}, network.objective(loss))(batch)
    assert [*found.regularization] == ["main/0", "main/1"]
    assert found.regularization["main/1"] == pytest.approx(0.25 * float(np.abs(kernel).sum()), rel=1e-5)


@pytest.mark.row("P02.8")
def test_gradients_by_finite_differences(wrap, batch):
    network = wrap(heads=VALUE, **TANH)
    gradients = LossInspection({"main": network}, network.objective(loss))(batch).gradients
    trainable = {name: variable for name, variable in network.online.variables.items() if variable.trainable}
    assert gradients.keys() == trainable.keys()
    for name, variable in trainable.items():
        before, slopes = np.array(variable), np.zeros(variable.shape)
        for index in np.ndindex(*variable.shape):
            around = []
            for step in (0.01, -0.01):
                moved = before.copy()
                moved[index] += step
                variable.assign(moved)
                around.append(loss_by_hand(network, batch))
            slopes[index] = (around[0] - around[1]) / 0.02
        variable.assign(before)
        np.testing.assert_allclose(gradients[name], slopes, atol=2e-3)


def test_nothing_moves_and_it_is_compiled_once(wrap, batch):
    middleware = {"scheme": [5], "batchnorm": True, "dropout_rate": 0.5}
    network = wrap(has_target=True, heads=VALUE, middleware_parameters=middleware)
    look = LossInspection({"main": network}, network.objective(loss))
    before = network.state_arrays()
    told = [look(batch) for _ in range(2)]
    assert traces(look) == 1
    assert told[0].loss == told[1].loss  # no generator of dropout has moved on
    for group, arrays in network.state_arrays().items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, before[group][name], err_msg=name)


def test_weights_of_the_moment_are_seen_the_target_copys_as_well(wrap, batch):
    def to_target(outputs, batch):
        return {"value": ops.mean(ops.square(outputs["value"] - outputs["target/value"] - 1.0))}, {}

    network = wrap(has_target=True, heads=VALUE)
    look = LossInspection({"main": network}, network.objective(to_target))
    assert look(batch).loss == pytest.approx(1.0)
    offset = network.target.variables["main/value_head/bias"]
    offset.assign(np.array(offset) - 1.0)
    assert look(batch).loss == pytest.approx(0.0, abs=1e-6)
    offset = network.online.variables["main/value_head/bias"]
    offset.assign(np.array(offset) + 2.0)
    assert look(batch).loss == pytest.approx(4.0)


@pytest.mark.row("P02.14")
@pytest.mark.parametrize(("activation", "layer"), [("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0.0))])
def test_activations_by_hand(build, batch, activation, layer):
    heads = (PolicyHeadParameters(), ValueHeadParameters(units=(2,)))
    network = build(heads=heads, middleware_parameters={"scheme": [5], "activation": activation})
    named = network.named_weights()
    rows = batch.observations["observation"][:-1][batch.valid]
    hidden = layer(rows @ named["main/middleware_dense_0/kernel"] + named["main/middleware_dense_0/bias"])
    found = Activations(network)(batch)
    np.testing.assert_allclose(found["middleware_dense_0_activation"], hidden, atol=1e-5)
    assert found.keys() >= {"middleware_dense_0_activation", "value_head_hidden_0"}
    assert all(len(rows) == 5 for rows in found.values())  # those that are valid


def test_few_sequences_are_whole_ones(batch):
    assert few_sequences(batch, 4).valid.shape == (T, 2)
    assert few_sequences(batch, 1).observations["observation"].shape == (T + 1, 1, 4)
    assert few_sequences(batch, 100).valid.shape == (T, N)
