"""Actor: weights at the mixing rate, named waits, tickets, stopping, and reproducible unrolls without gaps."""

import threading
import time
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import redis

from distrl.actors.acting import PolicyOutput
from distrl.actors.actor import Actor
from distrl.actors.admission import LONGEST_POLL_S, ActorProgress
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.config.exploration import EpsilonGreedyParameters, ParameterNoiseParameters, PolicySamplingParameters
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.live_settings import steered
from distrl.config.schedules import ConstantSchedule, LinearSchedule, Progress
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.toy import StepCounter
from distrl.errors import ConfigError, EnvironmentFailedError, FencedError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import decode_unroll, encode_weights
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.stream import Admission, QueueCaps
from distrl.metrics.counters import Waits
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.network import Network
from distrl.networks.policy.bundle import export_bundle
from distrl.networks.policy.description import BundleDescription
from distrl.types import ArraySpec, PolicyBundle, UnrollHeader, Weights
from distrl.unroll_schema import UnrollSchema
from tests.waiting import lasts, wait_until

T, B = 5, 2
HEADS = (PolicyHeadParameters(), ValueHeadParameters())
LOGITS = "policy/action"
SYMBOLS = {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 3, "length_steps": 7}}
COUNTER = {"id": "distrl.environments.worlds.toy:StepCounter", "kwargs": {"terminate_at_steps": 3}}


def configure(environment=SYMBOLS, **paths):
    tree = {
        "seed": 11,
        "environment": environment,
        "network": {"middleware_parameters": {"scheme": [4]}},
        "actors": {"environments": B, "unroll_length_steps": T},
    }
    for path, value in paths.items():
        section, name = path.split("__")
        tree.setdefault(section, {})[name] = value
    return RunConfig.model_validate(tree)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """environment id -> (network, bundle), exported once."""
    cache = tmp_path_factory.mktemp("bundles")
    made = {}

    def get(config):
        key = config.environment.id
        if key not in made:
            environment = VectorEnvironment(config.environment, 1)
            environment.close()
            network = Network(config.network, environment.spec, HEADS, "main", 1)
            made[key] = (network, export_bundle(network, cache_dir=cache))
        return made[key]

    return get


class Run:
    """A run in memory with one learner (the test) and actors of one configuration."""

    def __init__(self, parts, config, caps=None):
        self.config = config
        self.network, self.bundle = parts(config)
        self.backend = connect("local:", "actors", caps or QueueCaps(100, 2**24), name="test", give_up_s=1.0)
        self.backend.create("{}")
        self.learner = self.backend.become_learner()
        self.stop = threading.Event()
        self.opened = []
        self.threads = []

    def actor(self, number=0, *, kind=VectorEnvironment, update=0, config=None, exploration=None):
        config = config or self.config
        environment = kind(config.environment, B)
        self.opened.append(environment)
        producer = (number, self.backend.registry.register_actor(number))
        description = replace(BundleDescription.from_json(self.bundle.description), exploration=exploration)
        policy = Policy(PolicyBundle(self.bundle.graph, description.to_json()))
        made = Actor(config, policy, environment, Outbox(config, self.backend, producer, self.stop.is_set))
        made.reset(update)
        return made

    def start(self, actor):
        thread = threading.Thread(target=actor.run, daemon=True)
        thread.start()
        self.threads.append(thread)
        return actor

    def weights(self, value):
        return {name: np.full_like(array, value) for name, array in self.network.named_weights().items()}

    def publish(self, version, value=None, env_steps=0):
        """All weights equal to `value`; by default the network's own."""
        arrays = self.network.named_weights() if value is None else self.weights(value)
        self.learner.weights.publish(version, encode_weights(Weights(version, arrays)), Progress(env_steps))

    def unrolls(self):
        """Return the pushes since the last call."""
        spec = self.opened[0].spec
        schema = UnrollSchema.of(spec, T, B, {})
        entries = self.backend.unrolls.take(1000, 0.0)
        self.learner.unrolls.settle(entries, EntryOutcome.TRAINED)
        return [decode_unroll(entry.header, entry.payload, schema) for entry in entries]

    def step(self, actor):
        """One unroll."""
        actor.step(self.backend.unrolls.admission())
        (unroll,) = self.unrolls()
        return unroll

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(10.0)
            assert not thread.is_alive()
        for environment in self.opened:
            environment.close()


