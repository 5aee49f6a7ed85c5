"""One small run in memory: unrolls made by hand on one side, the learner's parts on the other."""

import copy
import dataclasses
from collections import defaultdict

import numpy as np
import pytest

from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.algorithms import built, make_algorithm
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment
from distrl.launch.deterministic import InlineActor, InlineSource
from distrl.learner.batches import StreamBatches
from distrl.learner.intake import Intake
from distrl.learner.origin import Place
from distrl.learner.preparation import prepare
from distrl.learner.publisher import StalenessBound, Tickets
from distrl.learner.replay_batches import Arrivals
from distrl.learner.rounds import RoundBatches
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import encode_unroll
from distrl.memory_backend.inbox import Inbox
from distrl.memory_backend.stream import QueueCaps
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema
from tests.algorithms.states import restore, states
from tests.forging import forge, rejected

T, B = 2, 3
SPEC = EnvSpec("Toy", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(2)})
ACTORS = (0, 1, 2)  # registered, incarnation 1


def make_unroll(actor, sequence, version=1, *, incarnation=1, tag=None, episode_returns=()):
    """Every reward is `tag` (by default the sequence), one of the 6 steps is not valid."""
    rewards = np.full((T, B), sequence if tag is None else tag, np.float32)
    valid = np.ones((T, B), np.bool_)
    valid[1, 2] = False
    return Unroll(
        header=UnrollHeader(actor, incarnation, sequence, version, env_steps=T * B - 1),
        observations={"observation": np.full((T + 1, B, 1), actor, np.float32)},
        actions={"action": np.zeros((T, B), np.int32)},
        rewards=rewards,
        terminated=np.zeros((T, B), np.bool_),
        truncated=np.zeros((T, B), np.bool_),
        valid=valid,
        behaviour_log_probabilities=np.full((T, B), np.log(0.5), np.float32),
        recurrent_state={},
        episode_returns=np.array(episode_returns, np.float32),
        episode_lengths_steps=np.array([7] * len(episode_returns), np.int32),
        episode_discounted_returns=0.5 * np.array(episode_returns, np.float32),
        episode_successes=np.array([index % 2 for index in range(len(episode_returns))], np.int8),
    )


class SmallRun:
    """A run whose backend, fence and schema are there, with three registered actors."""

    spec = SPEC

    def __init__(self, run_id="small", caps=None):
        self.backend = connect("local:", run_id, caps or QueueCaps(10_000, 2**30), name="test", give_up_s=1.0)
        self.backend.create("{}")
        self.learner = self.backend.become_learner()
        self.schema = UnrollSchema.of(SPEC, T, B, {})
        for actor in ACTORS:
            self.backend.registry.register_actor(actor)

    def push(self, actor, sequence, version=1, *, change=None, payload=None, **fields):
        """As an actor does; `change` replaces fields of the unroll, `payload` all of its bytes."""
        unroll = make_unroll(actor, sequence, version, **fields)
        if change:
            unroll = dataclasses.replace(unroll, **change)
        return self.backend.unrolls.push(unroll.header, encode_unroll(unroll) if payload is None else payload)

    def forge(self, fields):
        """Puts an entry into the stream past every rule."""
        forge(self.backend, fields)

    def feed(
        self,
        *,
        batch_size=1,
        k=None,
        applied=None,
        first_version=1,
        stop=lambda: True,
        block_s=0.0,
        rounds=None,
        newest_version=None,
        schema=None,
        threads=1,
    ):
        """The batches, or arrivals, of a learner that has just taken over; with nothing to take, they end at once."""
        self.learner = self.backend.become_learner()
        schema = schema or self.schema
        staleness = StalenessBound(k) if not isinstance(k, StalenessBound) else k
        tickets = Tickets(self.learner, staleness)
        intake = Intake(
            Inbox(self.learner, batch_size, block_s),
            self.learner,
            schema,
            tickets,
            staleness=staleness if rounds is None else StalenessBound(0),
            applied=dict(applied or {}),
            version=first_version,
            newest_version=newest_version,
            wanted=None if rounds is None else rounds.takes,
        )
        if newest_version is not None:
            return Arrivals(intake, batch_size, stop)
        if rounds is not None:
            return RoundBatches(intake, rounds, stop)
        return StreamBatches(intake, batch_size, stop, threads)

    def use(self, made):
        """Settle a batch as the learner does after its update."""
        for receipt in made.receipts:
            receipt.settle()

    def remember(self):
        """Return the data that a Redis would have on its disk now."""
        keys, held = self.backend._run.keys, self.backend.engine._store.data
        return {key: copy.deepcopy(held[key]) for key in (keys.unrolls, keys.ledger, keys.highest) if key in held}

    def come_back(self, disk):
        """As a Redis whose machine lost its power does: with what was on its disk."""
        keys, held = self.backend._run.keys, self.backend.engine._store.data
        last = held[keys.unrolls].last
        for key in (keys.unrolls, keys.ledger, keys.highest):
            held.pop(key, None)
        held.update(copy.deepcopy(disk))
        held[keys.unrolls].last = last  # ids of Redis are times, which do not come again
        self.backend.engine.interruptions += 1

    def publish(self, version):
        self.learner.weights.publish(version, b"", Progress())

    @property
    def ledger(self):
        """The counts, which always balance."""
        counts = self.backend.ledger.counts()
        assert counts.imbalance == 0, counts
        return counts

    @property
    def dropped(self):
        return {reason: count for reason, count in self.ledger.dropped.items() if count}

    @property
    def dead(self):
        return [entry["reason"].decode() for entry in rejected(self.backend)]


