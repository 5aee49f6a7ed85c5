"""A loaded policy acts as the learner's network does, on an environment's own terms."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import keras
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from distrl import load_policy
from distrl.actors.evaluator import Evaluator, GreedyPolicy
from distrl.actors.policy import Policy
from distrl.config.environment import EnvironmentConfig
from distrl.config.heads import PolicyHeadParameters, QHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.toy import Identity, Mixed
from distrl.errors import ConfigError, DistrlError
from distrl.networks.network import Network
from distrl.networks.policy import onnx_graph
from distrl.networks.policy.bundle import export_bundle
from distrl.networks.policy.description import BundleDescription
from distrl.networks.policy.exported_model import Exported, opened, sealed
from distrl.serving.evaluation import FromFile
from distrl.serving.exported_policy import ExportedPolicy, PolicyState
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, Unprocessed, Weights

NUMBERS = {"observation": ArraySpec((4,), "float32")}
DISCRETE = EnvSpec("Discrete-v0", NUMBERS, {"action": DiscreteSpec(3, start=2)})
CONTINUOUS = EnvSpec("Box-v0", NUMBERS, {"action": BoxSpec((2,), (-2.0, None), (2.0, None))})
ACTOR_CRITIC = (PolicyHeadParameters(), ValueHeadParameters())
NORMALIZED = {"input_embedders_parameters": {"observation": {"normalize": True}}}
LSTM = {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 5}}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture
def made(cache, tmp_path):
    """made(spec, heads, **parameters): a network under random weights, its bundle, and the file that is exported."""

    def make(spec, heads=ACTOR_CRITIC, **parameters):
        parameters = {"middleware_parameters": {"scheme": [8]}, **parameters}
        network = Network(NetworkParameters(**parameters), spec, heads, "main", 1)
        rng = np.random.default_rng(5)
        for variable in network.model.weights:
            drawn = rng.standard_normal(variable.shape) if variable.trainable else rng.uniform(0.5, 1.5, variable.shape)
            variable.assign(drawn)
        bundle = export_bundle(network, cache_dir=cache)
        model = onnx_graph.embed(bundle.graph, network.policy_weights())
        exported = Exported(BundleDescription.from_json(bundle.description), "impala", 1, 9)
        path = tmp_path / "policy.onnx"
        path.write_bytes(sealed(model, exported))
        return network, bundle, path

    return make


def mixed_spec():
    environment = VectorEnvironment(EnvironmentConfig(id="distrl.environments.worlds.toy:Mixed"), 1)
    environment.close()
    return environment.spec


CASES = {
    "discrete": (DISCRETE, ACTOR_CRITIC, {}),
    "continuous": (CONTINUOUS, ACTOR_CRITIC, {}),
    "normalised": (CONTINUOUS, ACTOR_CRITIC, NORMALIZED),
    "lstm": (DISCRETE, ACTOR_CRITIC, LSTM),
    "mixed": (None, ACTOR_CRITIC, {}),
    "q": (DISCRETE, (QHeadParameters(),), {}),
}


@pytest.mark.row("G04", "Q06")
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_learners_network_and_its_greedy_policy(made, case):
    """1,000 observations, 1e-5: every output against Keras; the actions against an evaluation's, as env.step takes
    them."""
    spec, heads, parameters = CASES[case]
    spec = spec or mixed_spec()
    network, bundle, path = made(spec, heads, **parameters)
    policy = load_policy(path)
    rng = np.random.default_rng(0)
    observations = {
        name: rng.standard_normal((1000, *array.shape)).astype(np.float32) for name, array in spec.observations.items()
    }
    inside = Policy(opened(path.read_bytes())[0])
    inside.set_weights(Weights(1, {}))
    state = {
        name: rng.standard_normal(array.shape).astype(np.float32) for name, array in inside.initial_state(1000).items()
    }
    told = inside.step(observations, state).outputs
    truth = network.model({**observations, **state}, training=False)
    for name, array in told.items():
        np.testing.assert_allclose(array, keras.ops.convert_to_numpy(truth[name]), rtol=1e-5, atol=1e-5, err_msg=name)
    if state:
        assert policy.remembers
        return
    evaluated = Policy(bundle)
    evaluated.set_weights(Weights(1, network.policy_weights()))
    greedy, _ = GreedyPolicy(evaluated).choose(observations, {})
    action, after = policy.act(observations["observation"])
    assert after is None
    for name, chosen in greedy.items():
        given = action if name == "action" else action[name]
        expected = chosen + getattr(spec.actions[name], "start", 0)
        if isinstance(spec.actions[name], BoxSpec):
            low = np.array([-np.inf if bound is None else bound for bound in spec.actions[name].low])
            expected = np.clip(chosen, low, -low).reshape(1000, *spec.actions[name].shape)
        np.testing.assert_allclose(given, expected, atol=1e-5, err_msg=name)


def test_memory_goes_in_and_out_through_the_state(made):
    network, _, path = made(DISCRETE, ACTOR_CRITIC, **LSTM)
    policy = load_policy(path)
    rows = np.random.default_rng(3).standard_normal((6, 4, 4)).astype(np.float32)  # [T, B, 4]
    by_hand = {name: np.zeros((4, 5), np.float32) for name in ("lstm_h", "lstm_c")}
    state, alone = None, None
    for step, observation in enumerate(rows):
        outputs = network.model({"observation": observation, **by_hand}, training=False)
        by_hand = {name: keras.ops.convert_to_numpy(outputs[f"next_{name}"]) for name in by_hand}
        action, state = policy.act(observation, state)
        np.testing.assert_array_equal(action, 2 + np.argmax(outputs["policy/action"], axis=1))
        single, alone = policy.act(observation[1], alone)
        if step < 3:
            assert single == action[1]
        if step == 2:  # environment 1 begins anew in the vector, and goes on alone
            state = state.restarted([False, True, False, False])
            by_hand = {name: np.where(np.arange(4)[:, None] == 1, 0, array) for name, array in by_hand.items()}
        np.testing.assert_allclose(state.recurrent["lstm_h"], by_hand["lstm_h"], atol=1e-5)
    assert not np.allclose(alone.recurrent["lstm_h"], state.recurrent["lstm_h"][1], atol=1e-3)


PREPROCESSING = [
    {"step": "center"},
    {"step": "stack", "frames": 3},
    {"step": "discretize_box", "bins": 3},
]


@pytest.mark.row("D100")
def test_raw_observations_are_processed_and_actions_mapped_back(made):
    """Against the vector environment that did both in training: same seeds, episodes that begin on the way."""
    task = {"id": "distrl.environments.worlds.toy:Reach", "kwargs": {"length_steps": 3}}
    processed = VectorEnvironment(EnvironmentConfig.model_validate({**task, "preprocessing": PREPROCESSING}), 3)
    raw = VectorEnvironment(EnvironmentConfig.model_validate(task), 3)
    network, bundle, path = made(processed.spec)
    trained = Policy(bundle)
    trained.set_weights(Weights(1, network.policy_weights()))
    greedy = GreedyPolicy(trained)
    policy = load_policy(path)
    assert (policy.spec, policy.remembers) == (raw.spec, True)
    seen, shown, state = processed.reset(7), raw.reset(7), None
    for _ in range(10):
        chosen, _ = greedy.choose(seen, {})
        action, state = policy.act(shown["observation"], state)
        np.testing.assert_array_equal(state.stacks["observation"], seen["observation"], strict=True)
        step, raw_step = processed.step(chosen), raw.step({"action": action})
        np.testing.assert_array_equal(step.raw_rewards, raw_step.raw_rewards)
        seen, shown, state = step.observations, raw_step.observations, state.restarted(~raw_step.valid)
    processed.close()
    raw.close()


def test_a_file_is_evaluated_as_its_run_is(made):
    """With memory and stacks of frames, over episodes that begin on the way."""
    task = {"id": "distrl.environments.worlds.toy:Reach", "kwargs": {"length_steps": 3}}
    processed = VectorEnvironment(EnvironmentConfig.model_validate({**task, "preprocessing": PREPROCESSING}), 2)
    raw = VectorEnvironment(EnvironmentConfig.model_validate(task), 2)
    network, bundle, path = made(processed.spec, **LSTM)
    trained = Policy(bundle)
    trained.set_weights(Weights(1, network.policy_weights()))
    expected = [*Evaluator(GreedyPolicy(trained), processed).episodes(8, 7)]
    assert [*Evaluator(FromFile(load_policy(path)), raw).episodes(8, 7)] == expected
    assert len({episode.total for episode in expected}) > 1
    processed.close()
    raw.close()


def test_it_plays_what_gymnasium_makes(made):
    """The result of `act` goes into `step` unchanged, for each of five kinds of action."""
    _, _, path = made(mixed_spec())
    policy, environment = load_policy(path), Mixed()
    observation, _ = environment.reset(seed=1)
    for deterministic in (True, False):
        action, _ = policy.act(observation, deterministic=deterministic)
        assert environment.action_space.contains(action)
        observation, *_ = environment.step(action)
    vector = gymnasium.vector.SyncVectorEnv([Mixed] * 3)
    observations, _ = vector.reset(seed=1)
    vector.step(policy.act(observations).action)
    vector.close()


@pytest.mark.row("G22")
def test_drawing_is_by_the_policys_distribution_and_the_callers_generator(made):
    network, _, path = made(DISCRETE)
    policy = load_policy(path)
    observation = np.float32([0.1, 0.2, -0.1, 0.3])
    logits = keras.ops.convert_to_numpy(network.model({"observation": observation[None]})["policy/action"])[0]
    probabilities = np.exp(logits) / np.exp(logits).sum()
    many = np.tile(observation, (20_000, 1))
    drawn = policy.act(many, deterministic=False, rng=np.random.default_rng(1)).action
    again = policy.act(many, deterministic=False, rng=np.random.default_rng(1)).action
    np.testing.assert_array_equal(drawn, again)
    np.testing.assert_allclose(np.bincount(drawn - 2, minlength=3) / 20_000, probabilities, atol=0.015)
    assert (policy.act(many, deterministic=False).action != drawn).any()
    assert {int(policy.act(observation).action) for _ in range(100)} == {2 + int(np.argmax(logits))}


def test_values_take_the_best_in_either_case(made):
    _, _, path = made(DISCRETE, (QHeadParameters(),))
    policy = load_policy(path)
    rows = np.random.default_rng(0).standard_normal((50, 4))
    np.testing.assert_array_equal(policy.act(rows).action, policy.act(rows, deterministic=False).action)


def test_a_state_of_something_else_is_one_line(made):
    policy = load_policy(made(DISCRETE, ACTOR_CRITIC, **LSTM)[2])
    state = policy.act(np.zeros((2, 4))).state
    with pytest.raises(DistrlError, match="the state is of 2 environments, the observations are of 1"):
        policy.act(np.zeros(4), state)
    with pytest.raises(DistrlError, match=r"restarted: \(3,\) flags, the state is of \(2,\) environments"):
        state.restarted([True, False, False])
    with pytest.raises(DistrlError, match="this policy remembers nothing: its state is None"):
        load_policy(made(DISCRETE)[2]).act(np.zeros((2, 4)), state)


def test_files_that_are_none(made, tmp_path):
    _, _, path = made(DISCRETE)
    with pytest.raises(ConfigError, match=r"policy nowhere\.onnx cannot be read: No such file"):
        load_policy("nowhere.onnx")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DistrlError, match=rf"policy {path}: it is no ONNX model, or not a whole one"):
        load_policy(path)


@pytest.mark.parametrize("location", ["secret", "/proc/self/environ"])
def test_a_model_that_reads_other_files_is_refused(made, monkeypatch, location):
    """Refused although its description has the right hash, as a forger's would."""
    _, _, path = made(DISCRETE)
    monkeypatch.chdir(path.parent)
    np.zeros((4, 4), np.float32).tofile("secret")
    bundle, exported = opened(path.read_bytes())
    model = onnx.load_from_string(bundle.graph)
    for node in model.graph.node:
        node.input[:] = ["seen" if name == "observation" else name for name in node.input]
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(4, 4), data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    model.graph.initializer.append(tensor)
    model.graph.node.insert(0, helper.make_node("Gemm", ["observation", "w"], ["seen"]))
    path.write_bytes(sealed(model.SerializeToString(), exported))
    assert hashlib.sha256(opened(path.read_bytes())[0].graph).hexdigest() == opened(path.read_bytes())[1].policy.sha256
    with pytest.raises(DistrlError, match=r"policy .*: policy bundle: ONNX Runtime refuses the graph") as raised:
        load_policy(path)
    assert "\n" not in str(raised.value)


