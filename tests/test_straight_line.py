"""One tagged unroll goes through the real ten files, and every hop is checked by content."""

import numpy as np
import pytest

from distrl import nest
from distrl.actors.policy import Policy
from distrl.actors.unroll import UnrollBuilder
from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.learner.feed import Feed
from distrl.learner.publisher import Publisher
from distrl.learner.staleness import StalenessBound
from distrl.memory_backend.backend import QueueCaps
from distrl.memory_backend.codec import decode_weights, encode_unroll
from distrl.memory_backend.in_memory import InMemoryBackend
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.policy.bundle import export_bundle
from distrl.types import UnrollSchema, Weights

TAG = (7, 1)  # actor 7, incarnation 1
T, B = 6, 3
LOGITS = "policy/action"

CONFIG = RunConfig.model_validate(
    {
        "environment": {"id": "distrl.environments.worlds.toy:StepCounter", "kwargs": {"terminate_at_steps": 4}},
        "network": {"learning_rate": 0.01},
        "actors": {"environments": B, "unroll_length_steps": T},
        "learner": {"batch_size": 1},
    }
)


@pytest.fixture
def environment():
    environment = VectorEnvironment(CONFIG.environment, B)
    yield environment
    environment.close()


def test_the_ten_hops(environment):
    backend = InMemoryBackend("straight", QueueCaps(2, 2**20))
    backend.create(CONFIG.model_dump_json())
    fence = backend.acquire_fence()
    algorithm = make_algorithm(CONFIG)
    networks = algorithm.build(environment.spec)
    online = networks["main"].online
    for _ in range(TAG[0] + 1):
        backend.registry.register_actor(TAG[0])  # the last one is far from incarnation 1, which stays known

    # 1: B environments step; StepCounter observes its own step and pays it.
    rows = [environment.reset(seed=0)]
    policy = Policy(export_bundle(online))
    policy.set_weights(Weights(3, online.named_weights()))
    unroll = UnrollBuilder(environment.spec, T, B)
    unroll.begin(rows[0], {})
    random = np.random.default_rng(5)
    selector = ActionSelector(policy.distributions)
    logits = []
    while not unroll.full:
        # 2: the policy bundle says what the learner's network says.
        output = policy.step(rows[-1], {})
        np.testing.assert_allclose(output.outputs[LOGITS], online.predict(rows[-1], [LOGITS]), atol=1e-5)
        logits.append(output.outputs[LOGITS])
        actions, log_probabilities = selector.sample(output.outputs, random)
        step = environment.step(actions)
        # 3: rows become an unroll.
        unroll.add(actions, log_probabilities, step)
        rows.append(step.observations)
    closed = unroll.close(TAG, 0, policy.version, {})
    # steps 0 1 2 3 4 | padding | 1: the fifth row is the true final observation, the step from it is not valid
    assert closed.observations["observation"][:, 0, 0].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert closed.rewards[:, 0].tolist() == [1, 2, 3, 4, 0, 1]
    assert closed.terminated[:, 0].tolist() == [False, False, False, True, False, False]
    assert closed.valid[:, 0].tolist() == [True, True, True, True, False, True]
    assert closed.header.env_steps == 5 * B
    assert closed.episode_returns.tolist() == [10.0] * B
    exact = np.array(logits) - np.log(np.exp(np.array(logits)).sum(-1, keepdims=True))
    taken = np.take_along_axis(exact, closed.actions["action"][..., None].astype(int), axis=-1)[..., 0]
    np.testing.assert_allclose(closed.behaviour_log_probabilities, taken, atol=1e-6)

    # 4, 5: bytes in the stream, counted in the same breath.
    payload = encode_unroll(closed)
    admission = backend.unrolls.push(closed.header, payload)
    assert (admission.has_room, backend.ledger.counts().produced) == (True, 1)

    # 6: the feed takes, checks and stacks it; nothing is lost on the way.
    schema = UnrollSchema.of(environment.spec, T, B, {})
    feed = Feed(
        backend,
        schema,
        batch_size=1,
        staleness=StalenessBound(None),
        fence=fence,
        applied={},
        first_version=5,
        stop=lambda: False,
    )
    parcel = feed.collect()
    assert parcel is not None
    for path, array in nest.leaves(parcel.batch._asdict()):
        name = path.split("/")
        sent = getattr(closed, name[0])
        np.testing.assert_array_equal(array, sent[name[1]] if len(name) > 1 else sent, err_msg=path)
    assert (parcel.lags_updates, parcel.env_steps, parcel.highest) == ([2], 5 * B, {TAG: 0})
    assert parcel.episode_returns == [10.0] * B

    # 7, 8, 9: loss, gradient, and the online weights move; value targets of valid rows are what drives them.
    before = online.named_weights()
    update = algorithm.update(networks, parcel.batch)
    assert update.metrics["finite"]
    assert update.metrics["gradient_norm"] > 0
    after = online.named_weights()
    moved = {name for name in after if not np.array_equal(after[name], before[name])}
    assert moved == set(after)

    # 10: published, acknowledged, and back in the actor's hands with the mixing rate.
    publisher = Publisher(backend, fence, algorithm.memory.batch_size, StalenessBound(None))
    publisher.publish(after, version=6, env_steps=parcel.env_steps)
    backend.unrolls.acknowledge(parcel.entries, fence, {"trained": 1}, parcel.highest)
    version, blob, _ = backend.weights.fetch()
    policy.set_weights(decode_weights(blob), rate=0.25)
    assert (version, policy.version) == (6, 6)
    online.set_weights([0.25 * after[name] + 0.75 * before[name] for name in after])
    np.testing.assert_allclose(policy.step(rows[-1], {}).outputs[LOGITS], online.predict(rows[-1], [LOGITS]), atol=1e-5)
    ledger = backend.ledger.counts()
    assert (ledger.produced, ledger.trained, ledger.queued + ledger.in_flight, ledger.imbalance) == (1, 1, 0, 0)
