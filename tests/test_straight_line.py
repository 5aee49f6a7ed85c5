"""One tagged unroll goes through the real actor, the real Redis stream and the real learner; every hop is checked.

The test drives `Actor.step` and `Learner.step`; nothing on the way is replaced.
"""

import numpy as np
import pytest

from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.learner.origin import Place
from distrl.learner.preparation import prepare
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps

pytestmark = pytest.mark.redis

TAG = (7, 1)  # actor 7, incarnation 1
T, B = 6, 3
LOGITS = "policy/action"
RATE = 0.25

CONFIG = RunConfig.model_validate(
    {
        "environment": {"id": "distrl.environments.worlds.toy:StepCounter", "kwargs": {"terminate_at_steps": 4}},
        "network": {"learning_rate": 0.01},
        "actors": {"environments": B, "unroll_length_steps": T, "weight_mixing_rate": RATE},
        "learner": {"batch_size": 1},
    }
)


@pytest.fixture
def environment():
    environment = VectorEnvironment(CONFIG.environment, B)
    yield environment
    environment.close()


@pytest.fixture
def open_backend(redis_url):
    """Opens connections to one run, as roles do."""
    opened = []

    def open_one(name):
        opened.append(connect(redis_url, "straight", QueueCaps(2, 2**20), name=name, give_up_s=10.0))
        return opened[-1]

    yield open_one
    for backend in opened:
        backend.close()


def where(backend):
    ledger = backend.ledger.counts()
    assert ledger.imbalance == 0
    return ledger.produced, ledger.queued, ledger.in_flight, ledger.trained


def test_the_ten_hops(environment, open_backend, tmp_path):
    # The learner takes the run over and publishes version 1; the actor joins it.
    own, feed, acting = (open_backend(name) for name in ("learner", "learner feed", "actor 7"))
    own.add_lane(feed.engine)
    own.create(CONFIG.model_dump_json())
    parts = prepare(CONFIG, environment.spec, Place(tmp_path), "straight", own)
    source = parts.make_source(lambda: True)
    learner = parts.make_learner(parts.make_batches(source))
    learner.start()
    assert acting.registry.register_actor(TAG[0]) == TAG[1]
    policy = Policy(acting.weights.get_bundle())
    actor = Actor(CONFIG, policy, environment, Outbox(CONFIG, acting, TAG, lambda: False))
    actor.reset(0)
    online = parts.networks["main"].online
    before = online.named_weights()

    # 1 to 5: the actor acts, and its unroll is in the stream, counted in the same transaction.
    admission = actor.step(acting.unrolls.admission())
    assert (policy.version, admission.has_room, actor.outbox.progress.env_steps) == (1, True, 5 * B)
    assert where(own) == (1, 1, 0, 0)

    # 6 to 10: one update of it, from the stream to the published weights.
    made, update = learner.step()
    assert where(own) == (1, 0, 0, 1)
    assert learner.state.applied == own.unrolls.highest() == {TAG: 0}
    assert made.lags_updates == [0]

    # Hops 1, 3, 4, 5, 6 by content. Steps 0 1 2 3 4 | padding | 1: StepCounter shows its own step and pays it; the
    # fifth row is the true final observation, and the step from it is not valid.
    batch = made.batch
    assert batch.observations["observation"][:, 0, 0].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert batch.rewards[:, 0].tolist() == [1, 2, 3, 4, 0, 1]
    assert batch.terminated[:, 0].tolist() == [False, False, False, True, False, False]
    assert batch.valid[:, 0].tolist() == [True, True, True, True, False, True]
    assert not batch.truncated.any()
    state = learner.state
    assert (state.env_steps, state.trained_steps, state.trained_unrolls) == (5 * B, 5 * B, 1)
    assert (state.recent_returns, state.recent_lengths_steps) == ([10.0] * B, [4] * B)

    # Hop 2: what the actor chose from is what the learner's network said under version 1.
    after = online.named_weights()
    online.set_weights(list(before.values()))
    rows = batch.observations["observation"]
    logits = np.stack([online.predict({"observation": row}, [LOGITS]) for row in rows[:-1]])
    exact = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    taken = np.take_along_axis(exact, batch.actions["action"][..., None].astype(int), axis=-1)[..., 0]
    np.testing.assert_allclose(batch.behaviour_log_probabilities, taken, atol=1e-5)

    # Hops 7, 8, 9: loss, gradient, and all online weights have moved.
    assert update.metrics["finite"]
    assert update.metrics["gradient_norm"] > 0
    assert {name for name in after if not np.array_equal(after[name], before[name])} == set(after)

    # Hop 10, and back to 2: the actor acts with the new version, at its mixing rate, in its second unroll.
    assert own.weights.version() == state.weights_version == 2
    actor.step(acting.unrolls.admission())
    assert policy.version == 2
    online.set_weights([RATE * after[name] + (1 - RATE) * before[name] for name in after])
    first = {"observation": rows[0]}
    np.testing.assert_allclose(policy.step(first, {}).outputs[LOGITS], online.predict(first, [LOGITS]), atol=1e-5)
    online.set_weights(list(after.values()))
    made, _ = learner.step()
    assert made.batch.observations["observation"][0, 0, 0] == 1  # the last row of the first unroll
    assert made.lags_updates == [0]
    assert where(own) == (2, 0, 0, 2)