@pytest.fixture
def run():
    return SmallRun()


@pytest.fixture(scope="session")
def new_run():
    """Makes one more run."""
    return SmallRun


@pytest.fixture
def unroll():
    return make_unroll


@pytest.fixture(scope="session", autouse=True)
def bundle_cache(tmp_path_factory):
    """Policies are exported once per test session and never into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


class Pool:
    """Algorithms with networks, by configuration: compiling an update takes longer than most tests.

    A test gets each of them once, in its first state; the next test may get it again.
    """

    def __init__(self):
        self._idle, self._keys, self._built, self._given = defaultdict(list), {}, {}, []

    def make_algorithm(self, config):
        key = repr((config.environment, config.algorithm_context))
        algorithm = self._idle[key].pop() if self._idle[key] else make_algorithm(config)
        self._keys[algorithm] = key
        return algorithm

    def built(self, algorithm, spec):
        if algorithm not in self._built:
            networks = built(algorithm, spec)
            self._built[algorithm] = networks, states(networks)
        networks, first = self._built[algorithm]
        restore(networks, first)
        algorithm.steer(networks, algorithm.context)
        self._given.append(algorithm)  # one whose networks a test builds itself is not given again
        return networks

    def take_back(self):
        for algorithm in self._given:
            self._idle[self._keys[algorithm]].append(algorithm)
        self._given.clear()


@pytest.fixture(scope="session")
def pool():
    return Pool()


@pytest.fixture(autouse=True)
def algorithms_of_earlier_tests(pool, monkeypatch):
    monkeypatch.setattr("distrl.learner.preparation.make_algorithm", pool.make_algorithm)
    monkeypatch.setattr("distrl.learner.preparation.built", pool.built)
    yield
    pool.take_back()


@pytest.fixture(scope="session")
def toy_config():
    """Makes a configuration with a tiny network on the toy `Identity`; paths in it replace the values below."""

    def make(**paths):
        tree = {
            "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 2, "length_steps": 3}},
            "network": {"middleware_parameters": {"scheme": [4]}, "learning_rate": 0.01},
            "actors": {"environments": 2, "unroll_length_steps": 4},
            "learner": {"batch_size": 2},
            "checkpoint": {"every_s": None},
        }
        for path, value in paths.items():
            section, name = path.split("__")
            tree.setdefault(section, {})[name] = value
        return RunConfig.model_validate(tree)

    return make


@pytest.fixture(scope="session")
def toy_spec(toy_config):
    environment = VectorEnvironment(toy_config().environment, 1)
    environment.close()
    return environment.spec


@pytest.fixture
def prepared(toy_config, toy_spec, tmp_path):
    """Makes what a learner process has before it trains; by default with a fresh backend each time."""

    def make(config=None, *, run_id="toy", run_dir=tmp_path, place=None, backend=None):
        config = config or toy_config()
        if backend is None:
            backend = connect("local:", run_id, QueueCaps(10_000, 2**30), name="test", give_up_s=1.0)
            backend.create(config.model_dump_json())
        return prepare(config, toy_spec, place or Place(run_dir), run_id, backend)

    return make


@pytest.fixture
def acting():
    """Makes batches of an actor that acts whenever one is wanted, as in deterministic mode; closes its environment."""
    environments = []

    def make(made, *, stop=lambda: False):
        config, backend = made.config, made.backend
        producer = (0, backend.registry.register_actor(0))
        environments.append(VectorEnvironment(config.environment, config.actors.environments))
        actor = Actor(
            config, Policy(backend.weights.get_bundle()), environments[-1], Outbox(config, backend, producer, stop)
        )
        acting = InlineActor(actor, backend, made.state.updates, config.learner.stall_timeout_s)
        return made.make_batches(InlineSource(acting.act, lambda act: made.make_source(stop, act)))

    yield make
    for environment in environments:
        environment.close()
