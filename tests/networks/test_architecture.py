import numpy as np
import pytest

from distrl.config.network import EmbedderParameters, MiddlewareParameters, NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.architecture import Architecture
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

VECTOR = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, DiscreteSpec(2))
TWO = EnvSpec(
    "Two-v0", {"camera": ArraySpec((2, 2), "uint8"), "speed": ArraySpec((), "float32")}, DiscreteSpec(3, start=-1)
)
BOTH = ("policy", "value")


def build(spec=VECTOR, heads=BOTH, seed=1, **parameters):
    small = {"middleware_parameters": MiddlewareParameters(units=(8,))} | parameters
    return Architecture(NetworkParameters(**small), spec, heads, "main", seed)


def single_weight(value):
    """An architecture whose first weight holds `value` everywhere."""
    network = build()
    network.set_weights([np.full_like(array, value) for array in network.get_weights()])
    return network


def test_weights_have_stable_paths():
    network = build(input_embedders_parameters={"observation": EmbedderParameters(units=(5,))})
    assert list(network.named_weights()) == [variable.path for variable in network.model.weights]
    assert {path: array.shape for path, array in network.named_weights().items()} == {
        "main/embedder_observation_dense_0/kernel": (4, 5),
        "main/embedder_observation_dense_0/bias": (5,),
        "main/middleware_dense_0/kernel": (5, 8),
        "main/middleware_dense_0/bias": (8,),
        "main/policy_head/kernel": (8, 2),
        "main/policy_head/bias": (2,),
        "main/value_head/kernel": (8, 1),
        "main/value_head/bias": (1,),
    }


def test_seed_decides_every_bit():
    first, again, other = build(seed=7), build(seed=7), build(seed=8)
    assert list(first.named_weights()) == list(again.named_weights())
    for path, array in first.named_weights().items():
        np.testing.assert_array_equal(array, again.named_weights()[path])
    assert not np.array_equal(first.get_weights()[0], other.get_weights()[0])


def test_observations_are_embedded_apart_and_merged():
    network = build(TWO, input_embedders_parameters={"camera": EmbedderParameters(input_rescaling=255.0)})
    kernel, bias = (network.named_weights()[f"main/middleware_dense_0/{part}"] for part in ("kernel", "bias"))
    policy = network.named_weights()["main/policy_head/kernel"]
    camera = np.array([[[0, 255], [51, 102]]], np.uint8)
    merged = np.array([[0.0, 1.0, 0.2, 0.4, -2.0]], np.float32)
    logits = network.predict({"camera": camera, "speed": np.array([-2.0], np.float32)}, outputs=["logits"])
    np.testing.assert_allclose(logits, np.tanh(merged @ kernel + bias) @ policy, atol=1e-6)


def test_unroll_keeps_time_and_sequences_apart():
    network = build(TWO)
    rng = np.random.default_rng(0)
    observations = {
        "camera": rng.integers(0, 3, (4, 3, 2, 2)).astype(np.uint8),
        "speed": rng.standard_normal((4, 3)).astype(np.float32),
    }
    outputs = network.unroll(observations, {}, np.ones((3, 3), bool))
    assert {name: tuple(output.shape) for name, output in outputs.items()} == {"logits": (4, 3, 3), "value": (4, 3)}
    for row in range(4):
        logits, value = network.predict({name: array[row] for name, array in observations.items()})
        np.testing.assert_allclose(np.asarray(outputs["logits"])[row], logits, atol=1e-6)
        np.testing.assert_allclose(np.asarray(outputs["value"])[row], value, atol=1e-6)


@pytest.mark.row("B03")
def test_predict_returns_what_is_asked_for():
    inputs = {"observation": np.ones((3, 4), np.float32)}
    network = build()
    both = network.predict(inputs)
    assert [array.shape for array in both] == [(3, 2), (3,)]
    assert np.array_equal(network.predict(inputs, outputs=["value"]), both[1])
    bare = network.predict(inputs, outputs=["value"], squeeze_output=False)
    assert isinstance(bare, list)
    assert len(bare) == 1
    assert build(heads=("policy",)).predict(inputs).shape == (3, 2)
    with pytest.raises(ValueError, match="no output 'advantage'; there are logits, value"):
        network.predict(inputs, outputs=["advantage"])


@pytest.mark.row("B14")
def test_get_weights_returns_copies_in_stable_order():
    network = build()
    assert [array.shape for array in network.get_weights()] == [array.shape for array in build().get_weights()]
    before = network.get_weights()
    for array in (*network.get_weights(), *network.named_weights().values()):
        array[...] = 9.0
    for array, old in zip(network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.row("B15")
@pytest.mark.parametrize(("rate", "expected"), [(0.25, 1.0), (1.0, 4.0), (0.0, 0.0)])
def test_set_weights_mixes(rate, expected):
    network = single_weight(0.0)
    network.set_weights([np.full_like(array, 4.0) for array in network.get_weights()], rate)
    for array in network.get_weights():
        np.testing.assert_array_equal(array, np.full_like(array, expected))


@pytest.mark.row("B15")
@pytest.mark.parametrize(
    ("spoil", "rate", "message"),
    [
        (lambda weights: weights[:-1], 1.0, "5 weights given, network main has 6"),
        (lambda weights: [*weights[:-1], np.zeros(7, np.float32)], 1.0, r"has shape \(.*\), given \(7,\)"),
        (lambda weights: [*weights[:-1], np.full_like(weights[-1], np.nan)], 1.0, "not finite"),
        (lambda weights: [*weights[:-1], np.full_like(weights[-1], np.inf)], 0.5, "not finite"),
        (lambda weights: weights, -0.1, r"rate must be in \[0, 1\]"),
        (lambda weights: weights, 1.1, r"rate must be in \[0, 1\]"),
        (lambda weights: weights, float("nan"), r"rate must be in \[0, 1\]"),
    ],
)
def test_set_weights_refuses_and_changes_nothing(spoil, rate, message):
    network = single_weight(1.0)
    with pytest.raises(ValueError, match=message):
        network.set_weights(spoil([np.full_like(array, 4.0) for array in network.get_weights()]), rate)
    for array in network.get_weights():
        np.testing.assert_array_equal(array, np.ones_like(array))


@pytest.mark.parametrize(("rate", "expected"), [(0.5, 4.0), (0.0, 1.0), (1.0, 4.0)])
def test_what_is_not_trainable_is_copied_and_never_mixed(rate, expected):
    network, source = single_weight(1.0), single_weight(4.0)
    network.model.layers[-1].trainable = False
    frozen = network.model.layers[-1].weights
    assert frozen
    network.set_weights(source.get_weights(), rate)
    for variable in frozen:
        np.testing.assert_array_equal(np.asarray(variable), np.full(variable.shape, expected, np.float32))
    pulled = single_weight(1.0)
    pulled.model.layers[-1].trainable = False
    pulled.pull(source, rate)
    for mine, other in zip(pulled.get_weights(), network.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_pull_refuses_a_rate_outside_the_interval():
    network = single_weight(1.0)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        network.pull(single_weight(2.0), 1.5)
    np.testing.assert_array_equal(network.get_weights()[0], np.ones((4, 8), np.float32))


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="no observation 'foo'; there are observation"):
        build(input_embedders_parameters={"foo": EmbedderParameters()})
    with pytest.raises(ValueError, match="unknown head 'q'; there are policy, value"):
        build(heads=("q",))


def test_str_tells_inputs_outputs_and_size():
    assert str(build()) == "observation[4] -> logits[2], value[]; 67 weights in 6 arrays"
