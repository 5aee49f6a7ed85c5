"""Gradient actors: the gradient is of the weights that acted, and an actor waits for the next round after its own."""

import threading

import numpy as np
import pytest

from distrl.actors.actor import Actor
from distrl.actors.gradient_actor import GradientShipper, make_shipper
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.actors.unroll import UnrollBuilder
from distrl.config import RunConfig
from distrl.config.live_settings import steered
from distrl.config.schedules import Progress
from distrl.environments.vector import EnvironmentStep, VectorEnvironment
from distrl.errors import ConfigError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import encode_weights
from distrl.memory_backend.gradient_codec import GradientSchema, decode_contribution
from distrl.memory_backend.joining import stack
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.stream import QueueCaps
from distrl.networks.contributions import contribution_shapes
from distrl.networks.policy.bundle import export_bundle
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Weights
from tests.waiting import wait_until

T, B = 5, 2


def configure(algorithm="a3c", rate=1.0, noisy=False, rewards=None, **paths):
    dense = {"dense_layer": "noisy_dense"} if noisy else {}
    return RunConfig.model_validate(
        {
            "seed": 11,
            "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 3, "length_steps": 7}},
            "algorithm": {"name": algorithm, "reward_normalization": rewards},
            "network": {"middleware_parameters": {"scheme": [4], **dense}},
            "actors": {"environments": B, "unroll_length_steps": T, "weight_mixing_rate": rate},
            **paths,
        }
    )


class Run:
    """A run in memory with one gradient actor; the learner is the test."""

    def __init__(self, config, cache):
        self.backend = connect("local:", "gradients", QueueCaps.of(config), name="test", give_up_s=1.0)
        self.backend.create("{}")
        self.learner = self.backend.become_learner()
        self.environment = VectorEnvironment(config.environment, B)
        self.shipper = make_shipper(config, self.environment.spec)
        self.network = self.shipper._networks["main"]
        bundle = export_bundle(self.network.online, cache_dir=cache)
        self.stop = threading.Event()
        self.policy = Policy(bundle)
        producer = (0, self.backend.registry.register_actor(0))
        self.actor = Actor(
            config,
            self.policy,
            self.environment,
            Outbox(config, self.backend, producer, self.stop.is_set, self.shipper),
        )
        self.actor.reset(0)
        shapes, normalizes = contribution_shapes(self.network.online), self.network.rewards is not None
        self.schema = GradientSchema.of(T * B, *shapes, normalizes_rewards=normalizes)

    def weights(self, value):
        return {name: np.full_like(array, value) for name, array in self.network.online.named_weights().items()}

    def publish(self, version, value, **more):
        blob = encode_weights(Weights(version, self.weights(value) | more))
        self.learner.weights.publish(version, blob, Progress())

    def pushed(self):
        entries = self.backend.unrolls.take(100, 0.0)
        self.learner.unrolls.settle(entries, EntryOutcome.TRAINED)
        return [decode_contribution(entry.header, entry.payload, self.schema) for entry in entries]

    def step(self):
        self.actor.step(self.backend.unrolls.admission())
        (contribution,) = self.pushed()
        return contribution


@pytest.fixture
def make_run(tmp_path_factory):
    made = []

    def make(config=None):
        made.append(Run(config or configure(), tmp_path_factory.getbasetemp() / "bundles"))
        return made[-1]

    yield make
    for run in made:
        run.stop.set()
        run.environment.close()


def test_what_is_shipped_is_the_gradient_of_the_unroll_under_the_weights_that_acted(make_run, monkeypatch):
    run = make_run()
    unrolls = []
    contribution = GradientShipper.contribution
    monkeypatch.setattr(
        GradientShipper, "contribution", lambda self, unroll: unrolls.append(unroll) or contribution(self, unroll)
    )
    run.publish(4, 0.1)
    shipped = run.step()
    (unroll,) = unrolls
    assert shipped.header == unroll.header
    assert (shipped.header.weights_version, shipped.header.sequence) == (4, 0)
    np.testing.assert_array_equal(shipped.episode_returns, unroll.episode_returns)
    run.network.online.set_weights(list(run.weights(0.1).values()))
    expected = run.shipper._algorithm.differentiate(run.shipper._networks, stack([unroll], {}))
    for name, gradient in expected.gradients.items():
        np.testing.assert_array_equal(shipped.differentiated.gradients[name], gradient)
    assert any(np.abs(gradient).max() > 1e-3 for gradient in expected.gradients.values())
    assert shipped.differentiated.metrics == expected.metrics
    # Under other weights it is another one.
    run.network.online.set_weights(list(run.weights(0.3).values()))
    other = run.shipper._algorithm.differentiate(run.shipper._networks, stack([unroll], {}))
    assert any(not np.array_equal(other.gradients[name], expected.gradients[name]) for name in expected.gradients)


