"""Learner: one step's effects in their order, and what a step that is not finite leaves behind: nothing."""

import dataclasses
import sys

import numpy as np
import pytest

from distrl import nest
from distrl.errors import ExitError
from distrl.learner import preparation
from distrl.learner.nonfinite import NonFiniteBatchError
from distrl.learner.publisher import StalenessBound
from distrl.memory_backend.codec import decode_unroll, decode_weights, encode_unroll


@pytest.fixture
def learner(prepared, acting, toy_config):
    """Makes a learner that trains on what its own actor does."""

    def make(config=None, k=None):
        made = dataclasses.replace(prepared(config or toy_config()), staleness=StalenessBound(k))
        return made.make_learner(acting(made)), made

    return make


def online(made):
    return made.networks["main"].online.named_weights()


def published(made):
    return decode_weights(made.backend.weights.fetch().blob)


def equal(weights, others):
    return all(np.array_equal(weights[name], others[name]) for name in weights | others)


@pytest.mark.parametrize(("k", "tickets"), [(None, 0), (0, 2), (2, 6)])
def test_start_publishes_and_lets_the_actors_begin(learner, k, tickets):
    trainer, made = learner(k=k)
    assert made.backend.weights.version() == 0
    trainer.start()
    assert published(made).version == 1
    assert equal(published(made).arrays, online(made))
    assert made.backend.tickets.counts() == (tickets, 0)


def test_an_algorithm_that_ends_the_process_is_an_error(learner, monkeypatch):
    """An error, so that the updates before it are saved, as with any other one."""
    trainer, made = learner()
    trainer.start()
    monkeypatch.setattr(type(made.algorithm), "update", lambda *_: sys.exit(0))
    with pytest.raises(ExitError, match=r"code of the run called sys\.exit\(0\)"):
        trainer.step()
    assert trainer.state.updates == 0


def test_a_step_counts_publishes_and_acknowledges(learner):
    trainer, made = learner(k=0)
    trainer.start()
    before = online(made)
    parcel, update = trainer.step()
    assert update.metrics["finite"] is True
    assert not equal(online(made), before)
    assert published(made).version == 2
    assert equal(published(made).arrays, online(made))
    state = trainer.state
    # Two unrolls of 4 rows in 2 environments; every fourth row is padding after an episode of 3 steps.
    assert (state.updates, state.weights_version, state.trained_unrolls) == (1, 2, 2)
    assert (
        (state.env_steps, state.trained_steps)
        == (parcel.receipts[0].env_steps, parcel.receipts[0].trained_steps)
        == (12, 12)
    )
    assert (state.episodes, state.recent_lengths_steps) == (4, [3, 3, 3, 3])
    assert state.applied == {(0, 1): 1}
    ledger = made.backend.ledger.counts()
    assert (ledger.trained, ledger.in_flight, ledger.imbalance) == (2, 0, 0)
    assert made.backend.tickets.counts() == (4, 0)  # deterministic mode takes none
    trainer.step()
    assert (state.updates, state.weights_version, state.env_steps, state.applied) == (2, 3, 24, {(0, 1): 3})


def test_the_order_of_a_step(learner, monkeypatch):
    """Tickets promise the version that is out; unrolls leave the stream when nothing can go wrong any more."""
    trainer, made = learner(k=0)
    trainer.start()
    order = []

    def spy(owner, name):
        original = getattr(owner, name)

        def call(*arguments):
            order.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, call)

    spy(trainer._batches, "collect")
    spy(made.algorithm, "update")
    spy(made.backend.weights, "publish")
    spy(made.backend.tickets, "issue")
    spy(made.backend.unrolls, "settle")
    trainer.step()
    assert order == ["collect", "update", "publish", "issue", "settle"]


def test_every_wait_has_a_name(learner):
    trainer, _ = learner()
    trainer.start()
    trainer.step()
    shares = trainer._waits.shares()
    assert shares.keys() == {"unrolls", "update", "publish", "acknowledge"}
    assert sum(shares.values()) <= 1.0


def test_a_feed_that_was_stopped_ends_the_step(learner, monkeypatch):
    trainer, made = learner()
    trainer.start()
    before = online(made)
    monkeypatch.setattr(trainer._batches, "collect", lambda: None)
    assert trainer.step() is None
    assert (trainer.state.updates, published(made).version) == (0, 1)
    assert equal(online(made), before)


@pytest.mark.parametrize("normalize", [False, True])
def test_what_the_learner_normalises_stays_on_the_host(prepared, toy_config, monkeypatch, normalize):
    given, observation = [], {"observation": {"normalize": normalize}}
    monkeypatch.setattr(preparation, "placement", lambda *arguments: given.append(arguments))
    prepared(toy_config(network__input_embedders_parameters=observation)).make_source(lambda: True)
    assert given[-1] == (1, {}, {"observation"} if normalize else set())


def with_huge_rewards(made):
    """Makes the next unrolls finite and their loss infinite."""
    backend, push = made.backend, made.backend.unrolls.push
    schema = made.make_source(lambda: True)._intake.schema

    def push_huge(header, payload):
        unroll = decode_unroll(header, payload, schema)
        huge = nest.map(np.copy, unroll.rewards)
        huge[:] = 3e38
        fields = {name: getattr(unroll, name) for name in unroll.__slots__} | {"rewards": huge}
        return push(header, encode_unroll(type(unroll)(**fields)))

    backend.unrolls.push = push_huge


def test_an_update_that_is_not_finite_changes_nothing(learner):
    trainer, made = learner(k=0)
    trainer.start()
    trainer.step()
    before, state = online(made), trainer.state.to_meta()
    tickets = made.backend.tickets.counts()
    with_huge_rewards(made)
    with pytest.raises(NonFiniteBatchError, match=r"update 2 is not finite: loss inf, .* not applied") as raised:
        trainer.step()
    assert raised.value.exit_code == 5
    assert str(raised.value).endswith(
        "; rewards reach 3.0e+38, see algorithm.reward_scale, or algorithm.reward_normalization"
    )
    assert raised.value.batch.rewards.max() == np.float32(3e38)
    assert equal(online(made), before)
    assert trainer.state.to_meta() == state
    assert (published(made).version, made.backend.tickets.counts()) == (2, tickets)
    ledger = made.backend.ledger.counts()
    assert (ledger.trained, ledger.in_flight, ledger.imbalance) == (2, 2, 0)


def test_weights_that_are_not_finite_are_never_published(learner, toy_config):
    """Loss and gradient are finite, and the step they lead to is not."""
    config = toy_config(network__optimizer_type="SGD", network__learning_rate=3e38, algorithm__reward_scale=1e3)
    trainer, made = learner(config)
    trainer.start()
    with pytest.raises(NonFiniteBatchError, match=r"update 1 is not finite: weights main/.* of version 2"):
        trainer.step()
    assert published(made).version == 1
    ledger = made.backend.ledger.counts()
    assert (ledger.trained, ledger.in_flight, ledger.imbalance) == (0, 2, 0)