@pytest.fixture
def make_run(parts):
    made = []

    def make(config=None, **options):
        made.append(Run(parts, config or configure(), **options))
        return made[-1]

    yield make
    for run in made:
        run.close()


# ---------------------------------------------------------------------------------------------------------- unrolls


@pytest.mark.row("P07.1")
def test_unrolls_tell_which_episodes_succeeded(make_run):
    """Two bits, two steps: the reward of a step is 0 if it reached the goal, else -1."""
    run = make_run(configure({"id": "distrl.environments.worlds.bit_flip:BitFlip", "kwargs": {"n": 2}}))
    actor = run.actor()
    run.publish(1)
    unrolls = [run.step(actor) for _ in range(20)]
    returns = np.concatenate([unroll.episode_returns for unroll in unrolls])
    successes = np.concatenate([unroll.episode_successes for unroll in unrolls])
    assert set(successes.tolist()) == {0, 1}
    np.testing.assert_array_equal(successes, returns > -2.0)


def test_unrolls_follow_each_other_without_a_gap(make_run):
    run = make_run(configure(COUNTER))
    actor = run.actor(number=3)
    run.publish(5)
    unrolls = [run.step(actor) for _ in range(3)]
    assert [unroll.header.sequence for unroll in unrolls] == [0, 1, 2]
    assert {(unroll.header.producer, unroll.header.weights_version) for unroll in unrolls} == {((3, 1), 5)}
    # Episodes of three steps, then a row of padding: 0 1 2 3 | 0 1 2 3 | …
    rows = np.concatenate([unroll.observations["observation"][:-1, 0, 0] for unroll in unrolls])
    assert rows.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    for before, after in pairwise(unrolls):
        np.testing.assert_array_equal(before.observations["observation"][-1], after.observations["observation"][0])
    assert [unroll.header.env_steps for unroll in unrolls] == [4 * B, 4 * B, 4 * B]
    assert [unroll.episode_returns.tolist() for unroll in unrolls] == [[6.0] * B, [6.0] * B, [6.0] * 2 * B]
    np.testing.assert_allclose(unrolls[0].episode_discounted_returns, 1.0 + 0.99 * 2.0 + 0.99**2 * 3.0)
    assert unrolls[0].episode_successes.tolist() == [-1] * B  # the environment does not say
    assert actor.outbox.progress.env_steps == 12 * B
    assert run.backend.ledger.counts().imbalance == 0


@pytest.mark.row("L21", "G17")
def test_actions_and_their_probabilities_are_those_of_the_policy(make_run):
    run = make_run()
    actor = run.actor(update=4)
    run.publish(2)
    unroll = run.step(actor)
    key = np.random.SeedSequence(11, spawn_key=(1, 0, 1, 4))  # seed, actors, actor, incarnation, update
    random = np.random.default_rng(key.spawn(2)[1])
    selector = ActionSelector({"action": CategoricalSpec(3)})
    for row in range(T):
        logits = run.network.predict({"observation": unroll.observations["observation"][row]}, [LOGITS])
        actions, log_probabilities = selector.sample({LOGITS: logits}, random)
        assert unroll.actions["action"][row].tolist() == actions["action"].tolist()
        np.testing.assert_allclose(unroll.behaviour_log_probabilities[row], log_probabilities, atol=1e-5)


def same(unroll, other):
    return np.array_equal(unroll.actions["action"], other.actions["action"]) and all(
        np.array_equal(getattr(unroll, name), getattr(other, name))
        for name in ("rewards", "behaviour_log_probabilities")
    )


def test_a_reset_makes_the_same_unrolls_again(make_run):
    run = make_run()
    run.publish(1)
    actor = run.actor()
    actor.reset(update=8)
    first = [run.step(actor) for _ in range(2)]
    actor.reset(update=8)  # with episodes open, which are abandoned
    again = [run.step(actor) for _ in range(2)]
    assert all(map(same, first, again))
    assert [unroll.header.sequence for unroll in first + again] == [0, 1, 2, 3]
    assert not same(first[0], first[1])
    assert [unroll.episode_lengths_steps.tolist() for unroll in again] == [[], [7, 7]]


