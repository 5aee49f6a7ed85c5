import keras
import numpy as np
import pytest

from distrl.config.heads import (
    PolicyHeadParameters,
    PPOHeadParameters,
    QValueHeadParameters,
    ValueHeadParameters,
)
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.network import Network
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

VALUE = (ValueHeadParameters(),)
LINE = {"middleware_parameters": {"scheme": "Empty"}, "optimizer_type": "SGD", "learning_rate": 0.1}
ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
X = {"observation": ROWS}
ONES = np.ones(3, np.float32)
TARGETS = [{"actions": {"action": np.array([0, 1, 1], np.int32)}, "advantages": np.float32([1.0, -2.0, 0.5])}, ONES]
ONE_NUMBER = EnvSpec("Line-v0", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(2)})
KERNEL = "main/value_head/kernel"


@pytest.fixture
def line(build):
    """value = kernel . observation + bias, plain gradient descent at 0.1; kernel and bias start at 0."""

    def make(spec=None, **parameters):
        network = build(*([spec] if spec else []), heads=VALUE, **(LINE | parameters))
        fill(network, 0.0)
        return network

    return make


def fill(network, value):
    network.set_weights([np.full_like(array, value) for array in network.get_weights()])


def assert_equal(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_have_stable_paths(build):
    network = build(input_embedders_parameters={"observation": {"scheme": [5]}})
    assert list(network.named_weights()) == [variable.path for variable in network.model.weights]
    assert {path: array.shape for path, array in network.named_weights().items()} == {
        "main/embedder_observation_dense_0/kernel": (4, 5),
        "main/embedder_observation_dense_0/bias": (5,),
        "main/middleware_dense_0/kernel": (5, 8),
        "main/middleware_dense_0/bias": (8,),
        "main/policy_head_action/kernel": (8, 2),
        "main/policy_head_action/bias": (2,),
        "main/value_head/kernel": (8, 1),
        "main/value_head/bias": (1,),
    }


def test_seed_decides_every_bit(build):
    first, again, other = (build(seed=seed).named_weights() for seed in (7, 7, 8))
    assert list(first) == list(again)
    assert_equal(first.values(), again.values())
    for path in first:
        assert path.endswith("bias") or not np.array_equal(first[path], other[path]), path


@pytest.mark.row("B02", "F04")
def test_built_from_cartpoles_spaces_it_predicts(build):
    cartpole = EnvSpec("CartPole-v1", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
    network = build(cartpole, (PolicyHeadParameters(),))
    kernel, bias, last, last_bias = network.get_weights()
    expected = np.maximum(ROWS[:1] @ kernel + bias, 0.0) @ last + last_bias
    output = network.predict({"observation": ROWS[:1]})
    assert output.shape == (1, 2)
    np.testing.assert_allclose(output, expected, atol=1e-6)


@pytest.mark.row("B03")
def test_predict_returns_what_is_asked_for(build):
    network = build()
    both = network.predict(X)
    assert [array.shape for array in both] == [(3, 2), (3,)]
    np.testing.assert_array_equal(network.predict(X, outputs=["value"]), both[1])
    assert_equal(network.predict(X, outputs=["value", "policy/action"]), both[::-1])
    bare = network.predict(X, outputs=["value"], squeeze_output=False)
    assert isinstance(bare, list)
    np.testing.assert_array_equal(bare[0], both[1])
    single = build(heads=(PolicyHeadParameters(),))
    assert single.predict(X).shape == (3, 2)
    assert [array.shape for array in single.predict(X, squeeze_output=False)] == [(3, 2)]


@pytest.mark.row("F06")
@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (X, ["advantage"], "unknown output 'advantage'; choose from policy/action, value"),
        ({"foo": ROWS}, None, "network main has no input 'foo'; choose from observation"),
        (X | {"foo": ROWS}, None, "network main has no input 'foo'; choose from observation"),
        ({}, None, "network main: input 'observation' is missing"),
        ({"observation": np.ones((3, 5), np.float32)}, None, r"expected shape=\(None, 4\), found shape=\(3, 5\)"),
    ],
)
def test_predict_refuses_what_does_not_fit(build, inputs, outputs, message):
    with pytest.raises(ValueError, match=message) as raised:
        build().predict(inputs, outputs)
    assert "\n" not in str(raised.value)


@pytest.mark.row("A13")
def test_without_heads_there_is_no_network(build):
    with pytest.raises(ConfigError, match=r"network\.heads_parameters: a network needs at least one head"):
        build(heads=())


