"""Replay from end to end with a small Q loss: what goes in, what comes out, who waits, and what is left of it."""

from types import SimpleNamespace
from typing import ClassVar, Literal

import numpy as np
import pytest
from keras import ops

from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.algorithms.algorithm import PRIORITIES, GradientAlgorithm, Loss
from distrl.algorithms.maths.returns import batch_discounts
from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection
from distrl.config.checkpoint import CheckpointConfig
from distrl.config.heads import QHeadParameters
from distrl.config.replay import ReplayParameters
from distrl.config.schedules import Progress
from distrl.config.stop import StopConfig
from distrl.environments.vector import VectorEnvironment
from distrl.errors import MemoryBackendError
from distrl.launch.deterministic import InlineActor, InlineSource
from distrl.learner.attendants.saver import Saver
from distrl.learner.checkpointing import Checkpointer
from distrl.learner.origin import Place
from distrl.learner.preparation import prepare
from distrl.learner.session import Session
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps


class QParameters(AlgorithmSection):
    implementation: ClassVar[str] = f"{__name__}:QLearning"

    name: Literal["test-q"] = "test-q"
    batch_size: ClassVar[int] = 8
    learns_from: ClassVar[str] = "anybody"
    replay: ReplayParameters = ReplayParameters(capacity_steps=64, min_size_steps=16, samples_per_insert=2.0)


class QRun(RunConfig):
    algorithm: QParameters = QParameters()


class QLearning(GradientAlgorithm):
    """Q-learning without a target network."""

    heads = (QHeadParameters(),)

    def loss(self, outputs, batch):
        q, chosen = outputs["q/q"], ops.one_hot(batch.actions["action"], 2)
        following = ops.stop_gradient(ops.max(q[1:], axis=-1))
        target = batch.rewards + batch_discounts(batch, self.parameters.discount) * following
        errors = target - ops.sum(q[:-1] * chosen, axis=-1)  # [T, N]
        weights = 1.0 if batch.importance_weights is None else batch.importance_weights
        return Loss({"q": ops.mean(weights * errors**2)}, {PRIORITIES: ops.mean(ops.abs(errors), axis=0)})


def q_config(**replay):
    given = {"capacity_steps": 64, "min_size_steps": 16, "samples_per_insert": 2.0} | replay
    return QRun.model_validate(
        {
            "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 2, "length_steps": 3}},
            "algorithm": {"replay": given},
            "network": {"middleware_parameters": {"scheme": [4]}, "learning_rate": 0.05},
            "actors": {"count": 0, "environments": 2, "unroll_length_steps": 4},
            "exploration": {"kind": "epsilon_greedy", "epsilon": {"kind": "constant", "value": 0.5}},
        }
    )


class Run:
    """One learner's life, with an actor that acts when it waits."""

    def __init__(self, config, spec, run_dir, run_id="q", backend=None):
        self.backend = backend
        if backend is None:
            self.backend = connect("local:", run_id, QueueCaps(10_000, 2**30), name="test", give_up_s=1.0)
            self.backend.create("{}")
        self.made = prepare(config, spec, Place(run_dir), run_id, self.backend)
        self.environment = VectorEnvironment(config.environment, config.actors.environments)
        producer = (0, self.backend.registry.register_actor(0))
        policy = Policy(self.backend.weights.get_bundle())
        self.actor = Actor(config, policy, self.environment, Outbox(config, self.backend, producer, lambda: False))
        self.actor.reset(self.made.state.updates)
        self.snapshots = []
        acting = InlineActor(self.actor, self.backend, self.made.state.updates, 60.0)
        feed = InlineSource(acting.act, lambda act: self.made.make_source(lambda: False, act))
        self.feed = feed
        batches = self.made.make_batches(feed)
        self.session = Session(self.made, batches, self.snapshots.append, lambda: False, [acting])
        self.learner = self.session.learner
        self.state = self.made.state


@pytest.fixture
def q_run(toy_spec, tmp_path):
    runs = []

    def make(run_dir=tmp_path, run_id="q", backend=None, every_updates=3, **options):
        stop = {name: options.pop(name) for name in StopConfig.model_fields.keys() & options.keys()}
        config = q_config(**options)
        # Past validation, which refuses what can never learn.
        checkpoint = CheckpointConfig(every_s=None, every_updates=every_updates)
        config = config.model_copy(update={"stop": StopConfig(**stop), "checkpoint": checkpoint})
        runs.append(Run(config, toy_spec, run_dir, run_id, backend))
        return runs[-1]

    yield make
    for run in runs:
        run.environment.close()


