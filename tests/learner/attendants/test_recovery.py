"""Recovery: a training goes on over fail-overs of Redis in every mode, with exact accounts."""

import threading
from collections import Counter
from contextlib import contextmanager

import pytest

from distrl.actors.actor import Actor
from distrl.actors.gradient_actor import make_shipper
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.environments.vector import VectorEnvironment
from distrl.learner.intake import Intake
from distrl.learner.learner import Learner
from distrl.learner.prefetch import Prefetch
from distrl.learner.session import Session
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps
from tests.faults.failover import promote, replica_of

UPDATES = 24
MODES = {
    "stream": {"algorithm__name": "impala"},
    "tickets, synchronous": {"algorithm__name": "vpg", "algorithm__max_staleness_updates": 0},
    "tickets, two updates": {"algorithm__name": "impala", "algorithm__max_staleness_updates": 2},
    "rounds": {
        "algorithm__name": "a2c",
        "learner__sync_timeout_s": 0.5,
        "actors__count": 2,
        "learner__batch_size": None,
    },
    "replay": {"algorithm__name": "dqn"},
}


@contextmanager
def acting(config, spec, make_backend, count):
    """Actors in threads, each with a connection of its own."""
    stop, failures = threading.Event(), []
    ships_gradients = config.algorithm.ships == "gradients"
    shippers = [make_shipper(config, spec) if ships_gradients else None for _ in range(count)]

    def act(number, shipper):
        backend = make_backend()
        environment = VectorEnvironment(config.environment, config.actors.environments)
        try:
            producer = (number, backend.registry.register_actor(number))
            policy = Policy(backend.weights.get_bundle())
            actor = Actor(config, policy, environment, Outbox(config, backend, producer, stop.is_set, shipper))
            actor.reset(0)
            actor.run()
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            environment.close()

    threads = [threading.Thread(target=act, args=item, daemon=True) for item in enumerate(shippers)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join(30.0)
    assert failures == []


@pytest.mark.parametrize("mode", MODES)
def test_a_training_goes_on_over_fail_overs(toy_config, toy_spec, prepared, mode, monkeypatch):
    config = toy_config(**MODES[mode], stop__updates=UPDATES)
    backends = []

    def make_backend():
        backends.append(connect("local:" + mode, "toy", QueueCaps(4, 2**20), name="test", give_up_s=1.0))
        return backends[-1]

    first = make_backend()
    first.create(config.model_dump_json())
    trained, versions = Counter(), []
    receipt, publish, step = Intake.receipt, Learner._publish, Learner.step

    def counted(self, taken, items):
        trained.update((*item.header.producer, item.header.sequence) for item in items)
        return receipt(self, taken, items)

    def published(self):
        publish(self)
        versions.append(self.state.weights_version)

    def stepped(self):
        """The last updates come after the last fail-over, so that the learner meets every one of them."""
        if self.state.updates == UPDATES - 2:
            faults.join(60.0)
        return step(self)

    monkeypatch.setattr(Intake, "receipt", counted)
    monkeypatch.setattr(Learner, "step", stepped)
    monkeypatch.setattr(Learner, "_publish", published)
    first.add_lane(make_backend().engine)
    made = prepared(config, backend=first)
    stop, over = threading.Event(), threading.Event()

    def fail_over():
        """Whenever there were two more updates, a replica is promoted that had only the first of them."""
        for updates in range(2, UPDATES - 4, 2):
            while made.state.updates < updates and not over.wait(0.001):
                pass
            replica = replica_of(first)
            while made.state.updates < updates + 1 and not over.wait(0.001):
                pass
            promote(replica, backends)

    feed = Prefetch(made.make_source(stop.is_set), stop.is_set)
    session = Session(made, made.make_batches(feed), lambda snapshot: None, stop.is_set)
    feed.waits_on = session.waits_on
    faults, giving_up = threading.Thread(target=fail_over, daemon=True), threading.Timer(60.0, stop.set)
    giving_up.start()
    try:
        with acting(config, toy_spec, make_backend, 2):
            faults.start()
            assert session.run() == "updates"
    finally:
        over.set()
        stop.set()
        giving_up.cancel()
        feed.close()
    faults.join()
    assert max(trained.values()) == 1
    assert versions == sorted(versions)
    counts = first.ledger.counts()
    assert counts.imbalance == 0
    assert counts.used - counts.rolled_back == made.state.trained_unrolls
    assert counts.failovers == first.engine.failovers > 0
    assert counts.lost_to_failover <= counts.lost