@pytest.mark.row("B10", "T02")
def test_applied_gradients_are_scaled_and_the_callers_stay(line):
    """g 2, scaler 0.5, rate 0.1: the weights move by -0.1."""
    network = line()
    given = [np.full(weight.shape, 2.0) for weight in network.get_weights()]  # float64, as NumPy makes it
    network.apply_gradients(given, 0.5)
    for weight in network.get_weights():
        np.testing.assert_allclose(weight, np.full_like(weight, -0.1), rtol=1e-6)
    for gradient in given:
        np.testing.assert_array_equal(gradient, np.full_like(gradient, 2.0))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(4, 1)], "1 gradients given, network main has 2 weights"),
        ([(4, 1), (1,), (1,)], "3 gradients given, network main has 2 weights"),
        ([(4, 1), ()], r"gradient of main/value_head/bias has shape \(\), not \(1,\)"),  # nothing is broadcast
        ([(1, 4), (1,)], r"gradient of main/value_head/kernel has shape \(1, 4\), not \(4, 1\)"),
    ],
)
def test_gradients_that_do_not_fit_are_refused(line, shapes, message):
    network = line()
    with pytest.raises(ValueError, match=message):
        network.apply_gradients([np.ones(shape, np.float32) for shape in shapes])
    assert not any(weight.any() for weight in network.get_weights())


@pytest.mark.row("B14")
def test_get_weights_returns_copies_in_stable_order(build):
    network, twin = build(), build()
    assert [array.shape for array in network.get_weights()] == [array.shape for array in twin.get_weights()]
    assert list(network.named_weights()) == list(twin.named_weights())
    before = network.get_weights()
    for array in (*network.get_weights(), *network.named_weights().values(), *network.policy_weights().values()):
        array[...] = 9.0
    assert_equal(network.get_weights(), before)


@pytest.mark.row("B15")
@pytest.mark.parametrize(("rate", "expected"), [(0.25, 1.0), (1.0, 4.0), (0.0, 0.0)])
def test_set_weights_mixes(build, rate, expected):
    network = build()
    fill(network, 0.0)
    network.set_weights([np.full_like(array, 4.0) for array in network.get_weights()], rate)
    for array in network.get_weights():
        np.testing.assert_array_equal(array, np.full_like(array, expected))


@pytest.mark.row("B15", "G11")
@pytest.mark.parametrize(
    ("spoil", "rate", "message"),
    [
        (lambda weights: weights[:-1], 1.0, "5 weights given, network main has 6"),
        (lambda weights: [*weights, weights[0]], 1.0, "7 weights given, network main has 6"),
        (lambda weights: [*weights[:-1], np.zeros(7, np.float32)], 1.0, r"has shape \(1,\), given \(7,\)"),
        (lambda weights: [*weights[:-1], np.full_like(weights[-1], np.nan)], 1.0, "not finite"),
        (lambda weights: [*weights[:-1], np.full_like(weights[-1], np.inf)], 0.5, "not finite"),
        (lambda weights: weights, -0.1, r"rate must be in \[0, 1\], not -0.1"),
        (lambda weights: weights, 1.1, r"rate must be in \[0, 1\], not 1.1"),
        (lambda weights: weights, float("nan"), r"rate must be in \[0, 1\], not nan"),
    ],
)
def test_set_weights_refuses_and_changes_nothing(build, spoil, rate, message):
    network = build()
    fill(network, 1.0)
    with pytest.raises(ValueError, match=message) as raised:
        network.set_weights(spoil([np.full_like(array, 4.0) for array in network.get_weights()]), rate)
    assert "\n" not in str(raised.value)
    for array in network.get_weights():
        np.testing.assert_array_equal(array, np.ones_like(array))


@pytest.mark.parametrize(("rate", "trained", "kept"), [(0.5, 2.5, 4.0), (0.0, 1.0, 1.0), (1.0, 4.0, 4.0)])
@pytest.mark.parametrize("way", ["set_weights", "pull"])
def test_what_is_not_trained_is_copied_and_never_mixed(build, way, rate, trained, kept):
    """Moving averages are of some batches, not between two of them."""
    network, source = (build(middleware_parameters={"scheme": [3], "batchnorm": True}) for _ in range(2))
    fill(network, 1.0)
    fill(source, 4.0)
    if way == "pull":
        network.pull(source, rate)
    else:
        network.set_weights(source.get_weights(), rate)
    averages = [array for name, array in network.named_weights().items() if "moving" in name]
    others = [array for name, array in network.named_weights().items() if "moving" not in name]
    assert len(averages) == 2
    assert all(np.all(array == kept) for array in averages)
    assert all(np.all(array == trained) for array in others)


def test_pull_refuses_a_rate_outside_the_interval(build):
    network, source = build(), build(seed=2)
    before = network.get_weights()
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        network.pull(source, 1.5)
    assert_equal(network.get_weights(), before)


