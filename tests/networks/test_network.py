import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from distrl.coach.architecture import Architecture
from distrl.config.heads import (
    DeterministicPolicyHeadParameters,
    NAFHeadParameters,
    PolicyHeadParameters,
    QHeadParameters,
    ValueHeadParameters,
)
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.deterministic import DeterministicSpec
from distrl.networks.actions.values import ValuesSpec
from distrl.networks.framework.backend import Gradients
from distrl.networks.framework.differentiation import PureLoss
from distrl.networks.network import Network
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec

ROOT = Path(__file__).resolve().parents[2]
ROWS = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
X = {"observation": ROWS}
Q_AND_VALUE = (QHeadParameters(), ValueHeadParameters())
Q_TARGETS = {"actions": np.zeros(6, np.int32), "targets": np.ones(6, np.float32)}
NO_TARGETS = {"actions": np.zeros(6, np.int32)}
EMBEDDED = {"input_embedders_parameters": {"observation": {"scheme": [5]}}}
PICTURE = EnvSpec(
    "Picture-v0",
    {"camera": ArraySpec((9, 9, 3), "uint8", 0, 255), "speed": ArraySpec((2,), "float32")},
    {"action": DiscreteSpec(3)},
)


@pytest.fixture
def own_model(monkeypatch):
    """examples/own_network.py can be imported, as from a checkout."""
    monkeypatch.syspath_prepend(str(ROOT))
    yield "examples.own_network:Attention"
    sys.modules.pop("examples.own_network", None)


def gradients_by_name(network, targets):
    by_coach = Architecture(network)
    by_coach.accumulate_gradients(X, targets)
    names = [variable.path for variable in network.model.trainable_variables]
    return dict(zip(names, by_coach.accumulated_gradients, strict=True))


@pytest.mark.row("A14")
def test_heads_with_networks_of_their_own_share_nothing(build):
    shared = build(heads=Q_AND_VALUE, **EMBEDDED)
    network = build(heads=Q_AND_VALUE, use_separate_networks_per_head=True, **EMBEDDED)
    trunk = 4 * 5 + 5 + 5 * 8 + 8
    heads = 8 * 2 + 2 + 8 + 1
    assert shared.model.count_params() == trunk + heads
    assert network.model.count_params() == 2 * trunk + heads
    values = network.predict(X, ["value"])
    gradients = gradients_by_name(network, [Q_TARGETS, values])  # the value's error is 0, so all is of the Q head
    for name, gradient in gradients.items():
        assert gradient.any() == name.startswith("main/q_"), name
    assert {name for name in gradients if "embedder" in name} == {
        f"main/{head}_embedder_observation_dense_0/{part}" for head in ("q", "value") for part in ("kernel", "bias")
    }


@pytest.mark.row("A14")
def test_networks_of_their_own_start_apart(build):
    network = build(heads=Q_AND_VALUE, use_separate_networks_per_head=True)
    kernels = [network.named_weights()[f"main/{head}_middleware_dense_0/kernel"] for head in ("q", "value")]
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-2


TWO_INPUTS = {"kind": "graph", "blocks": {"output": {"inputs": ["camera", "speed"], "layers": [6]}}}
RESIDUAL = {"scheme": [6, {"kind": "residual", "layers": [6]}, {"kind": "dueling", "units": 6, "bias": True}]}


@pytest.mark.parametrize(
    "middleware", [TWO_INPUTS, RESIDUAL, {"kind": "gru", "scheme": [6]}], ids=lambda given: str(given)
)
def test_every_dense_layer_and_convolution_may_begin_uniform(build, middleware):
    embedders = {"camera": {"scheme": [{"kind": "conv2d", "filters": 3}, 5]}, "speed": {"scheme": [5]}}
    network = build(
        spec=PICTURE,
        heads=(QHeadParameters(units=(4,)), ValueHeadParameters()),
        input_embedders_parameters=embedders,
        middleware_parameters=middleware,
        initial_weights="uniform",
    )
    weights = network.named_weights()
    begun = [name.removesuffix("/kernel") for name in weights if name.endswith("/kernel") and "_gru/" not in name]
    assert len(begun) >= 6  # a convolution, embedders, middleware and heads
    for layer in begun:
        kernel, bias = weights[f"{layer}/kernel"], weights[f"{layer}/bias"]
        bound = np.prod(kernel.shape[:-1]) ** -0.5
        assert 0.0 < np.abs(bias).max() <= bound, layer
        assert 0.5 * bound < np.abs(kernel).max() <= bound, layer


def test_one_head_alone_is_as_without(build):
    alone = build(heads=(ValueHeadParameters(),), use_separate_networks_per_head=True)
    assert list(alone.named_weights()) == list(build(heads=(ValueHeadParameters(),)).named_weights())