@pytest.mark.parametrize("what", ["update", "actor", "incarnation", "seed"])
def test_whatever_tells_actors_apart_gives_other_numbers(make_run, what):
    run = make_run()
    run.publish(1)
    original = run.step(run.actor(update=3))
    if what == "incarnation":
        other = run.actor(update=3)
    elif what == "seed":
        run = make_run(configure(SYMBOLS).model_copy(update={"seed": 12}))
        run.publish(1)
        other = run.actor(update=3)
    else:
        other = run.actor(number=int(what == "actor"), update=3 + (what == "update"))
    assert not same(original, run.step(other))


# ------------------------------------------------------------------------------------------------------- exploration


def certain(run):
    """Weights under which the policy takes its first action with a probability of e^-9 and less for others."""
    return {
        name: np.array([9, 0, 0], np.float32) if name == "main/policy_head_action/bias" else np.zeros_like(array)
        for name, array in run.network.named_weights().items()
    }


@pytest.mark.row("D21")
@pytest.mark.parametrize("counts", Progress._fields)
def test_exploration_follows_the_progress_that_comes_with_weights(make_run, counts):
    """Epsilon is 1 at 0 steps, 0.5 at 500 and 0 at 1000; between two versions it stays the same."""
    run = make_run()
    parameters = EpsilonGreedyParameters(epsilon=LinearSchedule(start=1.0, end=0.0, steps=1000, counts=counts))
    actor = run.actor(exploration=parameters)
    own = np.exp([9, 0, 0]) / np.exp([9, 0, 0]).sum()
    for version, (steps, epsilon) in enumerate([(0, 1.0), (500, 0.5), (1000, 0.0)], start=1):
        weights = encode_weights(Weights(version, certain(run)))
        run.learner.weights.publish(version, weights, Progress(7, 8, 9)._replace(**{counts: steps}))
        for unroll in (run.step(actor), run.step(actor)):
            expected = np.log((1 - epsilon) * own + epsilon / 3)[unroll.actions["action"]]
            np.testing.assert_allclose(unroll.behaviour_log_probabilities, expected, rtol=1e-4, atol=1e-6)


def test_an_actor_that_begins_late_explores_as_all_others_do(make_run):
    """A restarted actor takes over where training is, not where it began."""
    run = make_run()
    parameters = PolicySamplingParameters(random_steps=100)
    run.learner.weights.publish(1, encode_weights(Weights(1, certain(run))), Progress(99))
    early = run.step(run.actor(exploration=parameters))
    np.testing.assert_allclose(early.behaviour_log_probabilities, np.log(1 / 3), rtol=1e-6)
    run.learner.weights.publish(2, encode_weights(Weights(2, certain(run))), Progress(100))
    late = run.step(run.actor(exploration=parameters))
    assert not late.actions["action"].any()
    np.testing.assert_allclose(late.behaviour_log_probabilities, 0.0, atol=1e-3)


def test_every_unroll_acts_with_noise_of_its_own_on_the_weights(make_run):
    run = make_run()
    run.publish(1, value=0.0)
    noisy = run.actor(exploration=ParameterNoiseParameters(stddev=ConstantSchedule(value=1.0)))
    unrolls = [run.step(noisy) for _ in range(3)]
    means = {float(np.abs(unroll.behaviour_log_probabilities).mean()) for unroll in unrolls}
    assert len(means) == 3
    np.testing.assert_allclose(run.step(run.actor()).behaviour_log_probabilities, np.log(1 / 3), rtol=1e-6)
    noisy.reset(update=8)
    first = [run.step(noisy) for _ in range(2)]
    noisy.reset(update=8)
    assert all(map(same, first, [run.step(noisy) for _ in range(2)]))


# ----------------------------------------------------------------------- recurrent state and actions of every kind


class Ragged(StepCounter):
    """Episodes of 1 to 4 steps."""

    def reset(self, *, seed=None, options=None):
        observation, infos = super().reset(seed=seed, options=options)
        self._terminate_at_steps = int(self.np_random.integers(1, 5))
        return observation, infos


