"""Exported graphs compute the network's outputs, for every kind of network and any weights."""

import hashlib
import logging
import sys
from pathlib import Path

import keras
import numpy as np
import onnx
import onnxruntime
import pytest

from distrl.actors.policy import Policy
from distrl.config import heads
from distrl.config.layers import Activation
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError, DistrlError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.network import Network
from distrl.networks.policy import bundle
from distrl.networks.policy.description import BundleDescription, WeightSpec
from distrl.types import (
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    PolicyBundle,
    Weights,
)
from tests.algorithms.one_of_each_kind import others_in_long

NUMBERS = {"observation": ArraySpec((4,), "float32")}
SPEC = EnvSpec("Vector-v0", NUMBERS, {"action": DiscreteSpec(2)})
IMAGE = EnvSpec("Image-v0", {"camera": ArraySpec((12, 12, 3), "uint8", 0, 255)}, {"action": DiscreteSpec(3)})
SEVERAL = EnvSpec(
    "Several-v0",
    {
        "left/camera": ArraySpec((6, 6, 1), "uint8", 0, 255),
        "speed": ArraySpec((), "float64"),
        "words": ArraySpec((5,), "int32", 0, 9),
        "map": ArraySpec((2, 3), "float32"),
    },
    {"steer": DiscreteSpec(3), "gear": DiscreteSpec(2, start=-1)},
)
BOX = EnvSpec("Box-v0", NUMBERS, {"action": BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0))})
MASKED = EnvSpec("Masked-v0", NUMBERS | {"allowed": ArraySpec((3,), "int8", 0, 1)}, {"action": DiscreteSpec(3)})
ALL_ACTIONS = EnvSpec(
    "Mixed-v0",
    NUMBERS,
    {
        "one": DiscreteSpec(3),
        "some": MultiDiscreteSpec((2, 4), (0, 0)),
        "switches": MultiBinarySpec((2, 2)),
        "real": BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0)),
    },
)
POLICY, VALUE = heads.PolicyHeadParameters, heads.ValueHeadParameters
BOTH = (POLICY(), VALUE())
CONV = {"kind": "conv2d", "filters": 3, "kernel_size": 3}
WORDS = {
    "scheme": [{"kind": "embedding", "indices": 10, "units": 3}, {"kind": "conv1d", "filters": 2}],
    "kind": "tensor",
}
GRAPH = {
    "kind": "graph",
    "blocks": {
        "seen": {"inputs": ["left/camera", "map"], "layers": [5]},
        "rest": {"inputs": ["words", "speed"], "layers": [5]},
        "output": {"inputs": ["seen", "rest"], "merger": "Sum", "layers": [{"kind": "layer_norm"}]},
    },
}
SMALL_IMAGE = {"input_embedders_parameters": {"camera": {"scheme": [CONV]}}}
SEVERAL_EMBEDDED = {"left/camera": {"scheme": [CONV]}, "words": WORDS}
ATOMS = {"atoms": 5, "v_min": -1.0, "v_max": 1.0}

