"""Probabilities of all choices, from the actor that had them to the batch that the learner samples."""

from types import SimpleNamespace

import numpy as np
import pytest

from distrl.actors.acting import PolicyOutput
from distrl.actors.actor import Actor
from distrl.actors.extras.choice_probabilities import ChoiceProbabilities
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.config.algorithms import Declared
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, NonFiniteUnrollError, SchemaError
from distrl.learner.replay_set_up import make_replay
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import decode_unroll, encode_unroll, encode_weights
from distrl.memory_backend.joining import stack
from distrl.memory_backend.stream import QueueCaps
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.values import ValuesSpec
from distrl.networks.policy.bundle import export_bundle
from distrl.types import CHOICE_PROBABILITIES, Weights
from distrl.unroll_schema import UnrollSchema

CONFIG = RunConfig.model_validate(
    {
        "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 3, "length_steps": 4}},
        "algorithm": {"name": "acer", "replay": {"capacity_steps": 28, "min_size_steps": 14}},
        "network": {"middleware_parameters": {"scheme": [4]}},
        "actors": {"environments": 2, "unroll_length_steps": 7},
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The environment's spec, the network that acted, and two unrolls as they are in the stream."""
    environment = VectorEnvironment(CONFIG.environment, 2)
    network = make_algorithm(CONFIG).build(environment.spec)["main"].online
    rng = np.random.default_rng(0)
    network.set_weights([rng.standard_normal(weight.shape).astype("float32") for weight in network.get_weights()])
    backend = connect("local:", "actors", QueueCaps(100, 2**24), name="test", give_up_s=1.0)
    backend.create("{}")
    weights = encode_weights(Weights(1, network.policy_weights()))
    backend.become_learner().weights.publish(1, weights, Progress())
    policy = Policy(export_bundle(network, cache_dir=tmp_path_factory.mktemp("bundles")))
    producer = (0, backend.registry.register_actor(0))
    actor = Actor(CONFIG, policy, environment, Outbox(CONFIG, backend, producer, lambda: False))
    actor.reset(0)
    actor.step(backend.unrolls.admission())
    actor.reset(0)  # nothing is left of what came before
    for _ in range(2):
        actor.step(backend.unrolls.admission())
    entries = [(entry.header, entry.payload) for entry in backend.unrolls.take(3, 0.0)]
    spec = environment.spec
    environment.close()
    return spec, network, entries[1:]


def schema_of(spec, *, told=True):
    return UnrollSchema.of(spec, 7, 2, {}, extras=["choice_probabilities"] if told else [])


@pytest.mark.row("D164")
def test_an_actor_tells_the_probabilities_of_its_own_policy(made):
    """Against the Keras network whose weights it acted with; actions were drawn by them."""
    spec, network, entries = made
    for header, payload in entries:
        unroll = decode_unroll(header, payload, schema_of(spec))
        rows = unroll.observations["observation"][:-1].reshape(14, -1)  # [T, B, n] -> [T*B, n]
        logits = network.predict({"observation": rows}, ["policy/action"]).reshape(7, 2, 3)
        expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        found = unroll.extras[CHOICE_PROBABILITIES]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        taken = np.take_along_axis(found, unroll.actions["action"][..., None], axis=-1)[..., 0]
        np.testing.assert_allclose(np.log(taken), unroll.behaviour_log_probabilities, rtol=1e-4, atol=1e-5)
        assert found.max() > 0.5  # no policy that is the same for all


def test_they_travel_where_they_are_asked_for_and_nowhere_else(made):
    spec, _, ((header, payload), _) = made
    with pytest.raises(SchemaError, match="an unroll has the fields"):
        decode_unroll(header, payload, schema_of(spec, told=False))
    unroll = decode_unroll(header, payload, schema_of(spec))
    unroll.extras.clear()
    with pytest.raises(SchemaError, match="an unroll has the fields"):
        decode_unroll(header, encode_unroll(unroll), schema_of(spec))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (np.full((7, 2, 2), 0.5, "float32"), SchemaError, r"choice_probabilities must be float32 \(7, 2, 3\)"),
        (np.full((7, 2, 3), 0.5, "float64"), SchemaError, r"choice_probabilities must be float32 \(7, 2, 3\)"),
        (np.full((7, 2, 3), -0.5, "float32"), SchemaError, "choice_probabilities must be at least 0, not -0.5"),
        (np.full((7, 2, 3), np.nan, "float32"), NonFiniteUnrollError, "choice_probabilities is not finite"),
    ],
)
def test_they_are_checked(made, given, error, message):
    spec, _, ((header, payload), _) = made
    unroll = decode_unroll(header, payload, schema_of(spec))
    unroll.extras[CHOICE_PROBABILITIES] = given
    with pytest.raises(error, match=message):
        decode_unroll(header, encode_unroll(unroll), schema_of(spec))


def test_batches_have_them_from_the_stream_and_from_the_memory(made):
    spec, _, entries = made
    unrolls = [decode_unroll(header, payload, schema_of(spec)) for header, payload in entries]
    joined = np.concatenate([unroll.extras[CHOICE_PROBABILITIES] for unroll in unrolls], axis=1)
    np.testing.assert_array_equal(stack(unrolls, {}).extras[CHOICE_PROBABILITIES], joined)
    replay = make_replay(CONFIG, spec, {}, 0)
    for unroll in unrolls:
        replay.insert(unroll)
    batch = replay.sample(16, 0).batch
    stored = {joined[:, n].tobytes(): n for n in range(4)}
    drawn = [stored[batch.extras[CHOICE_PROBABILITIES][:, n].tobytes()] for n in range(16)]
    assert len(set(drawn)) > 1
    actions = np.concatenate([unroll.actions["action"] for unroll in unrolls], axis=1)
    np.testing.assert_array_equal(batch.actions["action"], actions[:, drawn])  # of the same sequences


@pytest.mark.parametrize(
    "distributions",
    [
        {"action": ValuesSpec(2, "q/q")},
        {"left": CategoricalSpec(2), "right": CategoricalSpec(2)},
        {},
    ],
)
def test_a_policy_that_does_not_draw_one_choice_is_refused(distributions):
    with pytest.raises(ConfigError, match="algorithm mine:Own: choice_probabilities need one action, drawn by"):
        ChoiceProbabilities(SimpleNamespace(name="mine:Own"), SimpleNamespace(distributions=distributions))


def test_a_users_class_declares_that_its_actors_do_not_explore():
    with pytest.raises(ValueError, match="declare learns_from: own policy"):
        Declared(unroll_extras=[CHOICE_PROBABILITIES])
    assert Declared(unroll_extras=[CHOICE_PROBABILITIES], learns_from="own policy").unroll_extras


def test_rows_of_an_abandoned_unroll_are_forgotten(made):
    spec, _, ((header, payload), *_) = made
    policy = SimpleNamespace(distributions={"action": CategoricalSpec(2)})
    extra = ChoiceProbabilities(CONFIG.algorithm, policy)
    for logits in (np.zeros((2, 2), np.float32), np.log(np.float32([[1.0, 3.0]] * 2))):
        extra.begin(CONFIG, Progress())
        extra.add(PolicyOutput({"policy/action": logits}, {}), None)
    unroll = extra.close(decode_unroll(header, payload, schema_of(spec)))
    np.testing.assert_allclose(unroll.extras["choice_probabilities"], [[[0.25, 0.75]] * 2], rtol=1e-6)