class RowCounter:
    """A policy whose state counts the rows since it was last 0; its arrays may not be written to."""

    version = 1
    exploration = None
    distributions: ClassVar = {"action": CategoricalSpec(2)}

    def __init__(self):
        self.given = []

    def forget_weights(self):
        """There are none."""

    def initial_state(self, batch):
        return {"rows": np.zeros((batch, 1), np.float32), "twice": np.zeros((batch, 2), np.int32)}

    def step(self, observations, recurrent_state):
        self.given.append((observations["observation"].copy(), recurrent_state["rows"].copy()))
        np.testing.assert_array_equal(recurrent_state["twice"], np.tile(recurrent_state["rows"], 2))
        state = {name: array + np.ones((), array.dtype) for name, array in recurrent_state.items()}
        for array in state.values():
            array.flags.writeable = False
        logits = np.zeros((len(observations["observation"]), 2), np.float32)
        return PolicyOutput(outputs={LOGITS: logits}, recurrent_state=state)


def act(policy, environment_id, unrolls, schema_state=None):
    """Unrolls of T steps of 4 environments under `policy`, decoded from the stream."""
    config = configure({"id": environment_id}, actors__environments=4)
    backend = connect("local:", "acting", QueueCaps(100, 2**24), name="test", give_up_s=1.0)
    backend.create("{}")
    backend.become_learner().weights.publish(1, b"", Progress())
    environment = VectorEnvironment(config.environment, 4)
    producer = (0, backend.registry.register_actor(0))
    actor = Actor(config, policy, environment, Outbox(config, backend, producer, lambda: False))
    actor.reset(0)
    for _ in range(unrolls):
        actor.step(backend.unrolls.admission())
    environment.close()
    schema = UnrollSchema.of(environment.spec, T, 4, schema_state or {})
    return [decode_unroll(entry.header, entry.payload, schema) for entry in backend.unrolls.take(100, 0.0)]


def test_the_state_begins_anew_with_every_episode_and_lasts_over_unrolls():
    """Ragged observes its step, and the policy's state counts its rows: they agree at every row of every episode."""
    policy = RowCounter()
    state = {"rows": ArraySpec((1,), "float32"), "twice": ArraySpec((2,), "int32")}
    unrolls = act(policy, f"{__name__}:Ragged", 12, state)
    assert len(policy.given) == 12 * T
    for observation, rows in policy.given:
        np.testing.assert_array_equal(rows, observation)
    shipped = []
    for unroll in unrolls:
        np.testing.assert_array_equal(unroll.recurrent_state["rows"][0], unroll.observations["observation"][0])
        shipped.extend(unroll.recurrent_state["rows"][0, :, 0].tolist())
    # Unrolls begin at the first row of an episode and at later ones, and not with all environments at the same.
    assert {0.0, 1.0, 2.0, 3.0} <= set(shipped)
    assert shipped.count(0.0) > 4  # more than those of the first unroll
    assert any(len(set(unroll.recurrent_state["rows"][0, :, 0])) > 2 for unroll in unrolls)


class Anything:
    """A policy without state for the toy `Mixed`; its outputs follow from the observation."""

    version = 1
    exploration = None
    distributions: ClassVar = {
        "bounded": SquashedGaussianSpec((-1.0, -1.0), (1.0, 1.0)),
        "choices": MultiCategoricalSpec((2, 3)),
        "free": GaussianSpec(2),
        "switches": BernoulliSpec(2),
        "symbol": CategoricalSpec(3),
    }

    def forget_weights(self):
        """There are none."""

    def initial_state(self, batch):
        return {}

    def step(self, observations, recurrent_state):
        assert recurrent_state == {}
        shown = observations["observation"]
        outputs = {f"policy/{name}": shown[:, : spec.parameters_size] for name, spec in self.distributions.items()}
        return PolicyOutput(outputs=outputs, recurrent_state={})


def mixed_reward(shown, action):
    """The mean of the five closeness values, from one observation of `Mixed` and the actions as they travel."""
    bounded = np.clip(action["bounded"], -1, 1)
    return np.mean(
        [
            action["symbol"] == shown[:3].argmax(),
            np.mean(action["choices"] == [shown[3:5].argmax(), shown[5:8].argmax()]),
            np.mean(action["switches"] == shown[8:10]),
            np.exp(-np.square(bounded - shown[10:12]).sum()),
            np.exp(-np.square(action["free"] - shown[12:]).sum()),
        ]
    )