@pytest.mark.row("D06")
@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_a_heads_gradient_into_what_is_shared_is_scaled(build, factor):
    plain = build(heads=Q_AND_VALUE)
    scaled = build(heads=(QHeadParameters(rescale_gradient_from_head_by_factor=factor), ValueHeadParameters()))
    for one, other in zip(plain.predict(X), scaled.predict(X), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    targets = [Q_TARGETS, plain.predict(X, ["value"])]  # nothing comes from the value head
    whole, parts = (gradients_by_name(network, targets) for network in (plain, scaled))
    for name in whole:
        expected = (factor if "middleware" in name else 1.0) * whole[name]
        np.testing.assert_allclose(parts[name], expected, rtol=1e-4, atol=1e-7, err_msg=name)


@pytest.mark.row("D06")
def test_loss_weights_scale_and_copies_multiply(build):
    heads = (QHeadParameters(num_output_head_copies=3, loss_weight=0.5),)
    network = build(heads=heads)
    assert list(network.outputs) == [f"q_{index}/{part}" for index in range(3) for part in ("q", "softmax")]
    told = Architecture(network).accumulate_gradients(X, [Q_TARGETS] * 3)
    q = [network.predict(X, [f"q_{index}/q"])[:, 0] for index in range(3)]
    assert told.losses == pytest.approx([0.5 * np.mean((1.0 - one) ** 2 / 2) for one in q], rel=1e-5)


def test_outputs_and_distributions_are_told(build):
    network = build()
    assert network.outputs == {"policy/action": (2,), "value": ()}
    assert [spec.kind for spec in network.actions.values()] == ["categorical"]
    assert build(heads=Q_AND_VALUE).actions == {"action": ValuesSpec(2, "q/q")}
    assert build(heads=(ValueHeadParameters(),)).actions == {}
    assert network.normalizations == []


@pytest.mark.parametrize(
    ("head", "output"), [(DeterministicPolicyHeadParameters(), "deterministic_policy"), (NAFHeadParameters(), "naf/mu")]
)
def test_heads_that_put_out_an_action_act(build, head, output):
    spec = EnvSpec(
        "Box-v0", {"observation": ArraySpec((4,), "float32")}, {"arm": BoxSpec((2,), (-2.0, 0.0), (2.0, 0.1))}
    )
    network = build(spec=spec, heads=(head,))
    (action, how), *others = network.actions.items()
    assert (action, others) == ("arm", [])
    assert how == DeterministicSpec((-2.0, 0.0), (2.0, float(np.float32(0.1))), output)
    assert network.outputs[output] == (how.parameters_size,)


def test_the_policy_acts_and_not_another_head(build):
    heads = (QHeadParameters(), PolicyHeadParameters())
    assert build(heads=heads).actions == {"action": CategoricalSpec(2)}
    assert build(heads=(PolicyHeadParameters(num_output_head_copies=2),)).actions == {}


@pytest.mark.row("L08.10", "L08.12")
@pytest.mark.parametrize("separate", [False, True])
def test_unrolls_take_every_head_through_its_own_trunk(build, batch_for, separate):
    network = build(
        PICTURE,
        (PolicyHeadParameters(), ValueHeadParameters()),
        use_separate_networks_per_head=separate,
        input_embedders_parameters={"camera": {"scheme": [{"kind": "conv2d", "filters": 2}]}},
    )
    batch = batch_for(network, 2, 3)
    outputs = network.unroll(batch.observations, {}, batch.valid)
    for row in range(3):
        for name, computed in outputs.items():
            expected = network.predict({key: rows[row] for key, rows in batch.observations.items()}, [name])
            np.testing.assert_allclose(np.asarray(computed)[row], expected, atol=1e-5, err_msg=name)


MEMORIES = [
    {"scheme": [16]},
    {"kind": "lstm", "number_of_lstm_cells": 8},
    {"kind": "gru", "number_of_gru_cells": 8},
]


@pytest.mark.parametrize("middleware", MEMORIES, ids=["fc", "lstm", "gru"])
def test_16_bits_of_computing_are_near_and_weights_stay_whole(build, batch_for, middleware):
    """A bfloat16 has 8 bits of mantissa: a relative error of 2^-9 in every rounding."""
    exact = build(middleware_parameters=middleware, **EMBEDDED)
    network = build(middleware_parameters=middleware, compute_dtype="bfloat16", **EMBEDDED)
    assert keras.config.dtype_policy().name == "float32"
    for name, array in network.named_weights().items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, exact.named_weights()[name])
    batch = batch_for(network, 5, 4)
    outputs = [one.unroll(batch.observations, batch.recurrent_state, batch.valid) for one in (exact, network)]
    for name in outputs[0]:
        reference, computed = (np.asarray(output[name]) for output in outputs)
        assert computed.dtype == np.float32
        difference = np.abs(reference - computed).max()
        assert 0.0 < difference < 0.03 * np.abs(reference).max(), name