def test_a_gradient_is_of_the_stacks_that_were_acted_on():
    """Two frames travel nowhere here, yet the unroll holds each once; an episode begins at row 3."""
    spec = EnvSpec("toy", {"observation": ArraySpec((2,), "float32", frames=2)}, {"action": DiscreteSpec(2)})
    shipper = make_shipper(configure(), spec)
    builder = UnrollBuilder(spec, 3, 1)
    seen = np.float32([[[0.0, 0.5]], [[0.5, 1.5]], [[1.5, -1.0]], [[2.0, 2.0]]])
    builder.begin({"observation": seen[0]}, {})
    false, zeros = np.zeros(1, bool), np.zeros(1, np.float32)
    for row, stacked in enumerate(seen[1:]):
        ended, valid = np.array([row == 1]), np.array([row != 2])
        paid = np.float32([row + 1.0]) * valid
        step = EnvironmentStep({"observation": stacked}, paid, ended, false, valid, paid, ended)
        builder.add({"action": np.int32([row % 2])}, zeros, step, {})
    unroll = builder.close((0, 1), 0, 1)
    assert unroll.observations["observation"][:, 0, 0].tolist() == [0.0, 0.5, 1.5, -1.0, 2.0]
    batch = stack([unroll], spec.frames)
    np.testing.assert_array_equal(batch.observations["observation"], seen, strict=True)
    expected = shipper._algorithm.differentiate(shipper._networks, batch)
    shipped = shipper.contribution(unroll).differentiated
    for name, gradient in expected.gradients.items():
        np.testing.assert_array_equal(shipped.gradients[name], gradient)
    assert any(np.abs(gradient).max() > 0 for gradient in expected.gradients.values())


def test_the_first_weights_are_taken_whole_and_later_ones_mixed_as_the_policy_does(make_run):
    run = make_run(configure(rate=0.25))
    expected = None
    for version, given in ((3, 1.0), (4, 3.0), (7, -1.0)):
        run.publish(version, given)
        assert run.step().header.weights_version == version
        expected = given if expected is None else 0.25 * given + 0.75 * expected
        for array in run.network.online.get_weights():
            np.testing.assert_allclose(array, expected, rtol=1e-6)
        for array in run.network.global_.get_weights():
            np.testing.assert_array_equal(array, given)  # what was published
        observations = {"observation": np.arange(3, dtype=np.uint8)[:, None]}
        acted = run.policy.step(observations, {}).outputs["policy/action"]
        np.testing.assert_allclose(acted, run.network.online.predict(observations, ["policy/action"]), atol=1e-5)


def test_weights_that_acting_does_not_read_are_taken_all_the_same(make_run):
    run = make_run(configure(noisy=True))
    online = run.network.online
    assert online.named_weights().keys() > online.policy_variables.keys()
    run.publish(1, 0.5)
    gradients = run.step().differentiated.gradients
    for name in online.named_weights().keys() - online.policy_variables.keys():
        np.testing.assert_array_equal(online.named_weights()[name], 0.5)
        assert np.abs(gradients[name]).max() > 0.0


def test_in_rounds_an_actor_waits_for_new_weights_after_each_gradient(make_run):
    run = make_run(configure("a2c"))
    thread = threading.Thread(target=run.actor.run, daemon=True)
    thread.start()
    wait_until(lambda: run.actor.outbox.progress.state == "waiting: weights")
    for version in (1, 2, 5):
        run.publish(version, 0.1 * version)
        wait_until(lambda: run.backend.ledger.counts().queued == 1)
        wait_until(lambda: run.actor.outbox.progress.state == "waiting: round")
        (contribution,) = run.pushed()  # one of each version
        assert contribution.header.weights_version == version
    run.stop.set()
    thread.join(10.0)
    assert not thread.is_alive()


@pytest.fixture
def waiting(make_run, monkeypatch):
    """A worker that has sent its gradient of version 1 and asks for it whenever a few milliseconds have passed."""
    run = make_run(configure("a2c", learner={"sync_timeout_s": 0.005}))
    run.asked = 0
    holds = run.backend.unrolls.holds_newest_push

    def counted():
        run.asked += 1
        return holds()

    monkeypatch.setattr(run.backend.unrolls, "holds_newest_push", counted)
    run.thread = threading.Thread(target=run.actor.run, daemon=True)
    run.publish(1, 0.1)
    run.thread.start()
    wait_until(lambda: run.backend.ledger.counts().queued == 1)
    yield run
    run.stop.set()
    run.thread.join(10.0)
    assert not run.thread.is_alive()


def ask_again(run, times=3):
    """Waits until the worker has asked so often once more."""
    before = run.asked
    wait_until(lambda: run.asked >= before + times)


def lose_the_push(run):
    """As a Redis that comes back without its newest transaction: the entry and all that was counted with it."""
    keys, engine = run.backend._run.keys, run.backend.engine
    ((entry_id, fields),) = engine.call("XRANGE", keys.unrolls, "(0", "+")
    size = len(fields[b"payload"])
    lost = {"produced": 1, "stream_entries": 1, "stream_bytes": size, "pushed_bytes": size}
    counts = [("HINCRBY", keys.ledger, name, -number) for name, number in lost.items()]
    engine.transaction([("XDEL", keys.unrolls, entry_id), *counts])


