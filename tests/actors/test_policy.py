import dataclasses
import hashlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from distrl.actors.policy import Policy
from distrl.actors.unroll import restarted
from distrl.config.environment import EnvironmentConfig
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.environments.preprocessing.pipeline import Pipeline
from distrl.environments.vector import VectorEnvironment
from distrl.errors import DistrlError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.network import Network
from distrl.networks.policy.bundle import export_bundle
from distrl.networks.policy.description import BundleDescription, WeightSpec
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, PolicyBundle, Weights

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
HEADS = (PolicyHeadParameters(), ValueHeadParameters())
OBSERVATIONS = {"observation": np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)}


@pytest.fixture(scope="module")
def network():
    parameters = NetworkParameters(middleware_parameters={"scheme": [8], "activation": "tanh"})
    return Network(parameters, SPEC, HEADS, "main", 1)


@pytest.fixture(scope="module")
def bundle(network, tmp_path_factory):
    return export_bundle(network, cache_dir=tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A network and a bundle of it whose weights are external initializers."""
    parameters = NetworkParameters(middleware_parameters={"scheme": [256, 256], "activation": "tanh"})
    network = Network(parameters, SPEC, HEADS, "main", 1)
    return network, export_bundle(network, unroll_steps=10**6, cache_dir=tmp_path_factory.mktemp("bundles"))


def filled(network, value, version=1):
    return Weights(version, {name: np.full_like(array, value) for name, array in network.named_weights().items()})


def logits_at(network, value):
    """All weights equal: logits = 8 * value * tanh(value * (sum(x) + 1)) + value."""
    return 8 * value * np.tanh(value * (OBSERVATIONS["observation"].sum(axis=1) + 1)) + value


def tampered(bundle, graph):
    """`graph` in place of the bundle's, with a description that vouches for it."""
    description = BundleDescription.from_json(bundle.description)
    description = dataclasses.replace(description, sha256=hashlib.sha256(graph).hexdigest())
    return PolicyBundle(graph, description.to_json())


def test_steps_under_the_newest_weights(network, bundle):
    policy = Policy(bundle)
    assert (policy.version, policy.spec) == (0, SPEC)
    for version, value in ((3, 0.5), (4, -0.25)):
        policy.set_weights(filled(network, value, version))
        output = policy.step(OBSERVATIONS, policy.initial_state(5))
        assert policy.version == version
        logits, values = output.outputs["policy/action"], output.outputs["value"]
        np.testing.assert_allclose(logits, np.stack([logits_at(network, value)] * 2, axis=1), atol=1e-5)
        np.testing.assert_allclose(values, logits[:, 0], atol=1e-6)
        assert (logits.dtype, values.shape, output.recurrent_state) == (np.float32, (5,), {})


def test_weights_that_are_initializers_are_replaced_as_well(large):
    """Exactly 0 in the first layers, so that the logits are the last bias."""
    network, bundle = large
    policy = Policy(bundle)
    for version, value in ((1, 0.5), (2, -0.25)):
        weights = {name: np.zeros_like(array) for name, array in network.named_weights().items()}
        weights[BIAS] = np.float32([value, 2 * value])
        policy.set_weights(Weights(version, weights))
        logits = policy.step(OBSERVATIONS, {}).outputs["policy/action"]
        np.testing.assert_array_equal(logits, np.float32([[value, 2 * value]] * 5))
    policy.forget_weights()
    with pytest.raises(DistrlError, match="no weights yet"):
        policy.step(OBSERVATIONS, {})


def test_without_weights_it_does_not_act(bundle):
    with pytest.raises(DistrlError, match="no weights yet"):
        Policy(bundle).step(OBSERVATIONS, {})


@pytest.mark.parametrize(("rate", "expected"), [(0.25, 0.5), (1.0, 2.0), (0.0, 0.0)])
def test_weights_are_mixed_as_the_learner_mixes_them(network, bundle, rate, expected):
    policy = Policy(bundle)
    policy.set_weights(filled(network, 0.0, version=1))
    policy.set_weights(filled(network, 2.0, version=2), rate)
    np.testing.assert_allclose(
        policy.step(OBSERVATIONS, {}).outputs["policy/action"][:, 0], logits_at(network, expected), atol=1e-5
    )
    assert policy.version == 2


def test_perturbed_weights_act_and_are_never_mixed_with(network, bundle):
    policy = Policy(bundle)
    policy.set_weights(filled(network, 0.0, version=1))
    policy.perturb(lambda _, arrays: {name: array + np.float32(0.5) for name, array in arrays.items()})
    for expected in (0.5, 0.25):  # 0 + 0.5, then 0.75 * 0 + 0.25 * 1
        acted = policy.step(OBSERVATIONS, {}).outputs["policy/action"][:, 0]
        np.testing.assert_allclose(acted, logits_at(network, expected), atol=1e-5)
        policy.set_weights(filled(network, 1.0, version=2), 0.25)


def test_forgotten_weights_are_not_mixed_with(network, bundle):
    policy = Policy(bundle)
    policy.set_weights(filled(network, 0.0, version=6))
    policy.forget_weights()
    assert policy.version == 0
    with pytest.raises(DistrlError, match="no weights yet"):
        policy.step(OBSERVATIONS, {})
    policy.set_weights(filled(network, 2.0, version=6), 0.25)
    np.testing.assert_allclose(
        policy.step(OBSERVATIONS, {}).outputs["policy/action"][:, 0], logits_at(network, 2.0), atol=1e-5
    )


def test_mixing_equals_the_learners_set_weights(network, bundle):
    rng = np.random.default_rng(3)
    first, second = (
        {name: rng.standard_normal(array.shape).astype(np.float32) for name, array in network.named_weights().items()}
        for _ in range(2)
    )
    policy = Policy(bundle)
    policy.set_weights(Weights(1, first), 0.3)  # nothing to mix with: taken whole
    policy.set_weights(Weights(2, second), 0.3)
    network.set_weights(list(first.values()))
    network.set_weights(list(second.values()), 0.3)
    np.testing.assert_allclose(
        policy.step(OBSERVATIONS, {}).outputs["policy/action"], network.predict(OBSERVATIONS)[0], atol=1e-5
    )


def test_weights_are_copied(network, bundle):
    policy, weights = Policy(bundle), filled(network, 0.5)
    policy.set_weights(weights)
    for array in weights.arrays.values():
        array[...] = 100.0
    np.testing.assert_allclose(
        policy.step(OBSERVATIONS, {}).outputs["policy/action"][:, 0], logits_at(network, 0.5), atol=1e-5
    )


BIAS = "main/policy_head_action/bias"


@pytest.mark.parametrize(
    ("arrays", "rate", "message"),
    [
        ({BIAS: None}, 1.0, f"weights 2: {BIAS} is missing"),
        ({"main/foo": np.zeros(1, np.float32)}, 1.0, "weights 2: main/foo is unknown"),
        ({BIAS: np.zeros(3, np.float32)}, 1.0, r"is float32 \(3,\), not float32 \(2,\)"),
        ({BIAS: np.zeros(2, np.float64)}, 1.0, r"is float64 \(2,\), not float32 \(2,\)"),
        ({BIAS: np.array([0, np.nan], np.float32)}, 0.5, f"{BIAS} is not finite"),
        ({}, 1.5, r"rate must be in \[0, 1\], not 1.5"),
        ({}, -0.5, r"rate must be in \[0, 1\], not -0.5"),
    ],
)
def test_bad_weights_are_refused_and_the_old_ones_stay(network, bundle, arrays, rate, message):
    policy = Policy(bundle)
    policy.set_weights(filled(network, 0.5, version=1))
    changed = filled(network, 2.0).arrays | arrays
    with pytest.raises(DistrlError, match=message):
        policy.set_weights(Weights(2, {name: array for name, array in changed.items() if array is not None}), rate)
    assert policy.version == 1
    np.testing.assert_allclose(
        policy.step(OBSERVATIONS, {}).outputs["policy/action"][:, 0], logits_at(network, 0.5), atol=1e-5
    )


@pytest.mark.parametrize(
    "observations",
    [
        {},
        {"observation": np.zeros((5, 3), np.float32)},
        {"observation": np.zeros((5, 4), np.float64)},
        {"observation": np.zeros((5, 4), np.float32), "extra": np.zeros(5, np.float32)},
    ],
)
def test_observations_that_do_not_fit_are_one_line_of_error(network, bundle, observations):
    policy = Policy(bundle)
    policy.set_weights(filled(network, 0.5))
    with pytest.raises(DistrlError, match="does not take these observations") as raised:
        policy.step(observations, {})
    assert "\n" not in str(raised.value)


def test_a_graph_that_is_not_the_described_one_is_refused(bundle):
    with pytest.raises(DistrlError, match="sha256"):
        Policy(PolicyBundle(bundle.graph + b"\0", bundle.description))
    with pytest.raises(DistrlError, match="description is not valid"):
        Policy(PolicyBundle(bundle.graph, "{}"))
    with pytest.raises(DistrlError, match="policy bundle: it is no ONNX model"):
        Policy(tampered(bundle, b"garbage"))


def external(name, location="weights", shape=(2,)):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


@pytest.mark.parametrize("as_constant", [False, True])
@pytest.mark.parametrize(
    "location", ["weights", "stolen", "{directory}/stolen", "../{name}/stolen", "./stolen", "*/_ORT_MEM_ADDR_/*"]
)
def test_a_graph_that_reads_files_is_refused(bundle, tmp_path, monkeypatch, location, as_constant):
    """Data that is not injected is found nowhere: not beside the process, not by absolute path, not in a constant."""
    monkeypatch.chdir(tmp_path)
    for name in ("weights", "stolen"):
        np.eye(4, dtype=np.float32).tofile(tmp_path / name)
    model = onnx.load_from_string(bundle.graph)
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["seen" if name == "observation" else name for name in node.input]
    tensor = external("secret", location.format(directory=tmp_path, name=tmp_path.name), (4, 4))
    if as_constant:
        graph.node.insert(0, helper.make_node("Constant", [], ["secret"], value=tensor))
    else:
        graph.initializer.append(tensor)
    graph.node.insert(int(as_constant), helper.make_node("Gemm", ["observation", "secret"], ["seen"]))
    with pytest.raises(DistrlError, match="refuses the graph"):
        Policy(tampered(bundle, model.SerializeToString()))


def test_a_described_weight_that_is_not_external_is_refused(bundle, large):
    """Replacing an ordinary initializer could be silently without effect, so it must not come to that."""
    for made, place in ((bundle, "input"), (large[1], "initializer")):
        model = onnx.load_from_string(made.graph)
        weights = getattr(model.graph, place)
        (weight,) = [weight for weight in weights if weight.name == BIAS]
        weights.remove(weight)
        model.graph.initializer.append(helper.make_tensor(BIAS, TensorProto.FLOAT, [2], [1.0, 2.0]))
        with pytest.raises(DistrlError, match="refuses the graph"):
            Policy(tampered(made, model.SerializeToString()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"inputs": {"other": ArraySpec((4,), "float32")}},
            r"the graph takes \['observation'\], described are \['other'\]",
        ),
        (
            {"outputs": {"policy/action": (2,)}},
            r"the graph puts out \['policy/action', 'value'\], described are \['policy/action'\]",
        ),
        ({"action_distributions": {"steer": CategoricalSpec(2)}}, r"the graph puts out \['policy/action', 'value'\]"),
        (
            {"recurrent_state": {"lstm_h": ArraySpec((3,), "float32")}},
            r"the graph takes \['observation'\], described are \['lstm_h', 'observation'\]",
        ),
    ],
)
def test_a_description_of_another_signature_is_refused(bundle, fields, message):
    description = dataclasses.replace(BundleDescription.from_json(bundle.description), **fields)
    with pytest.raises(DistrlError, match=message):
        Policy(PolicyBundle(bundle.graph, description.to_json()))