def steps_of(run, count):
    """`count` updates; for each, unrolls in the memory before it and whether weights were published after it."""
    told = []
    for _ in range(count):
        parcel, _ = run.learner.step()
        told.append((run.state.trained_unrolls, parcel.publish, len(parcel.lags_updates)))
    return told


def test_a_batch_is_given_when_it_is_due_and_unrolls_are_taken_in_before(q_run):
    """An unroll has 6 valid steps of 8, 2 samples are due for each step over 16, and a batch has 8 of them.

    Inserted 18, 24, 30, 36: allowed 4, 16, 28, 40. So two batches come of the first four unrolls, one of the fifth, two
    of the sixth; weights are published before the next one is wanted.
    """
    run = q_run()
    run.learner.start()
    assert steps_of(run, 4) == [(4, False, 4), (4, True, 0), (5, True, 1), (6, False, 1)]
    assert run.learner._batches.activity == "training"
    state = run.state
    assert (state.env_steps, state.trained_steps, state.updates, state.weights_version) == (36, 36, 4, 3)
    assert (state.episodes, state.applied) == (12, {(0, 1): 5})
    assert run.made.replay.limiter.sampled_steps == 32
    ledger = run.backend.ledger.counts()
    assert (ledger.stored, ledger.in_flight, ledger.imbalance) == (6, 0, 0)
    assert run.backend.weights.version() == 3


def test_batches_are_drawn_at_the_progress_of_the_training(q_run):
    run, seen = q_run(sampler={"kind": "prioritized"}), []
    sampler = run.made.replay._sampler
    drawing = sampler.draw
    sampler.draw = lambda rng, count, progress: seen.append(progress) or drawing(rng, count, progress)
    run.learner.start()
    steps_of(run, 3)
    assert seen == [Progress(24, 8, 0), Progress(24, 8, 1), Progress(30, 10, 2)]


@pytest.mark.row("A19")
def test_batches_are_transitions_of_the_environment(q_run):
    """`Identity` pays 1 for the action that the observation names, and its episodes have three steps."""
    run = q_run(item={"n_step": 2})
    run.learner.start()
    batch = run.learner.step()[0].batch
    observations = batch.observations["observation"]
    assert observations.shape[:2] == (2, 8)
    assert batch.valid.all()
    assert batch.rewards.shape == batch.bootstrap_steps.shape == (1, 8)
    assert set(batch.bootstrap_steps[0].tolist()) <= {1, 2}
    single = batch.bootstrap_steps[0] == 1
    assert set(batch.rewards[0][single].tolist()) <= {0.0, 1.0}
    assert all(value in (0.0, 1.0, np.float32(0.99), np.float32(1.99)) for value in batch.rewards[0][~single])
    assert batch.importance_weights is None


def test_without_a_ratio_an_unroll_that_is_there_is_taken_in_before_each_update(q_run):
    run = q_run(samples_per_insert=None)
    run.learner.start()
    # In one process an unroll is there whenever one is asked for: three until there are 16 steps, then one each.
    assert steps_of(run, 3) == [(3, True, 3), (4, True, 1), (5, True, 1)]


def test_without_a_ratio_nothing_is_published_unless_something_came_in(q_run, monkeypatch):
    run = q_run(samples_per_insert=None)
    run.learner.start()
    steps_of(run, 1)
    monkeypatch.setattr(run.feed, "poll", lambda: None)
    assert steps_of(run, 2) == [(3, False, 0), (3, False, 0)]
    assert run.state.weights_version == 2


def test_how_far_it_has_filled_is_shown(q_run, monkeypatch):
    run = q_run()
    shown, batches = [], run.learner._batches
    take_in = batches._take_in
    monkeypatch.setattr(batches, "_take_in", lambda arrived: (take_in(arrived), shown.append(batches.activity)))
    run.learner.start()
    run.learner.step()
    filling = [f"filling the replay: {steps} of 16" for steps in (6, 12)]
    assert shown == [*filling, "training", "training"]


@pytest.mark.row("O05")
def test_priorities_of_the_loss_come_back_to_the_items_they_are_of(q_run, monkeypatch):
    run = q_run(sampler={"kind": "prioritized", "alpha": 1.0, "epsilon": 0.0})
    run.learner.start()
    parcel, update = run.learner.step()
    assert parcel.batch.importance_weights.shape == (8,)
    assert update.priorities.shape == (8,)
    weights = run.made.replay.state_arrays()["sampler/weights"]
    told = dict(zip(parcel.items.tolist(), update.priorities.tolist(), strict=True))  # no unroll has made room yet
    assert {item: weights[item] for item in told} == pytest.approx(told)
    others = np.setdiff1d(np.flatnonzero(weights), parcel.items)
    assert set(weights[others].tolist()) == {1.0}