KINDS = {
    "vector": (SPEC, BOTH, {"input_embedders_parameters": {"observation": {"scheme": "Medium"}}}),
    "image": (IMAGE, BOTH, SMALL_IMAGE),
    "ImpalaResNet": (IMAGE, BOTH, {"input_embedders_parameters": {"camera": {"scheme": "ImpalaResNet"}}}),
    "several inputs and actions": (SEVERAL, BOTH, {"input_embedders_parameters": SEVERAL_EMBEDDED}),
    "names in any script": (
        EnvSpec(
            "Script-v0",
            {name: ArraySpec((2,), "float32") for name in ("высота", "速度", "a b")},
            {name: DiscreteSpec(2) for name in ("ход", "🚀")},
        ),
        BOTH,
        {"input_embedders_parameters": {"высота": {"normalize": True}}},
    ),
    "one input left out": (SEVERAL, BOTH, {"input_embedders_parameters": SEVERAL_EMBEDDED | {"map": None}}),
    "sum": (
        SEVERAL,
        BOTH,
        {
            "embedding_merger_type": "Sum",
            "input_embedders_parameters": {
                name: {"scheme": [*layers, {"kind": "flatten"}, 4]}
                for name, layers in (("left/camera", [CONV]), ("speed", []), ("words", []), ("map", []))
            },
        },
    ),
    "graph": (
        SEVERAL,
        BOTH,
        {"input_embedders_parameters": SEVERAL_EMBEDDED, "middleware_parameters": GRAPH},
    ),
    "lstm": (SPEC, BOTH, {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 3, "scheme": [5]}}),
    "gru": (SPEC, BOTH, {"middleware_parameters": {"kind": "gru", "number_of_gru_cells": 3}}),
    "separate lstm": (
        SPEC,
        BOTH,
        {
            "middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 3},
            "use_separate_networks_per_head": True,
        },
    ),
    "noisy": (SPEC, BOTH, {"middleware_parameters": {"scheme": [8], "dense_layer": "noisy_dense"}}),
    "noisy head": (SPEC, (heads.QHeadParameters(dense_layer="noisy_dense"),), {}),
    "batch normalisation": (
        IMAGE,
        BOTH,
        {"input_embedders_parameters": {"camera": {"scheme": [CONV], "batchnorm": True}}},
    ),
    "dropout": (SPEC, BOTH, {"middleware_parameters": {"scheme": [8], "dropout_rate": 0.5}}),
    "normalised": (SPEC, BOTH, {"input_embedders_parameters": {"observation": {"normalize": True}}}),
    "normalised image": (
        IMAGE,
        BOTH,
        {"input_embedders_parameters": {"camera": {"scheme": [CONV], "normalize": True}}},
    ),
    "scaled and clipped": (
        SPEC,
        BOTH,
        {
            "input_embedders_parameters": {
                "observation": {"input_rescaling": 2.0, "input_offset": 0.25, "input_clipping": [-0.5, 0.5]}
            }
        },
    ),
    "rescaled gradient": (SPEC, (POLICY(rescale_gradient_from_head_by_factor=0.5), VALUE()), {}),
    "all actions": (ALL_ACTIONS, BOTH, {}),
    "gaussian of the state": (BOX, (POLICY(log_sigma="state_dependent"), VALUE()), {}),
    "bounded gaussian": (BOX, (POLICY(distribution="bounded_gaussian"),), {}),
    "squashed gaussian": (BOX, (POLICY(distribution="squashed_gaussian"),), {}),
    "beta": (BOX, (POLICY(distribution="beta"),), {}),
    "mask": (MASKED, (POLICY(action_mask="allowed"),), {}),
    "temperature": (SPEC, (POLICY(), heads.QHeadParameters()), {"softmax_temperature": 0.5}),
    "ppo": (SPEC, (heads.PPOHeadParameters(units=(5,), initial_kl_coefficient=0.2), VALUE(units=(5,))), {}),
    "acer": (SPEC, (heads.ACERPolicyHeadParameters(), heads.QHeadParameters()), {}),
    "acer with a mask": (MASKED, (heads.ACERPolicyHeadParameters(action_mask="allowed"),), {}),
    "dueling": (SPEC, (heads.DuelingQHeadParameters(units=(6,)),), {}),
    "categorical": (SPEC, (heads.CategoricalQHeadParameters(**ATOMS),), {}),
    "rainbow": (SPEC, (heads.RainbowQHeadParameters(units=(6,), **ATOMS),), {}),
    "constrained": (SPEC, (heads.ConstrainedQHeadParameters(units=(6,)),), {}),
    "quantile": (SPEC, (heads.QuantileQHeadParameters(quantiles=7),), {}),
    "copies": (SPEC, (heads.QHeadParameters(num_output_head_copies=3),), {}),
    "naf": (BOX, (heads.NAFHeadParameters(),), {}),
    "q_value": (BOX, (heads.QValueHeadParameters(),), {}),
    "quantile_q_value": (BOX, (heads.QuantileQValueHeadParameters(quantiles=7),), {}),
    "twin_q": (BOX, (heads.TwinQHeadParameters(units=(6,)),), {}),
    "deterministic": (BOX, (heads.DeterministicPolicyHeadParameters(batchnorm=True),), {}),
    "classification": (SPEC, (heads.ClassificationHeadParameters(),), {}),
    "embedding": (SPEC, (heads.EmbeddingHeadParameters(units=(6,), embedding_size=4),), {}),
    "own model": (
        EnvSpec("Picture-v0", {"camera": ArraySpec((9, 9, 3), "uint8", 0, 255)} | NUMBERS, {"action": DiscreteSpec(2)}),
        BOTH,
        {"model": "examples.own_network:Attention", "model_arguments": {"filters": 4}},
    ),
    "batch renormalisation": (SPEC, BOTH, {"middleware_parameters": {"scheme": [{"kind": "batch_renorm"}, 8]}}),
    "bfloat16": (SPEC, BOTH, {"compute_dtype": "bfloat16"}),
}
IN_CI = (
    "names in any script",
    "graph",
    "separate lstm",
    "gru",
    "noisy",
    "image",
    "normalised image",
    "all actions",
    "beta",
    "mask",
    "ppo",
    "rainbow",
    "constrained",
    "naf",
    "own model",
    "batch renormalisation",
    "bfloat16",
)
"""Kinds of a make of their own; the others differ from them in a layer, and test_conversion.py exports every layer."""


