"""Unrolls of actors that share a policy: every row is exact, also where a server is killed within one."""

import signal

import numpy as np
import pytest

from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.actors.unroll import restarted
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import decode_unroll
from distrl.memory_backend.stream import QueueCaps
from distrl.networks.policy.description import BundleDescription
from distrl.unroll_schema import UnrollSchema
from tests.inference.conftest import CONFIG

pytestmark = pytest.mark.timeout(300)
LENGTH, ROWS = CONFIG.actors.unroll_length_steps, CONFIG.actors.environments


class Killing(VectorEnvironment):
    """Calls `kill` within the second unroll."""

    steps = 0

    def step(self, actions):
        self.steps += 1
        if self.steps == LENGTH + 3:
            self.kill()
        return super().step(actions)


def log_probabilities(policy, unroll):
    """Those of the unroll's actions, float32 [T, B], by a policy that sees its observations from its first state on."""
    state = {name: array[0] for name, array in unroll.recurrent_state.items()}
    rows = []
    for t in range(LENGTH):
        output = policy.step({name: array[t] for name, array in unroll.observations.items()}, state)
        logits = output.outputs["policy/action"]
        normalised = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        rows.append(np.take_along_axis(normalised, unroll.actions["action"][t][:, None], axis=-1)[:, 0])
        state = restarted(output.recurrent_state, unroll.valid[t])
    return np.stack(rows)


def test_log_probabilities_of_every_row_are_those_of_the_unrolls_version(host):
    """With memory over episodes of seven steps; the server is killed in the second unroll of one actor."""
    backend = connect("local:", "shared", QueueCaps(100, 2**24), name="test", give_up_s=1.0)
    backend.create("{}")
    learner = backend.become_learner()

    def publish(version):
        learner.weights.publish(version, b"", Progress(version, 0, 0))  # the server has the real ones
        host.publishes(version)

    def replaced():
        host.ends(signal.SIGKILL)
        publish(5)
        host.starts()

    publish(3)
    host.starts()
    actors, environments = [], [Killing(CONFIG.environment, ROWS), VectorEnvironment(CONFIG.environment, ROWS)]
    environments[0].kill = replaced
    for number, environment in enumerate(environments):
        producer = (number, backend.registry.register_actor(number))
        actors.append(Actor(CONFIG, host.actor(ROWS), environment, Outbox(CONFIG, backend, producer, host.stop.is_set)))
        actors[-1].reset(0)
    for _ in range(2):
        for actor in actors:
            actor.step(backend.unrolls.admission())
        if actor.weights_version == 3:
            publish(4)
    for environment in environments:
        environment.close()

    policy = host.own(3)
    state = BundleDescription.from_json(host.bundle.description).recurrent_state
    schema = UnrollSchema.of(environments[0].spec, LENGTH, ROWS, state)
    unrolls = [decode_unroll(entry.header, entry.payload, schema) for entry in backend.unrolls.take(10, 0.0)]
    assert [(*unroll.header.producer, unroll.header.weights_version) for unroll in unrolls] == [
        (0, 1, 3),
        (1, 1, 3),
        (0, 1, 4),  # killed and replaced meanwhile
        (1, 1, 5),
    ]
    for unroll in unrolls:
        policy.set_weights(host.weights(unroll.header.weights_version))
        np.testing.assert_allclose(unroll.behaviour_log_probabilities, log_probabilities(policy, unroll), atol=1e-5)
    assert backend.ledger.counts().imbalance == 0