def forged(path, change):
    """Rewrite the graph behind a policy's description, hashes and all."""
    bundle, exported = opened(path.read_bytes())
    model = onnx.load_from_string(bundle.graph)
    change(model)
    path.write_bytes(sealed(model.SerializeToString(), exported))


def putting_out(*nodes, dtype=TensorProto.FLOAT, **constants):
    """Every output comes from these nodes, whose last output is called `forged`, and not from the network."""

    def change(model):
        graph = model.graph
        for name, array in constants.items():
            graph.initializer.append(numpy_helper.from_array(array, name))
        del graph.node[:]
        graph.node.extend(nodes)
        for output in graph.output:
            kind = nodes[-1].op_type
            graph.node.append(helper.make_node("Identity", ["forged"], [output.name]))
            output.type.Clear()
            if kind == "SequenceConstruct":
                output.type.sequence_type.elem_type.tensor_type.elem_type = dtype
            else:
                output.type.tensor_type.elem_type = dtype

    return change


FORGED = {
    "another shape": putting_out(helper.make_node("ReduceSum", ["observation"], ["forged"], keepdims=0)),
    "overflow": putting_out(helper.make_node("ConstantOfShape", ["size"], ["forged"]), size=np.int64([2**62, 2**62])),
    "impossible": putting_out(helper.make_node("Reshape", ["observation", "size"], ["forged"]), size=np.int64([7, 9])),
    "text": putting_out(
        helper.make_node("Cast", ["observation"], ["forged"], to=TensorProto.STRING), dtype=TensorProto.STRING
    ),
    "sequence": putting_out(helper.make_node("SequenceConstruct", ["observation"], ["forged"])),
    "doubles": putting_out(
        helper.make_node("Cast", ["observation"], ["forged"], to=TensorProto.DOUBLE), dtype=TensorProto.DOUBLE
    ),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_graph_that_does_not_do_what_is_described_is_an_error_in_one_line(made, how):
    _, _, path = made(DISCRETE)
    forged(path, FORGED[how])
    policy = load_policy(path)
    with pytest.raises(DistrlError, match=r"^the (graph puts out|policy cannot be run: )") as raised:
        policy.act(np.zeros(4))
    assert "\n" not in str(raised.value)


def test_functions_that_call_each_other_are_refused_before_they_are_unfolded(made):
    """2^30 calls would keep ONNX Runtime busy for ever."""

    def change(model):
        opset = list(model.opset_import)
        body = [helper.make_node("Identity", ["x"], ["y"])]
        for depth in range(31):
            model.functions.append(helper.make_function("own", f"f{depth}", ["x"], ["y"], body, opset))
            body = [
                helper.make_node(f"f{depth}", ["x"], ["z"], domain="own"),
                helper.make_node(f"f{depth}", ["z"], ["y"], domain="own"),
            ]
        model.opset_import.append(helper.make_opsetid("own", 1))

    _, _, path = made(DISCRETE)
    forged(path, change)
    with pytest.raises(DistrlError, match=r"policy .*: its graph defines functions"):
        load_policy(path)


def test_it_takes_whole_numbers_as_an_environment_shows_them(made):
    environment = VectorEnvironment(EnvironmentConfig(id="distrl.environments.worlds.toy:Identity"), 1)
    environment.close()
    _, _, path = made(environment.spec)
    policy, single = load_policy(path), Identity()
    shown, _ = single.reset(seed=1)
    assert policy.act(shown).action == policy.act(np.eye(4)[shown]).action
    single.step(policy.act(shown).action)
    many = policy.act(np.array([0, 3, 2, 1, 3])).action
    assert many.tolist() == [policy.act(number).action for number in (0, 3, 2, 1, 3)]
    with pytest.raises(DistrlError, match=r"observation 'observation' is 4; the environment shows 0 … 3"):
        policy.act(4)


def test_preprocessing_that_leads_elsewhere_is_refused(made):
    _, _, path = made(DISCRETE)
    bundle, exported = opened(path.read_bytes())
    before = Unprocessed({"observation": ArraySpec((5,), "float32")}, DISCRETE.actions, "[]")
    policy = replace(exported.policy, environment=replace(DISCRETE, unprocessed=before))
    path.write_bytes(sealed(bundle.graph, replace(exported, policy=policy)))
    with pytest.raises(DistrlError, match=r"^policy .*: its description is inconsistent: preprocessing makes other"):
        load_policy(path)


ALONE = """
import sys
import numpy as np
import distrl
policy = distrl.load_policy(sys.argv[1])
assert policy.act(np.zeros(4)).action in (2, 3, 4)
heavy = {"tensorflow", "keras", "jax", "gymnasium", "gym", "redis", "ray", "onnx", "tf2onnx", "cv2", "msgpack"}
sys.exit(f"imported: {sorted(heavy & set(sys.modules))}" if heavy & set(sys.modules) else 0)
"""


def test_acting_takes_numpy_and_onnxruntime_alone(made):
    _, _, path = made(DISCRETE)
    done = subprocess.run([sys.executable, "-c", ALONE, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_tells_what_is_known_of_it(made):
    _, _, path = made(DISCRETE)
    policy = ExportedPolicy(*opened(path.read_bytes()))
    assert (policy.exported.algorithm, policy.exported.weights_version, policy.spec) == ("impala", 9, DISCRETE)


@pytest.mark.parametrize(
    ("recurrent", "stacks", "fits"),
    [
        ({"h": np.zeros((1, 3), np.float32)}, {"image": np.zeros((1, 4, 4, 2), np.uint8)}, True),
        ({"h": np.zeros((1, 3), np.float32)}, {}, True),  # before the first observation
        ({"h": np.zeros((1, 3), np.float32)}, {"image": np.zeros((1, 4, 4, 3), np.uint8)}, False),
        ({"h": np.zeros((1, 3), np.float32)}, {"other": np.zeros((1, 4, 4, 2), np.uint8)}, False),
        ({"h": np.zeros((1, 2), np.float32)}, {}, False),
        ({}, {}, False),
    ],
)
def test_a_state_fits_a_policy_of_the_same_arrays_alone(recurrent, stacks, fits):
    spec = SimpleNamespace(observations={"image": ArraySpec((4, 4, 2), "uint8")})
    network = SimpleNamespace(spec=spec, initial_state=lambda count: {"h": np.zeros((count, 3), np.float32)})
    policy = SimpleNamespace(_policy=network, _stacks={"image": 2})
    state = PolicyState(recurrent, stacks, np.zeros(1, np.bool_))
    assert ExportedPolicy.takes(policy, state) is fits