@pytest.fixture
def own_model(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3]))
    yield
    sys.modules.pop("examples.own_network", None)


def all_inputs(network, batch, rng):
    """Random inputs of a whole network, actions and recurrent state among them."""
    arrays = {}
    for name, tensor in network.model.input.items():
        shape, dtype = (batch, *tensor.shape[1:]), np.dtype(tensor.dtype)
        if np.issubdtype(dtype, np.floating):
            arrays[name] = rng.standard_normal(shape).astype(dtype)
        else:
            arrays[name] = rng.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype)
    return arrays


def run(graph, weights, inputs, outputs):
    """ONNX Runtime as actors use it: weights come from outside."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    taken = {tensor.name for tensor in onnx.load_from_string(graph).graph.input}
    fed = {name: array for name, array in weights.items() if name in taken}
    injected = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in weights.items() if name not in fed
    }
    if injected:
        options.add_external_initializers(list(injected), list(injected.values()))
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return session.run(outputs, inputs | fed)


@pytest.mark.usefixtures("own_model")
@pytest.mark.parametrize("kind", others_in_long(KINDS, kept=IN_CI))
def test_every_kind_computes_the_same_under_any_weights(build, disturb, kind):
    """One export, weights exchanged twice: a difference of 1e-5 at most, relative above 1."""
    spec, made, parameters = KINDS[kind]
    network = build(spec, made, **parameters)
    exact = network.in_float32()
    graph = bundle.export_graph(exact.model, exact.policy_variables)
    outputs, rng, seen = list(network.model.output), np.random.default_rng(0), []
    for seed, batch in ((1, 1), (2, 6)):
        disturb(network, seed)
        exact.set_weights(network.get_weights())
        inputs = all_inputs(network, batch, rng)
        computed = run(graph, network.policy_weights(), inputs, outputs)
        expected = exact.predict(inputs, outputs, squeeze_output=False)
        for name, one, other in zip(outputs, computed, expected, strict=True):
            assert (one.dtype, one.shape) == (np.float32, other.shape)
            np.testing.assert_allclose(one, other, atol=1e-5 * max(1.0, np.abs(other).max()), rtol=0, err_msg=name)
        seen.append(computed)
    assert any(np.abs(one[0] - other[0]).max() > 1e-3 for one, other in zip(*seen, strict=True))


def test_every_activation_computes_the_same():
    """In one model, as each export alone takes longer than its layer; a difference is named by the activation."""
    inputs, outputs = {"observation": keras.Input((4,), name="observation")}, {}
    for activation in Activation.__args__:
        parameters = NetworkParameters(middleware_parameters={"scheme": [4], "activation": activation})
        outputs[activation] = Network(parameters, SPEC, (VALUE(),), activation, 1).model(inputs)["value"]
    whole = keras.Model(inputs, outputs, name="whole")
    bundle.verify_graph(bundle.export_graph(whole), whole)


@pytest.mark.parametrize("kind", ["several inputs and actions", "separate lstm"])
def test_the_policy_computes_what_the_network_computes_after_training(build, disturb, tmp_path, kind):
    spec, made, parameters = KINDS[kind]
    network = build(spec, made, **parameters)
    policy = Policy(bundle.export_bundle(network, cache_dir=tmp_path))
    rng = np.random.default_rng(0)
    for version, batch in ((1, 1), (2, 7)):
        disturb(network, version)
        policy.set_weights(Weights(version, network.policy_weights()))
        inputs = all_inputs(network, batch, rng)
        observations = {name: inputs[name] for name in spec.observations}
        state = {name: inputs[name] for name in network.recurrent_state}
        output = policy.step(observations, state)
        assert list(output.outputs) == list(network.outputs)
        assert list(output.recurrent_state) == list(state)
        computed = output.outputs | {f"next_{name}": array for name, array in output.recurrent_state.items()}
        expected = network.predict(inputs, list(computed), squeeze_output=False)
        for (name, one), other in zip(computed.items(), expected, strict=True):
            tolerance = 1e-5 * max(1.0, np.abs(other).max())
            np.testing.assert_allclose(one, other, atol=tolerance, rtol=0, err_msg=name)


def test_statistics_are_frozen_in_every_version(wrap, batch_for, tmp_path):
    """Actors normalise by what their version of the weights holds, whatever the learner has seen since."""
    network = wrap(input_embedders_parameters={"observation": {"normalize": True}})
    policy = Policy(bundle.export_bundle(network.online, cache_dir=tmp_path))
    network.statistics.observe(batch_for(network.online, 6, 4, seed=1))
    policy.set_weights(Weights(1, network.online.policy_weights()))
    x = {"observation": np.float32([[0.3, -2.0, 0.1, 1.0]])}
    before = network.online.predict(x, ["value"])
    network.statistics.observe(batch_for(network.online, 6, 4, seed=2))
    np.testing.assert_allclose(policy.step(x, {}).outputs["value"], before, atol=1e-5)
    after = network.online.predict(x, ["value"])
    assert np.abs(after - before).max() > 1e-3
    policy.set_weights(Weights(2, network.online.policy_weights()), 0.5)  # statistics are never mixed
    weights = network.online.get_weights()
    network.online.set_weights(weights)
    np.testing.assert_allclose(policy.step(x, {}).outputs["value"], after, atol=1e-5)


def test_16_bits_of_training_export_whole(build, disturb, tmp_path):
    """The bundle of a network that trains in bfloat16 is its float32 twin's, weights and all."""
    network, exact = build(compute_dtype="bfloat16"), build()
    disturb(network, 1)
    exact.set_weights(network.get_weights())
    policy = Policy(bundle.export_bundle(network, cache_dir=tmp_path))
    policy.set_weights(Weights(1, network.policy_weights()))
    x = {"observation": np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)}
    output = policy.step(x, {}).outputs
    for name, expected in zip(("policy/action", "value"), exact.predict(x), strict=True):
        np.testing.assert_allclose(output[name], expected, atol=1e-5)
    assert np.abs(output["value"] - network.predict(x, ["value"])).max() > 1e-5