def integer_and_frozen():
    """policy/action = x + steps + mean, where `steps` is an integer and `mean` is not trained."""
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Cast", ["steps"], ["steps_"], to=TensorProto.FLOAT),
            node("Add", ["x", "steps_"], ["y"]),
            node("Add", ["y", "mean"], ["policy/action"]),
        ],
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2]),
            helper.make_tensor_value_info("mean", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("steps", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("policy/action", TensorProto.FLOAT, ["batch", 2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialised = model.SerializeToString()
    description = BundleDescription(
        inputs={"x": ArraySpec((2,), "float32")},
        recurrent_state={},
        outputs={"policy/action": (2,)},
        action_distributions={"action": CategoricalSpec(2)},
        environment=SPEC,
        weights=(WeightSpec("mean", (2,), "float32", False), WeightSpec("steps", (2,), "int64", False)),
        libraries={},
        sha256=hashlib.sha256(serialised).hexdigest(),
    )
    return PolicyBundle(serialised, description.to_json())


@pytest.mark.parametrize(("rate", "expected"), [(0.5, [30.0, 60.0]), (0.0, [3.0, 6.0])])
def test_integers_and_untrained_weights_are_never_mixed(rate, expected):
    policy = Policy(integer_and_frozen())
    for version, scale in ((1, 1), (2, 10)):
        arrays = {"mean": np.array([1, 2], np.float32) * scale, "steps": np.array([2, 4]) * scale}
        policy.set_weights(Weights(version, arrays), rate)
    output = policy.step({"x": np.zeros((1, 2), np.float32)}, {})
    assert {name: array.tolist() for name, array in output.outputs.items()} == {"policy/action": [expected]}


def test_initial_state_is_zeros_of_the_described_shapes(bundle):
    assert Policy(bundle).initial_state(3) == {}


@pytest.fixture(scope="module")
def remembering(tmp_path_factory):
    """A policy with an LSTM of three cells, under weights drawn at random."""
    parameters = NetworkParameters(middleware_parameters={"kind": "lstm", "number_of_lstm_cells": 3})
    network = Network(parameters, SPEC, HEADS, "main", 1)
    rng = np.random.default_rng(0)
    network.set_weights([rng.standard_normal(array.shape).astype(np.float32) for array in network.get_weights()])
    policy = Policy(export_bundle(network, cache_dir=tmp_path_factory.mktemp("bundles")))
    policy.set_weights(Weights(1, network.policy_weights()))
    return policy


@pytest.mark.row("L13", "B21")
def test_state_starts_at_zero_goes_in_and_comes_out(remembering):
    state = remembering.initial_state(5)
    assert {name: (array.shape, array.dtype) for name, array in state.items()} == {
        "lstm_h": ((5, 3), np.float32),
        "lstm_c": ((5, 3), np.float32),
    }
    assert not any(array.any() for array in state.values())
    first = remembering.step(OBSERVATIONS, state)
    again = remembering.step(OBSERVATIONS, state)
    np.testing.assert_array_equal(first.outputs["value"], again.outputs["value"])
    then = remembering.step(OBSERVATIONS, first.recurrent_state)
    assert np.abs(then.outputs["value"] - first.outputs["value"]).min() > 1e-4


@pytest.mark.row("L13")
def test_a_restarted_environment_is_as_new_and_its_neighbours_go_on(remembering):
    first = remembering.step(OBSERVATIONS, remembering.initial_state(5))
    went_on = remembering.step(OBSERVATIONS, first.recurrent_state).outputs["value"]
    valid = np.array([True, False, True, False, True])
    mixed = remembering.step(OBSERVATIONS, restarted(first.recurrent_state, valid)).outputs["value"]
    np.testing.assert_array_equal(mixed[valid], went_on[valid])
    np.testing.assert_allclose(mixed[~valid], first.outputs["value"][~valid], atol=1e-6)


def test_state_that_is_missing_is_one_line_of_error(remembering):
    with pytest.raises(DistrlError, match="does not take these observations") as raised:
        remembering.step(OBSERVATIONS, {})
    assert "\n" not in str(raised.value)


PREPROCESSING = [
    {"step": "center"},
    {"step": "select", "names": ["x", "y"], "keep": ["y", "x"]},
    {"step": "stack", "frames": 3},
    {"step": "clip", "of": "reward", "low": -0.5},
    {"step": "discretize_box", "bins": 3},
]


@pytest.mark.row("D100", "L07")
def test_a_bundle_acts_on_raw_observations_as_the_actor_did_with_preprocessing(tmp_path):
    """Same seeds, episodes that begin on the way, then a reset."""
    task = {"id": "distrl.environments.worlds.toy:Reach", "kwargs": {"length_steps": 3}}
    processed = VectorEnvironment(EnvironmentConfig.model_validate({**task, "preprocessing": PREPROCESSING}), 3)
    raw = VectorEnvironment(EnvironmentConfig.model_validate(task), 3)
    network = Network(NetworkParameters(middleware_parameters={"scheme": [8]}), processed.spec, HEADS, "main", 1)
    policy = Policy(export_bundle(network, cache_dir=tmp_path))
    policy.set_weights(Weights(1, network.policy_weights()))
    pipeline, selector = Pipeline.of(policy.spec), ActionSelector(policy.distributions)
    assert (pipeline.raw, pipeline.spec) == (raw.spec, processed.spec)
    for seed in (0, 1):
        pipeline.reset()
        seen, shown = processed.reset(seed), pipeline.observations(raw.reset(seed), np.ones(3, bool))
        for _ in range(10):
            np.testing.assert_array_equal(seen["observation"], shown["observation"], strict=True)
            chosen, served = (selector.mode(policy.step(rows, {}).outputs) for rows in (seen, shown))
            np.testing.assert_array_equal(chosen["action"], served["action"], strict=True)
            step, raw_step = processed.step(chosen), raw.step(pipeline.actions(served))
            np.testing.assert_array_equal(step.raw_rewards, raw_step.rewards)
            np.testing.assert_array_equal(step.rewards, np.clip(raw_step.rewards, -0.5, None))
            seen, shown = step.observations, pipeline.observations(raw_step.observations, raw_step.valid)
    processed.close()
    raw.close()


WALL = """
import sys
import distrl.actors.policy, distrl.networks.actions.joint, distrl.environments.preprocessing.pipeline
walled = {"tensorflow", "keras", "jax", "tf2onnx", "onnx", "gymnasium", "ray"} & set(sys.modules)
sys.exit(f"imported: {sorted(walled)}" if walled else 0)
"""


def test_actors_import_no_framework():
    finished = subprocess.run([sys.executable, "-c", WALL], capture_output=True, text=True, timeout=200, check=False)
    assert finished.returncode == 0, finished.stderr