@pytest.mark.parametrize("bounded", [Anything.distributions["bounded"], GaussianSpec(2)], ids=["squashed", "gaussian"])
def test_actions_of_every_kind_reach_the_environment_and_the_stream_as_they_were_drawn(bounded, monkeypatch):
    policy = Anything()
    monkeypatch.setattr(Anything, "distributions", Anything.distributions | {"bounded": bounded})
    unrolls = act(policy, "distrl.environments.worlds.toy:Mixed", 4)
    key = np.random.SeedSequence(11, spawn_key=(1, 0, 1, 0))
    random, selector = np.random.default_rng(key.spawn(2)[1]), ActionSelector(policy.distributions)
    outside = 0
    for unroll in unrolls:
        for row in range(T):
            shown = unroll.observations["observation"][row]
            actions, log_probabilities = selector.sample(policy.step({"observation": shown}, {}).outputs, random)
            np.testing.assert_array_equal(unroll.behaviour_log_probabilities[row], log_probabilities)
            for name, array in actions.items():
                np.testing.assert_array_equal(unroll.actions[name][row], array, err_msg=name)
            outside += int((np.abs(actions["bounded"]) > 1).sum())
            for i in np.flatnonzero(unroll.valid[row]):
                expected = mixed_reward(shown[i], {name: array[i] for name, array in actions.items()})
                assert unroll.rewards[row, i] == pytest.approx(expected, abs=1e-5)
    assert sum(unroll.header.env_steps for unroll in unrolls) == 4 * (4 * T - 2)  # two episodes ended
    # A Gaussian's numbers beyond the bounds travel as they were drawn, and the environment gets the bounds.
    assert (outside > 0) == isinstance(bounded, GaussianSpec)


def test_an_environment_that_raises_ends_the_actor(make_run):
    class Broken(VectorEnvironment):
        def step(self, actions):
            raise EnvironmentFailedError("environment Toy failed in step: ValueError: no")

    run = make_run()
    actor = run.actor(kind=Broken)
    run.publish(1)
    with pytest.raises(EnvironmentFailedError, match="failed in step"):
        actor.run()
    assert run.unrolls() == []


# ---------------------------------------------------------------------------------------------------------- weights


STUCK = """
from distrl.environments.worlds.toy import Masked

class Stuck(Masked):
    def _pay(self, action):
        return 0.0

    def _show(self):
        shown = super()._show()
        if self._steps == 2:
            shown["action_mask"][:] = 0
        return shown
"""


@pytest.mark.parametrize(("mask", "ends"), [("action_mask", True), (None, False)])
def test_a_mask_that_forbids_everything_ends_the_actor_with_one_line(make_run, tmp_path, monkeypatch, mask, ends):
    """Where the episode is over, as after step 4, it may; one that no head names is an observation like others."""
    (tmp_path / "stuck_in_training.py").write_text(STUCK)
    monkeypatch.syspath_prepend(str(tmp_path))
    heads = [{"kind": "policy", "action_mask": mask}]
    environment = {"id": "stuck_in_training:Stuck", "kwargs": {"length_steps": 4}}
    run = make_run(configure(environment, network__heads_parameters=heads))
    run.publish(1)
    actor = run.actor()
    if not ends:
        run.step(actor)
        return
    with pytest.raises(ConfigError, match=r"^stuck_in_training:Stuck: observation 'action_mask' forbids every choice"):
        run.step(actor)


def test_the_first_weights_are_taken_whole_and_later_ones_mixed_at_the_rate(make_run):
    run = make_run(configure(actors__weight_mixing_rate=0.25))
    actor = run.actor()
    expected = None
    for version, given in ((3, 1.0), (4, 3.0), (7, -1.0)):
        run.publish(version, given)
        unroll = run.step(actor)
        expected = given if expected is None else 0.25 * given + 0.75 * expected
        assert (actor.weights_version, unroll.header.weights_version) == (version, version)
        twin = Policy(run.bundle)
        twin.set_weights(Weights(1, run.weights(expected)))
        observations = {"observation": np.arange(3, dtype=np.uint8)[:, None]}
        found = actor._policy.step(observations, {}).outputs[LOGITS]
        np.testing.assert_allclose(found, twin.step(observations, {}).outputs[LOGITS], rtol=1e-6)
    assert expected == 0.25 * -1.0 + 0.75 * 1.5
    actor.reset(update=9)
    assert actor.weights_version == 0
    run.step(actor)  # version 7 again, and whole
    twin.set_weights(Weights(1, run.weights(-1.0)))
    found = actor._policy.step(observations, {}).outputs[LOGITS]
    np.testing.assert_array_equal(found, twin.step(observations, {}).outputs[LOGITS])