def test_a_users_model_takes_the_place_of_embedders_and_merger(build, own_model, inputs_for):
    network = build(PICTURE, model=own_model, model_arguments={"filters": 4})
    weights = network.named_weights()
    assert weights["main/model/conv2d/kernel"].shape == (3, 3, 3, 4)
    assert weights["main/middleware_dense_0/kernel"].shape == (4 + 2, 8)
    inputs = inputs_for(PICTURE, 3)
    x = np.zeros((3, 4, 4, 4), np.float32)
    for row in range(4):
        for column in range(4):
            window = inputs["camera"][:, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3].astype(np.float32) / 255
            x[:, row, column] = np.tensordot(window, weights["main/model/conv2d/kernel"], 3)
    places = np.maximum(x + weights["main/model/conv2d/bias"], 0.0).reshape(3, 16, 4)
    query, key, value = (
        np.einsum("bpf,fhk->bhpk", places, weights[f"main/model/multi_head_attention/{part}/kernel"])
        + weights[f"main/model/multi_head_attention/{part}/bias"][:, None, :]
        for part in ("query", "key", "value")
    )
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(2.0)
    shares = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    output = "main/model/multi_head_attention/attention_output"
    attended = np.einsum("bhpk,hkf->bpf", shares @ value, weights[f"{output}/kernel"]) + weights[f"{output}/bias"]
    merged = np.concatenate([(places + attended).mean(axis=1), inputs["speed"]], axis=-1)
    features = np.maximum(
        merged @ weights["main/middleware_dense_0/kernel"] + weights["main/middleware_dense_0/bias"], 0.0
    )
    expected = features @ weights["main/value_head/kernel"][:, 0] + weights["main/value_head/bias"]
    np.testing.assert_allclose(network.predict(inputs, ["value"]), expected, atol=1e-5)


def test_copies_of_a_users_model_have_the_same_names_and_weights(build, own_model):
    """Keras counts the layers inside through the process; the names do not."""
    first, second = (build(PICTURE, model=own_model) for _ in range(2))
    assert [v.path for v in first.model.variables] != [v.path for v in second.model.variables]
    assert list(first.variables) == list(second.variables)
    for name, array in first.named_weights().items():
        np.testing.assert_array_equal(array, second.named_weights()[name], err_msg=name)


def test_generators_of_keras_layers_have_the_same_names_in_every_copy(build):
    noise = [
        {"kind": "custom", "layer": "keras.layers:GaussianNoise", "arguments": {"stddev": 0.5}},
        {"kind": "custom", "layer": "keras.layers:Dropout", "arguments": {"rate": 0.5}},
    ]
    first, second = (build(middleware_parameters={"scheme": noise}) for _ in range(2))
    assert list(first.variables) == list(second.variables)
    assert len(first.variables) == len(first.model.variables) == 6


def test_its_gradient_is_that_of_finite_differences(build, batch_for):
    """Through embedder, LSTM with restarts, and heads at once."""
    network = build(middleware_parameters={"kind": "lstm", "number_of_lstm_cells": 3, "scheme": [3]}, **EMBEDDED)
    batch = batch_for(network, 4, 2)

    def objective(batch):
        outputs = network.unroll(batch.observations, batch.recurrent_state, batch.valid, training=True)
        return keras.ops.mean(outputs["value"] ** 2) + keras.ops.mean(
            outputs["policy/action"] * outputs["value"][..., None]
        ), {}

    _, _, gradients = Gradients(objective, network.model.trainable_variables, network.state_variables)(batch)
    variables = network.model.trainable_variables
    loss = PureLoss(objective, variables, network.state_variables)
    rng, step = np.random.default_rng(0), 1e-2
    values = [np.asarray(variable) for variable in variables]
    others = [variable.value for variable in network.state_variables]
    for _ in range(3):
        direction = [rng.standard_normal(value.shape).astype(np.float32) for value in values]
        sides = [
            float(loss([v + sign * step * d for v, d in zip(values, direction, strict=True)], others, batch)[0])
            for sign in (1.0, -1.0)
        ]
        slope = sum(float((gradient * d).sum()) for gradient, d in zip(gradients, direction, strict=True))
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(slope, rel=2e-2, abs=2e-3)


@pytest.mark.parametrize(
    ("observations", "actions", "told"),
    [
        (
            ("a.b", "a_b"),
            ("action",),
            "environment: observations 'a.b' and 'a_b' would share the names of their layers",
        ),
        (("x",), ("left arm", "left_arm"), "environment: actions 'left arm' and 'left_arm' would share the names"),
    ],
)
def test_names_that_keras_cannot_tell_apart_are_refused(observations, actions, told):
    spec = EnvSpec(
        "Dots",
        {name: ArraySpec((2,), "float32") for name in observations},
        {name: DiscreteSpec(2) for name in actions},
    )
    with pytest.raises(ConfigError) as caught:
        Network(NetworkParameters(), spec, [PolicyHeadParameters()], name="main", seed=1)
    assert str(caught.value).startswith(told)