def test_weights_swap_on_convolution_bias_and_batch_normalisation():
    """Weights that an optimiser folded into others at export would stay behind: nothing may be folded."""
    image = keras.Input((6, 6, 3), name="image")
    x = keras.layers.Conv2D(4, 3, name="convolution")(image)
    x = keras.layers.BatchNormalization(name="normalisation")(x)
    x = keras.layers.Flatten()(keras.layers.ReLU()(x))
    model = keras.Model({"image": image}, {"policy/action": keras.layers.Dense(2, name="head")(x)})
    graph = bundle.export_graph(model)
    bundle.verify_graph(graph, model)
    description = BundleDescription(
        inputs={"image": ArraySpec((6, 6, 3), "float32")},
        recurrent_state={},
        outputs={"policy/action": (2,)},
        action_distributions={"action": CategoricalSpec(2)},
        environment=SPEC,
        weights=tuple(
            WeightSpec(variable.path, tuple(variable.shape), "float32", variable.trainable)
            for variable in model.weights
        ),
        libraries={},
        sha256=hashlib.sha256(graph).hexdigest(),
    )
    assert [weight.mixed for weight in description.weights] == [True, True, True, True, False, False, True, True]
    policy = Policy(PolicyBundle(graph, description.to_json()))
    rng = np.random.default_rng(0)
    images = rng.standard_normal((5, 6, 6, 3)).astype(np.float32)
    seen = []
    for version in (1, 2, 3):
        for variable in model.weights:
            sign = rng.choice([-1.0, 1.0]) if variable.trainable else 1.0
            variable.assign(sign * rng.uniform(0.2, 1.0, variable.shape))
        policy.set_weights(Weights(version, {variable.path: np.asarray(variable) for variable in model.weights}))
        logits = policy.step({"image": images}, {}).outputs["policy/action"]
        expected = np.asarray(model({"image": images}, training=False)["policy/action"])
        np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)
        seen.append(logits)
    assert np.abs(seen[0] - seen[1]).max() > 0.1