@pytest.mark.row("O11")
def test_weights_are_fetched_once_per_version(make_run, monkeypatch):
    run = make_run()
    actor = run.actor()
    fetched = []
    store = run.backend.weights
    fetch = store.fetch
    monkeypatch.setattr(store, "fetch", lambda: fetched.append(store.version()) or fetch())
    for version in (1, 2):
        run.publish(version)
        for _ in range(3):
            run.step(actor)
    assert fetched == [1, 2]


def test_an_unroll_keeps_the_weights_it_began_with(make_run):
    run = make_run()

    class Publishing(VectorEnvironment):
        def step(self, actions):
            if run.backend.weights.version() < 3:
                run.publish(run.backend.weights.version() + 1)
            return super().step(actions)

    actor = run.actor(kind=Publishing)
    run.publish(1)
    assert [run.step(actor).header.weights_version for _ in range(2)] == [1, 3]


# ------------------------------------------------------------------------------------------------------------ waits


@pytest.mark.row("J04")
def test_every_wait_has_a_name(make_run):
    run = make_run(caps=QueueCaps(2, 2**24))
    actor = run.actor()
    assert actor.outbox.progress.state == "starting"
    run.start(actor)
    wait_until(lambda: actor.outbox.progress.state == "waiting: weights")
    run.publish(1)
    wait_until(lambda: actor.outbox.progress.state == "waiting: room")
    assert [unroll.header.sequence for unroll in run.unrolls()] == [0, 1]  # never more than there is room for
    wait_until(lambda: run.backend.ledger.counts().queued == 2)
    run.backend.registry.set_control(paused=True)
    wait_until(lambda: actor.outbox.progress.state == "paused")
    assert len(run.unrolls()) == 2
    assert run.unrolls() == []
    run.backend.registry.set_control(paused=False)
    wait_until(lambda: run.backend.ledger.counts().queued == 2)
    run.stop.set()
    wait_until(lambda: actor.outbox.progress.state == "stopping")
    assert [unroll.header.sequence for unroll in run.unrolls()] == [4, 5]


def test_what_is_waited_for_is_counted_by_name(make_run, monkeypatch):
    now = [0.0]
    run = make_run(configure(algorithm__max_staleness_updates=0))
    actor = run.actor()
    actor.outbox._gate.waits = Waits(lambda: now[0])
    monkeypatch.setattr("distrl.actors.admission.time.sleep", lambda seconds: now.__setitem__(0, now[0] + 1.0))
    told = iter(
        [Admission(False, 1, False, False), Admission(True, 1, True, False), *[Admission(True, 1, False, False)] * 9]
    )

    def admission(block_s=0.0):
        now[0] += 1.0 if block_s else 0.0
        return next(told)

    monkeypatch.setattr(run.backend.unrolls, "admission", admission)
    taken = iter([False, True])

    def take(producer, block_s):
        now[0] += 2.0
        return next(taken)

    monkeypatch.setattr(run.backend.tickets, "take", take)
    # Room, room, paused, and two looks for a ticket.
    start = actor.outbox._gate.wait(Admission(False, 1, False, False))
    assert (start.has_room, start.paused) == (True, False)
    assert actor.outbox.waits.shares() == {"waiting: room": 2 / 7, "paused": 1 / 7, "waiting: ticket": 4 / 7}