def test_sequences_are_learned_from_as_well(q_run):
    run = q_run(item={"kind": "sequence"}, capacity_steps=640)
    run.learner.start()
    parcel, update = run.learner.step()
    assert parcel.batch.rewards.shape == (4, 8)
    assert parcel.batch.observations["observation"].shape[:2] == (5, 8)
    assert update.metrics["finite"]
    assert run.made.replay.limiter.sampled_steps == np.count_nonzero(parcel.batch.valid)


def test_a_stopped_source_ends_it(q_run, monkeypatch):
    run = q_run()
    monkeypatch.setattr(run.feed, "collect", lambda: None)
    run.learner.start()
    assert run.learner.step() is None


def test_snapshots_tell_of_the_memory(q_run):
    run = q_run(updates=4)
    assert run.session.run() == "updates"
    last = run.snapshots[-1]
    assert (last["env_steps"], last["trained_steps"], last["sampled_steps"], last["replay_steps"]) == (36, 36, 32, 36)
    assert last["replay_episodes"] == run.made.replay.size_episodes


# ------------------------------------------------------------------------------------------------ after a restart


def arrays_of(run):
    return {
        (group, name): array.copy()
        for group, arrays in run.made.networks["main"].state_arrays().items()
        for name, array in arrays.items()
    }


@pytest.mark.row("Q03", "Q05")
def test_a_run_that_is_resumed_with_its_memory_goes_on_bit_by_bit(q_run, tmp_path):
    """Nine updates, against three, a learner that is gone, and six more."""
    options = {"checkpoint": True, "sampler": {"kind": "prioritized"}, "item": {"n_step": 2}, "samples_per_insert": 1.7}
    whole = q_run(tmp_path / "whole", updates=9, **options)
    whole.session.run()
    first = q_run(tmp_path / "halves", updates=3, **options)
    first.session.run()
    second = q_run(tmp_path / "halves", run_id="q2", updates=9, **options)
    assert second.made.replay.size_steps == first.made.replay.size_steps > 0
    second.session.run()
    one, two = arrays_of(whole), arrays_of(second)
    assert one.keys() == two.keys()
    for key, array in one.items():
        assert array.tobytes() == two[key].tobytes(), key
    states = [run.made.replay.state_arrays() for run in (whole, second)]
    for name, array in states[0].items():
        assert array.tobytes() == states[1][name].tobytes(), name
    counted = [
        (run.state.env_steps, run.state.trained_steps, run.state.episodes, run.state.weights_version)
        for run in (whole, second)
    ]
    assert counted[0] == counted[1]
    saved = sorted(path.name for path in (tmp_path / "halves" / "checkpoints").glob("replay-*"))
    assert saved == ["replay-000000000009.npz"]  # the newest alone


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restarted_learner_never_has_an_unroll_twice(q_run, checkpoint):
    """Killed in the same run two updates after its checkpoint, with one unroll taken and not acknowledged."""
    first = q_run(checkpoint=checkpoint)
    first.learner.start()
    steps_of(first, 3)
    first.learner.publish_newest()
    (saver,) = (one for one in first.session._attendants if isinstance(one, Saver))
    saver.save_what_is_left(lambda: None)
    before = first.state.trained_unrolls
    steps_of(first, 2)  # of which no checkpoint tells
    taken_in = first.state.trained_unrolls
    first.actor.step(first.backend.unrolls.admission())
    assert len(first.backend.unrolls.take(1, 0.0)) == 1
    assert taken_in > before

    second = q_run(checkpoint=checkpoint, backend=first.backend)
    replay = second.made.replay
    assert second.backend.ledger.counts().rolled_back == taken_in - before
    assert replay.size_steps == (6 * before if checkpoint else 0)
    assert replay.limiter.inserted_steps == replay.size_steps
    second.learner.start()
    steps_of(second, 1)
    # What was taken and not acknowledged comes first, and nothing that went in before comes again.
    assert second.state.applied[(0, 1)] == taken_in
    taken = second.state.trained_unrolls - before
    assert replay.size_steps == 6 * (taken + (before if checkpoint else 0))
    ledger = second.backend.ledger.counts()
    assert (ledger.dropped["duplicate"], ledger.imbalance) == (0, 0)
    assert ledger.stored == taken_in + taken