def test_a_heads_number_is_part_of_what_is_kept(build):
    network = build(heads=(PPOHeadParameters(initial_kl_coefficient=0.2),))
    assert float(np.asarray(network.variables["main/policy_head_kl_coefficient"])) == pytest.approx(0.2)
    assert "main/policy_head_kl_coefficient" not in network.named_weights()


LSTM = {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 3}}


@pytest.mark.row("B21", "L13")
def test_state_goes_in_and_comes_out_and_nothing_is_kept(build, disturb):
    network = build(heads=VALUE, **LSTM)
    disturb(network, 1)
    first = network.predict(X)
    np.testing.assert_array_equal(network.predict(X), first)  # one call repeated is the first step again
    value, h, c = network.predict(X, ["value", "next_lstm_h", "next_lstm_c"])
    np.testing.assert_array_equal(value, first)
    second = network.predict(X | {"lstm_h": h, "lstm_c": c})
    assert np.abs(second - first).max() > 1e-2
    zeros = np.zeros((3, 3), np.float32)
    np.testing.assert_array_equal(network.predict(X | {"lstm_h": zeros, "lstm_c": zeros}), first)


@pytest.mark.row("L20", "L13")
def test_a_network_tells_whether_it_has_memory(build):
    with_memory, without = build(**LSTM), build()
    assert with_memory.recurrent_state == {
        "lstm_h": ArraySpec((3,), "float32"),
        "lstm_c": ArraySpec((3,), "float32"),
    }
    assert list(with_memory.model.output) == ["policy/action", "value", "next_lstm_h", "next_lstm_c"]
    assert list(with_memory.outputs) == ["policy/action", "value"]
    assert without.recurrent_state == {}
    assert list(without.model.output) == ["policy/action", "value"]


@pytest.mark.row("A10")
def test_inputs_are_embedded_by_what_they_are():
    spec = EnvSpec(
        "Two-v0",
        {"observation": ArraySpec((8,), "float32"), "camera": ArraySpec((84, 84, 4), "uint8", 0, 255)},
        {"action": DiscreteSpec(2)},
    )
    parameters = NetworkParameters(
        input_embedders_parameters={"observation": {"scheme": "Medium"}, "camera": {}},
        middleware_parameters={"scheme": [4]},
    )
    network = Network(parameters, spec, VALUE, "main", 1)
    shapes = {path: array.shape for path, array in network.named_weights().items() if path.endswith("kernel")}
    assert shapes == {
        "main/embedder_observation_dense_0/kernel": (8, 256),
        "main/embedder_camera_conv2d_0/kernel": (8, 8, 4, 32),
        "main/embedder_camera_conv2d_1/kernel": (4, 4, 32, 64),
        "main/embedder_camera_conv2d_2/kernel": (3, 3, 64, 64),
        "main/middleware_dense_0/kernel": (3136 + 256, 4),
        "main/value_head/kernel": (4, 1),
    }


@pytest.mark.row("A10")
def test_the_action_is_an_input_where_a_head_takes_it(build):
    network = build(heads=(QValueHeadParameters(),), input_embedders_parameters={"action": {"scheme": [5]}})
    assert list(network.model.input) == ["observation", "action"]
    assert network.named_weights()["main/embedder_action_dense_0/kernel"].shape == (1, 5)
    values = [network.predict(X | {"action": np.full(3, choice, np.int32)}) for choice in (0, 1)]
    assert np.abs(values[0] - values[1]).min() > 1e-4


@pytest.mark.row("A10")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("foo", "network.input_embedders_parameters: no input 'foo'; there are observation"),
        ("action", "network.input_embedders_parameters: 'action', but no head takes the action"),
    ],
)
def test_embedders_of_what_is_no_input_are_refused(build, name, message):
    with pytest.raises(ConfigError, match=message):
        build(input_embedders_parameters={name: {}})


def test_an_observation_must_not_have_the_name_of_a_state(build):
    spec = EnvSpec("Odd-v0", {"lstm_h": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
    with pytest.raises(ConfigError, match="observation 'lstm_h' has the name of a recurrent state"):
        build(spec, **LSTM)


def test_a_twin_in_float32_has_the_same_weights_by_name(build):
    network = build(compute_dtype="bfloat16")
    twin = network.in_float32()
    assert (twin.parameters.compute_dtype, list(twin.policy_variables)) == ("float32", list(network.policy_variables))
    assert all(isinstance(variable, keras.Variable) for variable in twin.policy_variables.values())
    assert build().in_float32().parameters.compute_dtype == "float32"