@pytest.mark.redis
def test_an_actor_that_waits_for_room_asks_redis_ten_times_a_second_at_most(make_run, redis_url):
    """A hundred actors whose learner is stopped would fill a Redis otherwise."""
    run = make_run()
    actor = run.actor()
    caps = QueueCaps(1, 2**24)
    with closing(connect(redis_url, "seldom", caps, name="actor 0", give_up_s=5.0)) as backend:
        backend.create("{}")
        backend.become_learner().weights.publish(1, b"", Progress())
        backend.unrolls.push(UnrollHeader(0, 1, 0, 1, 1), b"x")
        actor.outbox._backend = actor.outbox._gate._backend = backend
        run.start(actor)
        with redis.Redis.from_url(redis_url) as admin:
            wait_until(lambda: actor.outbox.progress.state == "waiting: room")
            began, before = time.monotonic(), admin.info("stats")["total_commands_processed"]
            lasts(1.0)
            asked = admin.info("stats")["total_commands_processed"] - before
        elapsed_s = time.monotonic() - began
        run.stop.set()
        run.threads[0].join(60.0)
        backend.delete()
    commands_each = 9  # a wait, and a transaction of three that watches the run
    assert asked <= commands_each * (elapsed_s / LONGEST_POLL_S + 2)
    assert LONGEST_POLL_S >= 0.05


def test_acting_is_a_state_with_the_time_of_the_last_step(make_run):
    run = make_run()
    seen = []

    class Watched(VectorEnvironment):
        def step(self, actions):
            seen.append((actor.outbox.progress.state, actor.outbox.progress.last_step_at))
            return super().step(actions)

    actor = run.actor(kind=Watched)
    run.publish(1)
    began = time.monotonic()
    run.step(actor)
    states, times = zip(*seen, strict=True)
    assert set(states) == {"acting"}
    assert began <= times[0] <= times[-1] <= actor.outbox.progress.last_step_at <= time.monotonic()
    assert list(times) == sorted(times)


def test_no_heartbeat_sees_an_actor_that_acts_with_the_time_of_an_earlier_unroll(make_run):
    run = make_run()
    times = []

    class Watched(ActorProgress):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if (name, value) == ("state", "acting"):
                times.append(self.last_step_at)

    actor = run.actor()
    actor.outbox.progress.__class__ = Watched
    run.publish(1)
    began = time.monotonic()
    run.step(actor)
    assert len(times) == 1
    assert times[0] >= began


@pytest.mark.parametrize("waiting", ["weights", "room", "ticket", "nothing"])
@pytest.mark.parametrize("how", ["event", "control"])
def test_it_stops_whatever_it_waits_for(make_run, waiting, how):
    config = configure(algorithm__max_staleness_updates=0) if waiting == "ticket" else configure()
    run = make_run(config, caps=QueueCaps(1 if waiting == "room" else 10_000, 2**30))
    actor = run.actor()
    if waiting != "weights":
        run.publish(1)
    run.start(actor)
    wait_until(lambda: actor.outbox.progress.state == ("acting" if waiting == "nothing" else f"waiting: {waiting}"))
    if how == "event":
        run.stop.set()
    else:
        run.backend.registry.set_control(stop="asked")
    run.threads[0].join(10.0)
    assert not run.threads[0].is_alive()
    assert actor.outbox.progress.state == "stopping"
    assert run.backend.tickets.counts() == (0, 0)


def test_a_stop_comes_after_the_unroll_in_hand(make_run):
    run = make_run()

    class Stopping(VectorEnvironment):
        def step(self, actions):
            run.stop.set()
            return super().step(actions)

    actor = run.actor(kind=Stopping)
    run.publish(1)
    actor.run()
    assert [unroll.header.sequence for unroll in run.unrolls()] == [0]


# ---------------------------------------------------------------------------------------------------------- tickets


def test_without_bounded_staleness_no_ticket_is_asked_for(make_run):
    run = make_run(caps=QueueCaps(3, 2**24))
    run.publish(1)
    actor = run.start(run.actor())
    wait_until(lambda: actor.outbox.progress.state == "waiting: room")
    assert len(run.unrolls()) == 3