@pytest.mark.parametrize(("steps", "inputs"), [(1, True), (14_820, True), (14_821, False)])
def test_weights_are_inputs_unless_an_actor_acts_for_long_with_each_version(build, tmp_path, steps, inputs):
    """283 numbers may be fed 14,820 times: 2^22 numbers in all."""
    network = build(middleware_parameters={"scheme": [16, 10], "activation": "tanh"})
    weights = network.policy_weights()
    assert sum(array.size for array in weights.values()) == 283
    model = onnx.load_from_string(bundle.export_bundle(network, unroll_steps=steps, cache_dir=tmp_path).graph)
    external = [tensor for tensor in model.graph.initializer if tensor.external_data]
    assert sorted(tensor.name for tensor in external) == ([] if inputs else sorted(weights))
    assert [tensor.name for tensor in model.graph.input] == ["observation", *(weights if inputs else [])]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 0  # the batch axis is free
    assert not any(tensor.raw_data for tensor in external)


def test_both_forms_of_a_graph_act_equally_and_are_cached_side_by_side(build, tmp_path):
    spec, made, parameters = KINDS["image"]
    network = build(spec, made, **parameters)
    forms = [bundle.export_bundle(network, unroll_steps=steps, cache_dir=tmp_path) for steps in (1, 10**9)]
    assert len(list(tmp_path.iterdir())) == 2
    images = np.random.default_rng(0).integers(0, 256, (3, *spec.observations["camera"].shape)).astype(np.uint8)
    outputs = []
    for form in forms:
        policy = Policy(form)
        policy.set_weights(Weights(1, network.policy_weights()))
        outputs.append(policy.step({"camera": images}, {}).outputs)
    for name, fed in outputs[0].items():
        np.testing.assert_allclose(fed, outputs[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["noisy", "dropout", "ppo"])
def test_what_only_training_reads_stays_with_the_learner(build, kind):
    """Actors need neither the strength of noise nor generators nor coefficients."""
    spec, made, parameters = KINDS[kind]
    network = build(spec, made, **parameters)
    left = set(network.variables) - set(network.policy_weights())
    expected = {
        "noisy": {
            "main/middleware_dense_0/kernel_sigma",
            "main/middleware_dense_0/bias_sigma",
            "main/middleware_dense_0_noise/seed_generator_state",
        },
        "dropout": {"main/middleware_dense_0_dropout_noise/seed_generator_state"},
        "ppo": {"main/policy_head_kl_coefficient"},
    }
    assert {name.replace("noisy_dense", "dense") for name in left} == expected[kind]


def test_description_holds_what_an_actor_needs(build, tmp_path):
    spec, made, parameters = KINDS["lstm"]
    network = build(spec, made, **parameters)
    exported = bundle.export_bundle(network, cache_dir=tmp_path)
    description = BundleDescription.from_json(exported.description)
    assert description.inputs == SPEC.observations
    assert description.recurrent_state == network.recurrent_state
    assert description.outputs == {"policy/action": (2,), "value": ()}
    assert description.action_distributions == {"action": CategoricalSpec(2)}
    assert description.environment == SPEC
    assert [(weight.name, weight.shape, weight.dtype, weight.mixed) for weight in description.weights] == [
        (path, array.shape, "float32", True) for path, array in network.policy_weights().items()
    ]
    assert description.sha256 == hashlib.sha256(exported.graph).hexdigest()
    converter = {"tensorflow": "tf2onnx", "jax": "jax"}[keras.backend.backend()]
    assert description.libraries.keys() == {"keras", "onnx", converter}


def test_a_wrong_graph_is_refused_and_the_output_named(build):
    right, wrong = build(), build(middleware_parameters={"scheme": [8], "activation": "tanh"})
    with pytest.raises(DistrlError, match=r"output '(policy/action|value)' differs from the network by"):
        bundle.verify_graph(bundle.export_graph(wrong.model), right.model)


class Exports:
    """Counts real exports."""

    def __init__(self, monkeypatch):
        self.count = 0
        self._export = bundle.export_graph
        monkeypatch.setattr(bundle, "export_graph", self)

    def __call__(self, *arguments, **options):
        self.count += 1
        return self._export(*arguments, **options)


def test_cache_is_keyed_by_structure_and_not_by_weights(build, tmp_path, monkeypatch):
    exports = Exports(monkeypatch)
    first = bundle.export_bundle(build(seed=1), cache_dir=tmp_path)
    assert bundle.export_bundle(build(seed=2), cache_dir=tmp_path) == first
    assert exports.count == 1
    assert bundle.export_bundle(build(middleware_parameters={"scheme": [9]}), cache_dir=tmp_path) != first
    other_spec = EnvSpec("Vector-v0", SPEC.observations, {"action": DiscreteSpec(3)})
    bundle.export_bundle(build(other_spec), cache_dir=tmp_path)
    assert exports.count == 3
    assert [path.suffix for path in tmp_path.iterdir()] == [".onnx"] * 3


def test_a_damaged_cache_entry_is_replaced(build, tmp_path, monkeypatch, caplog):
    good = bundle.export_bundle(build(), cache_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    other = bundle.export_graph(build(middleware_parameters={"scheme": [8], "activation": "tanh"}).model)
    exports = Exports(monkeypatch)
    for number, damage in enumerate((b"", b"garbage", other), 1):
        path.write_bytes(damage)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            again = bundle.export_bundle(build(), cache_dir=tmp_path)
        assert exports.count == number
        assert path.read_bytes() == again.graph
        described, first = (BundleDescription.from_json(one.description) for one in (again, good))
        assert described.weights == first.weights
        assert "is not usable and is exported again" in caplog.text


def test_default_cache_follows_the_environment(build, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    bundle.export_bundle(build())
    assert len(list((tmp_path / "xdg" / "distrl" / "bundles").iterdir())) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    bundle.export_bundle(build())
    assert len(list((tmp_path / "home" / ".cache" / "distrl" / "bundles").iterdir())) == 1


def test_a_cache_that_cannot_be_written_costs_a_warning_only(build, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        exported = bundle.export_bundle(build(), cache_dir=tmp_path / "file")
    assert Policy(exported).spec == SPEC
    assert "policy graph is not cached" in caplog.text


def refuse(*_, **__):
    raise ConfigError("layer x cannot be exported")


def test_tensorflow_exports_what_jax_cannot(build, tmp_path, monkeypatch):
    network = build()
    graph = bundle.export_graph(network.model, network.policy_variables)
    monkeypatch.setattr(bundle, "NAME", "jax")
    monkeypatch.setattr(bundle, "export_graph", refuse)
    monkeypatch.setattr(bundle, "export_in_child", lambda *_: graph)
    assert bundle.export_bundle(network, cache_dir=tmp_path).graph == graph


def test_without_tensorflow_a_layer_that_jax_cannot_export_names_the_extra(build, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "NAME", "jax")
    monkeypatch.setattr(bundle, "export_graph", refuse)
    monkeypatch.setattr(bundle, "find_spec", lambda name: None)
    told = r"^layer x cannot be exported; TensorFlow exports more layers: pip install '.*\[cpu\]'$"
    with pytest.raises(ConfigError, match=told):
        bundle.export_bundle(build(), cache_dir=tmp_path)