def test_a_gradient_that_was_lost_is_followed_by_another_one_of_the_same_version(waiting, caplog):
    ask_again(waiting)
    assert waiting.backend.ledger.counts().produced == 1  # while it is queued it is not lost
    with caplog.at_level("WARNING"):
        lose_the_push(waiting)
        wait_until(lambda: waiting.backend.ledger.counts().queued == 1)
    assert caplog.messages == [
        "the gradient of version 1 is gone or was refused, and no newer version came within 0.005 s "
        "(learner.sync_timeout_s): contributing again"
    ]
    (entry,) = waiting.backend.unrolls.take(10, 0.0)
    assert (entry.header.sequence, entry.header.weights_version) == (1, 1)  # a gap for the learner to count
    ask_again(waiting)
    assert waiting.backend.ledger.counts().produced == 1  # in flight it is not lost either
    waiting.publish(2, 0.2)  # as the learner does before it acknowledges
    waiting.learner.unrolls.count_lost(entry.header, 1, to_failover=False)
    waiting.learner.unrolls.settle([entry], EntryOutcome.TRAINED)
    wait_until(lambda: waiting.backend.ledger.counts().queued == 1)
    (contribution,) = waiting.pushed()
    assert (contribution.header.sequence, contribution.header.weights_version) == (2, 2)
    assert waiting.backend.ledger.counts().imbalance == 0


def test_on_its_own_an_actor_goes_on_under_the_weights_it_has(make_run):
    run = make_run(configure("a3c"))
    thread = threading.Thread(target=run.actor.run, daemon=True)
    run.publish(1, 0.1)
    thread.start()
    found = []
    wait_until(lambda: found.extend(run.pushed()) or len(found) >= 3)
    assert {contribution.header.weights_version for contribution in found} == {1}
    run.stop.set()
    thread.join(10.0)


def test_while_it_differentiates_it_says_so(make_run, monkeypatch):
    run = make_run()
    states = []
    contribution = GradientShipper.contribution

    def observed(self, unroll):
        states.append(run.actor.outbox.progress.state)
        return contribution(self, unroll)

    monkeypatch.setattr(GradientShipper, "contribution", observed)
    run.publish(1, 0.1)
    run.step()
    assert states == ["differentiating"]


def test_other_algorithms_have_no_gradient_actors():
    config = configure("impala")
    environment = VectorEnvironment(config.environment, 1)
    environment.close()
    with pytest.raises(ConfigError, match="impala has no gradient actors"):
        make_shipper(config, environment.spec)


def test_rewards_are_normalised_by_what_comes_with_the_weights(make_run):
    """`Identity` pays 1 for a right guess: less a mean of 1, by a deviation of 0.25, a wrong one is -4."""
    run = make_run(configure(rewards={"kind": "reward"}))
    scale = {"reward_normalization/mean": np.array(1.0), "reward_normalization/deviation": np.array(0.25)}
    run.publish(1, 0.1, **scale)
    unrolls = []
    contribution = run.shipper.contribution
    run.shipper.contribution = lambda unroll: unrolls.append(unroll) or contribution(unroll)
    shipped = run.step()
    (unroll,) = unrolls
    paid = unroll.rewards[unroll.valid]
    assert 0 < paid.sum() < len(paid)
    assert shipped.reward_moments == pytest.approx(
        {"count": len(paid), "mean": paid.mean(), "squares": paid.var() * len(paid)}
    )
    seen = run.network.statistics.with_normal_rewards(stack([unroll], {})).rewards
    assert set(seen[unroll.valid].tolist()) == {0.0, -4.0}
    assert set(seen[~unroll.valid].tolist()) <= {0.0}
    assert run.policy.version == 1  # acting reads no scale, and takes none


def test_a_gradient_is_of_the_loss_as_operators_have_changed_it(make_run):
    was, wanted = (configure(algorithm="a3c") for _ in range(2))
    settings = {"algorithm.entropy_weight": 0.75, "network.learning_rate": 0.5}
    changed, configured = make_run(was), make_run(steered(wanted, settings))
    uneven = {name: 4.0 * array for name, array in changed.network.online.named_weights().items()}
    for run in (changed, configured):
        run.publish(1, 0.0, **uneven)
    first = [run.step() for run in (changed, configured)]
    changed.actor.steer(steered(was, settings))
    second = [run.step() for run in (changed, configured)]

    def gradients(contribution):
        return np.concatenate([array.ravel() for array in contribution.differentiated.gradients.values()])

    assert not np.allclose(gradients(first[0]), gradients(first[1]), rtol=1e-3)
    np.testing.assert_allclose(gradients(second[0]), gradients(second[1]), rtol=1e-4, atol=1e-6)
    assert changed.network.global_._optimizer is None  # it differentiates, and applies nothing