@pytest.mark.row("D66")
def test_one_unroll_per_ticket_and_never_with_older_weights_than_it_promises(make_run):
    run = make_run(configure(algorithm__max_staleness_updates=0))
    run.publish(1)
    actor = run.start(run.actor())
    for version in (2, 3, 4):
        wait_until(lambda: actor.outbox.progress.state == "waiting: ticket")
        wait_until(lambda: actor.outbox.waits.under_way_s("waiting: ticket"), "the wait itself has begun")
        assert run.unrolls() == []
        run.publish(version)
        run.learner.tickets.issue(2)
        wait_until(lambda: run.backend.ledger.counts().queued == 2)
        assert [unroll.header.weights_version for unroll in run.unrolls()] == [version] * 2
        assert run.backend.tickets.counts() == (0, 0)  # both were released by the pushes


def test_the_ticket_is_held_while_acting(make_run):
    run = make_run(configure(algorithm__max_staleness_updates=1))
    seen = []

    class Watched(VectorEnvironment):
        def step(self, actions):
            seen.append(run.backend.tickets.counts())
            return super().step(actions)

    run.publish(1)
    actor = run.start(run.actor(kind=Watched))
    run.learner.tickets.issue(1)
    wait_until(lambda: len(run.unrolls()) == 1 and actor.outbox.progress.state == "waiting: ticket")
    assert seen == [(0, 1)] * T
    assert run.backend.tickets.reclaim((0, 1)) == 0


def test_a_ticket_of_a_later_launch_is_given_back(make_run, monkeypatch):
    """The actor has waited for a ticket while its run was launched again."""
    run = make_run(configure(algorithm__max_staleness_updates=1))
    run.publish(1)
    run.learner.tickets.issue(1)
    gate = run.actor().outbox._gate

    def launched_again(block_s):
        assert run.backend.tickets.counts() == (0, 1)
        raise FencedError("launched again")

    monkeypatch.setattr(run.backend.unrolls, "admission", launched_again)
    with pytest.raises(FencedError):
        gate.wait(Admission(True, 1, False, False))
    assert run.backend.tickets.counts() == (1, 0)


def test_no_ticket_is_taken_before_the_unroll_may_start(make_run):
    """A ticket taken early would be held for as long as the queue is full, and its weights would age."""
    run = make_run(configure(algorithm__max_staleness_updates=3), caps=QueueCaps(1, 2**24))
    run.learner.tickets.issue(3)
    actor = run.start(run.actor())
    wait_until(lambda: actor.outbox.progress.state == "waiting: weights")
    assert run.backend.tickets.counts() == (3, 0)
    run.publish(1)
    wait_until(lambda: actor.outbox.progress.state == "waiting: room")
    assert run.backend.tickets.counts() == (2, 0)


def test_what_a_push_says_is_what_the_actor_acts_on(make_run):
    run = make_run()
    run.publish(1)
    actor = run.actor()
    admission = actor.step(run.backend.unrolls.admission())
    assert admission == Admission(has_room=True, weights_version=1, paused=False, stop=False)
    run.backend.registry.set_control(paused=True, stop="asked")
    run.publish(2)
    assert actor.step(admission) == Admission(has_room=True, weights_version=2, paused=True, stop=True)
    assert actor.weights_version == 1  # it trusted what it was told


def test_what_operators_change_holds_from_the_next_unroll_on(make_run):
    given = {"kind": "epsilon_greedy", "epsilon": {"kind": "constant", "value": 0.0}}
    run = make_run(RunConfig.model_validate({**configure().model_dump(mode="json"), "exploration": given}))
    actor = run.actor(exploration=run.config.exploration)
    run.publish(1, value=0.0)  # the policy is uniform, and epsilon does not matter to it
    run.publish(2)
    before = run.step(actor)
    actor.steer(steered(run.config, {"exploration.epsilon": 1.0}))
    assert actor._exploration._parameters.epsilon.at(0) == 0.0  # not before an unroll begins
    after = run.step(actor)
    uniform = np.float32(np.log(1.0 / 3.0))
    assert not np.allclose(before.behaviour_log_probabilities, uniform, atol=1e-3)
    np.testing.assert_allclose(after.behaviour_log_probabilities[after.valid], uniform, rtol=1e-5)
    # What does not concern exploration leaves it alone.
    explorer = actor._exploration._explorers["action"]
    actor.steer(steered(run.config, {"exploration.epsilon": 1.0, "network.learning_rate": 0.5}))
    run.step(actor)
    assert actor._exploration._explorers["action"] is explorer