# ------------------------------------------------------------------------------------------------- before an update


@pytest.mark.parametrize(("stop", "reason"), [({"env_steps": 12}, "env_steps"), ({"minutes": 1e-9}, "minutes")])
def test_stop_conditions_hold_while_the_memory_fills(q_run, stop, reason):
    """An unroll has 6 valid steps, and a first batch needs 20. Configurations where that is sure are refused."""
    run = q_run(**stop)
    assert run.session.run() == reason
    assert (run.state.updates, run.state.env_steps) == (0, {"env_steps": 12, "minutes": 0}[reason])
    assert run.snapshots[-1]["stop_reason"] == reason


def test_a_batch_that_is_due_is_learned_from_before_the_steps_are_over(q_run):
    run = q_run(env_steps=24)  # of which 4 are allowed after 18, and 16 after 24
    assert run.session.run() == "env_steps"
    assert (run.state.updates, run.state.env_steps) == (1, 24)


def test_a_resumed_run_that_fills_its_memory_anew_stays_within_its_steps(q_run, tmp_path):
    q_run(tmp_path / "r", env_steps=36, checkpoint=False).session.run()
    again = q_run(tmp_path / "r", run_id="q2", env_steps=42, checkpoint=False)
    assert again.session.run() == "env_steps"
    assert again.state.env_steps == 42


def test_lags_are_of_the_moment_at_which_an_unroll_comes_in(q_run):
    """The thread of the intake could not know weights that were published while the unroll waited."""
    run = q_run(samples_per_insert=None)
    run.learner.start()
    source, waiting = run.learner._batches._arrivals, []
    waiting += [source.collect() for _ in range(4)]  # all of version 1, collected at version 1
    run.learner._batches._arrivals = SimpleNamespace(collect=lambda: waiting.pop(0), poll=lambda: waiting.pop(0))
    told = [run.learner.step()[0].lags_updates for _ in range(3) if waiting]
    # The third is of version 1 and meets version 1; the fourth meets version 2, published after the first update.
    assert told == [[0, 0, 0], [1]]


class Gone:
    """Settlements that fail from the `number`-th stored unroll on: before they are counted, or after."""

    def __init__(self, unrolls, monkeypatch, number, *, counted):
        self.left, self.counted, self.settle = number, counted, unrolls.settle
        monkeypatch.setattr(unrolls, "settle", self)

    def __call__(self, entries, outcome):
        self.left -= len(entries)
        if self.left > 0 or self.counted:
            self.settle(entries, outcome)
        if self.left <= 0:
            raise MemoryBackendError("Redis is gone")


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_what_redis_did_not_acknowledge_is_in_no_checkpoint(q_run, monkeypatch, tmp_path, checkpoint, counted):
    """The fifth unroll, after two updates: if Redis has counted it, it is rolled back, and otherwise it comes again."""
    first = q_run(checkpoint=checkpoint)
    with monkeypatch.context() as patched:
        Gone(first.made.backend.unrolls, patched, 5, counted=counted)
        with pytest.raises(MemoryBackendError):
            first.session.run()
    assert (first.state.trained_unrolls, first.state.updates) == (4, 2)
    second = q_run(checkpoint=checkpoint, backend=first.backend)
    assert second.state.trained_unrolls == 4  # saved although Redis was gone
    assert second.made.replay.size_steps == (24 if checkpoint else 0)
    ledger = second.backend.ledger.counts()
    assert (ledger.stored, ledger.rolled_back) == ((5, 1) if counted else (4, 0))
    second.learner.start()
    steps_of(second, 1)
    ledger = second.backend.ledger.counts()
    assert ledger.stored - ledger.rolled_back == second.state.trained_unrolls
    assert (ledger.dropped["duplicate"], ledger.imbalance) == (0, 0)


def test_a_checkpoint_that_holds_every_update_is_left_alone_when_redis_goes(q_run, monkeypatch, tmp_path):
    """The memory has moved on: until the checkpoint is written over as well, its file would be of another moment."""
    run = q_run(checkpoint=True, every_updates=2)  # the fifth unroll is wanted right after the second update
    Gone(run.made.backend.unrolls, monkeypatch, 5, counted=False)
    saved = tmp_path / "checkpoints" / "replay-000000000002.npz"
    seen = []
    begin = Checkpointer.begin
    monkeypatch.setattr(Checkpointer, "begin", lambda one, then: seen.append(begin(one, then)))
    with pytest.raises(MemoryBackendError):
        run.session.run()
    assert len(seen) == 1
    assert saved.exists()
