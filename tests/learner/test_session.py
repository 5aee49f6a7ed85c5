"""Session: when training ends, what is saved and reported on the way, restarts, and staleness under real actors."""

import logging
import threading
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from distrl import wire
from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.config.schedules import Progress
from distrl.data_store.checkpoints import best_path, load, load_newest, newest_first, save
from distrl.environments.vector import VectorEnvironment
from distrl.errors import CheckpointError, FencedError, NonFiniteError, OutageError, UnsavedError
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.attendants.evaluations import Evaluations
from distrl.learner.attendants.saver import Saver
from distrl.learner.policy_files import kept_best, read_policy
from distrl.learner.prefetch import Prefetch
from distrl.learner.session import Session
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import decode_unroll, decode_weights, encode_unroll, encode_weights
from distrl.memory_backend.records import Evaluation
from distrl.memory_backend.stream import QueueCaps
from distrl.metrics.counters import Waits
from distrl.networks.framework.precision import Precision
from distrl.networks.policy.description import BundleDescription
from distrl.types import Weights
from tests.faults.failover import promote, replica_of
from tests.traces import traces
from tests.waiting import lasts, wait_until

# ------------------------------------------------------------------------------------------------------------- device


@pytest.mark.row("A01")
@pytest.mark.parametrize("force_cpu", [False, True])
def test_force_cpu_reaches_the_framework_and_the_variables(prepared, toy_config, monkeypatch, force_cpu):
    configured = []
    monkeypatch.setattr(
        "distrl.learner.preparation.numeric_backend.configure", lambda **given: configured.append(given)
    )
    made = prepared(toy_config(network__force_cpu=force_cpu))
    assert configured[0]["device"] == ("cpu" if force_cpu else "auto")
    variables = made.networks["main"].online.model.variables
    assert all(variable.value.device.endswith("CPU:0") for variable in variables)  # in these tests in any case


@pytest.mark.parametrize(
    ("given", "told"), [("float32", "float32: network.compute_dtype"), ("auto", "bfloat16: the GPU is faster in it")]
)
def test_the_data_type_is_logged_with_its_reason(prepared, acting, toy_config, monkeypatch, caplog, given, told):
    caplog.set_level(logging.INFO)
    for module in ("networks.network", "learner.preparation"):
        monkeypatch.setattr(f"distrl.{module}.fastest", lambda: Precision("bfloat16", "the GPU is faster in it"))
    made = prepared(toy_config(network__compute_dtype=given))
    made.make_learner(acting(made))
    assert f"the network computes in {told}" in caplog.messages


# ----------------------------------------------------------------------------------------------------- one training


class Noting(Attendant):
    """Notes the updates of each checkpoint."""

    def __init__(self, into):
        self.saved = into.append


class Training:
    """A session whose own actor acts inline, and what it told."""

    def __init__(self, made, acting, stop=lambda: False):
        self.made = made
        self.saved, self.snapshots = [], []
        own = [Noting(self.saved)]
        self.session = Session(made, acting(made, stop=stop), self.snapshots.append, stop, own)
        self.state = self.session.learner.state

    def run(self):
        return self.session.run()

    def attendant(self, kind):
        (found,) = (one for one in self.session._attendants if isinstance(one, kind))
        return found


@pytest.fixture
def train(prepared, acting, toy_config):
    def make(*, backend=None, run_id="toy", stop=lambda: False, **paths):
        return Training(prepared(toy_config(**paths), backend=backend, run_id=run_id), acting, stop)

    return make


class Recording(Attendant):
    """Records the calls of a session; `fails`: it cannot be closed."""

    def __init__(self, fails=False):
        self.calls, self.fails = [], fails

    def begin(self):
        self.calls.append("begin")

    def started(self):
        self.calls.append("started")

    def steer(self, config):
        self.calls.append("steer")

    def attend(self, trained):
        self.calls.append("wait" if trained is None else "attend")

    def saved(self, updates):
        self.calls.append(f"saved {updates}")

    def end(self, reason):
        self.calls.append(f"end {reason}")

    def close(self, error):
        self.calls.append(f"close {error}")
        if self.fails:
            raise ValueError("odd")


def test_an_attendant_is_called_from_the_beginning_to_the_end(prepared, acting, toy_config):
    made, recording = prepared(toy_config(stop__updates=2)), Recording()
    session = Session(made, acting(made), lambda snapshot: None, lambda: False, [recording])
    session.waits_on()
    assert session.run() == "updates"
    calls = ["begin", "steer", "started", "attend", "attend", "end updates", "saved 2", "close None"]
    assert recording.calls == ["wait", *calls]


def test_every_attendant_is_closed_although_another_one_fails(prepared, acting, toy_config):
    made, own = prepared(toy_config(stop__updates=1)), [Recording(), Recording(fails=True), Recording()]
    with pytest.raises(ValueError, match="odd"):
        Session(made, acting(made), lambda snapshot: None, lambda: False, own).run()
    assert [recording.calls[-1] for recording in own] == ["close None"] * 3


def look_at_every_snapshot(monkeypatch, share=float("inf")):
    """Rather than now and then; with a small share, at the first one alone."""
    monkeypatch.setattr("distrl.learner.attendants.diagnostics.LOOK_AFTER_S", 0.0)
    monkeypatch.setattr("distrl.learner.attendants.diagnostics.LOOK_SHARE", share)


@pytest.mark.parametrize(("after_s", "share", "looks"), [(0.0, float("inf"), 6), (0.0, 1e-12, 1), (3600.0, 1.0, 0)])
def test_what_only_snapshots_need_takes_its_share_of_time_and_no_more(train, monkeypatch, after_s, share, looks):
    looked = []
    monkeypatch.setattr(
        "distrl.learner.attendants.diagnostics.ReluZeros", lambda network: lambda batch: looked.append(batch) or {}
    )
    monkeypatch.setattr("distrl.learner.attendants.reporter.EVERY_S", 0.0)  # every update makes a snapshot
    look_at_every_snapshot(monkeypatch, share)
    monkeypatch.setattr("distrl.learner.attendants.diagnostics.LOOK_AFTER_S", after_s)
    training = train(stop__updates=6)
    training.run()
    assert (len(looked), len(training.snapshots)) == (looks, 7)


def test_a_first_update_that_takes_long_is_reported_as_one_that_is_compiled(train, monkeypatch):
    training = train(stop__updates=2)
    session, shown = training.session, []
    update, clock = training.made.algorithm.update, iter([0.4, 25.2, 99.0, 99.0])

    def slow(*arguments):
        monkeypatch.setattr(session.waits, "under_way_s", {"update": next(clock)}.get)
        shown.append(session.activity)
        monkeypatch.setattr(session.waits, "under_way_s", {"update": next(clock)}.get)
        shown.append(session.activity)
        return update(*arguments)

    monkeypatch.setattr(training.made.algorithm, "update", slow)
    assert training.run() == "updates"
    assert shown == ["training", "compiling the update, 25 s", "training", "training"]


def test_trains_reports_and_saves_until_a_condition_holds(train, tmp_path, monkeypatch):
    look_at_every_snapshot(monkeypatch)
    training = train(stop__updates=11, checkpoint__every_updates=4)
    assert training.session.activity == "starting"
    assert training.run() == "updates"
    assert training.session.activity == "stopping"
    # The last one because it ends; the one between as soon as the first is written.
    first, *between, last = training.saved
    assert (first, last) == (4, 11)
    assert all(updates >= 8 for updates in between)
    assert traces(training.made.algorithm._step) == 1  # nothing is traced again after the first update
    reported = [snapshot["updates"] for snapshot in training.snapshots]
    assert (reported[0], reported[-1]) == (1, 11)
    assert [snapshot["stop_reason"] for snapshot in training.snapshots[:-1]] == [None] * (len(reported) - 1)
    assert training.snapshots[-1]["stop_reason"] == "updates"
    assert training.snapshots[-1]["policy_lag_max"] == 0
    layer = "network/relu_zeros/middleware_dense_0_activation"  # the only one with a relu, of four units
    for snapshot in training.snapshots:
        assert 0.0 <= snapshot[layer] == snapshot["relu_zeros_max"] <= 1.0
    loaded = load_newest(tmp_path / "checkpoints")
    # The time goes on after the last update, whose checkpoint may be the one that was due.
    assert 0.0 < loaded.meta["wall_s"] <= training.state.wall_s
    assert (loaded.step, loaded.meta | {"wall_s": training.state.wall_s}) == (11, training.state.to_meta())
    assert (training.state.weights_version, training.state.trained_unrolls) == (12, 22)
    assert 0 < training.state.wall_s < 60
    weights = decode_weights((tmp_path / "policy" / "weights.msgpack").read_bytes())
    assert weights.version == 12
    for name, array in training.made.networks["main"].online.named_weights().items():
        np.testing.assert_array_equal(weights.arrays[name], array)
    ledger = training.made.backend.ledger.counts()
    assert (ledger.trained, ledger.imbalance) == (22, 0)


def test_what_operators_change_holds_while_training_and_after_a_resumption(train, monkeypatch):
    monkeypatch.setattr("distrl.learner.attendants.operator_requests.LOOK_S", 0.0)
    monkeypatch.setattr("distrl.learner.attendants.reporter.EVERY_S", 0.0)

    def change():
        if training.state.updates == 3:
            registry.set_control(settings={"network.learning_rate": 0.125})
        return False

    training = train(stop=change, stop__updates=6)
    registry = training.made.backend.registry
    training.run()
    rates = {snapshot["updates"]: snapshot["learning_rate"] for snapshot in training.snapshots}
    assert [rates[updates] for updates in (1, 2, 3)] == pytest.approx([0.01] * 3)
    assert [rates[updates] for updates in (5, 6)] == [0.125] * 2
    assert traces(training.made.algorithm._step) == 1
    resumed = train(stop__updates=8)
    resumed.run()
    assert {snapshot["learning_rate"] for snapshot in resumed.snapshots} == {0.125}
    assert resumed.made.backend.registry.control().settings == {"network.learning_rate": 0.125}
    other = train(stop__updates=9, network__learning_rate=0.25)
    other.run()
    assert {snapshot["learning_rate"] for snapshot in other.snapshots} == {0.25}


@pytest.mark.parametrize("when", ["before the first update", "between updates", "while it waits"])
def test_asked_to_stop_it_saves_and_says_so(train, tmp_path, monkeypatch, when):
    runs = []

    def stop():
        return when == "before the first update" or (when == "between updates" and runs[0].state.updates == 2)

    training = train(stop=stop)
    runs.append(training)
    if when == "while it waits":
        feed = training.session.learner._batches
        collect = feed.collect
        monkeypatch.setattr(feed, "collect", lambda: collect() if training.state.updates < 3 else None)
    updates = {"before the first update": 0, "between updates": 2, "while it waits": 3}[when]
    assert training.run() == "asked"
    assert (training.state.updates, training.saved) == (updates, [updates])
    assert load_newest(tmp_path / "checkpoints").step == updates
    assert training.snapshots[-1]["stop_reason"] == "asked"


def test_a_goal_that_a_resumed_run_has_reached_already_ends_it_at_once(train, tmp_path):
    train(stop__updates=3).run()
    before = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    resumed = train(stop__updates=2)
    assert (resumed.run(), resumed.saved) == ("updates", [])
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == before


def test_trained_weights_are_published_in_16_bits_and_statistics_are_not(train):
    normalized = {"observation": {"normalize": True}}
    training = train(network__wire_dtype="float16", network__input_embedders_parameters=normalized, stop__updates=2)
    assert training.run() == "updates"
    blob = training.made.backend.weights.fetch().blob
    tree = wire.unpack(blob)
    online = training.made.networks["main"].online
    assert {name for name, array in tree["arrays"].items() if array.dtype == np.float16} == {
        name for name, variable in online.variables.items() if variable.trainable
    }
    for name, array in decode_weights(blob).arrays.items():
        exact = np.asarray(online.variables[name])
        rounded = exact.astype(np.float16).astype(np.float32) if online.variables[name].trainable else exact
        np.testing.assert_array_equal(array, rounded)
    assert float(tree["arrays"]["main/normalization_observation/variance"].min()) != 1.0


def test_the_scale_of_rewards_is_told_saved_and_part_of_the_policy(train, tmp_path):
    """`Identity` pays 0 or 1 for every step of its episodes of 3; each unroll of 2 x 4 rows has 6 steps."""
    training = train(algorithm__reward_normalization={"kind": "reward"}, stop__updates=4, checkpoint__every_updates=2)
    assert training.run() == "updates"
    rewards = training.made.networks["main"].rewards
    moments = rewards.moments
    assert (moments.count, training.state.trained_steps) == (48.0, 48)
    paid = sum(float(value) for value in training.state.recent_returns)
    assert moments.mean == pytest.approx(paid / 48)  # every episode is whole: an unroll ends with the row after its end
    assert moments.variance == pytest.approx(paid / 48 * (1 - paid / 48))
    assert training.snapshots[-1]["reward_deviation"] != 1.0  # what update 4 divided by
    saved = load_newest(tmp_path / "checkpoints").arrays["main.rewards"]
    assert saved["count"] == 48.0
    description = (tmp_path / "policy" / "description.json").read_text()
    assert BundleDescription.from_json(description).rewards == rewards.described()
    resumed = train(algorithm__reward_normalization={"kind": "reward"}, stop__updates=5)
    assert resumed.made.networks["main"].rewards.described() == rewards.described()
    put = BundleDescription.from_json(resumed.made.backend.weights.get_bundle().description)
    assert put.rewards == rewards.described()


def test_an_unroll_that_comes_twice_counts_once_in_the_scale_of_rewards(train):
    training = train(algorithm__reward_normalization={}, stop__updates=3)
    unrolls = training.made.backend.unrolls
    push = unrolls.push

    def push_twice(header, payload):
        push(header, payload)
        return push(header, payload)

    unrolls.push = push_twice
    assert training.run() == "updates"
    assert training.made.backend.ledger.counts().dropped["duplicate"] >= 5
    assert training.made.networks["main"].rewards.moments.count == training.state.trained_steps == 36


# --------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.row("N03", "Q02", "H09")
def test_another_run_from_the_checkpoint_goes_on_with_its_counters(train):
    first = train(stop__updates=3)
    first.run()
    second = train(stop__updates=5, run_id="later")
    state = second.state
    assert (state.updates, state.env_steps, state.episodes) == (3, 36, 12)
    # In a new run nothing was published, pushed or trained on.
    assert (state.weights_version, state.applied, state.trained_unrolls) == (4, {}, 0)
    assert second.run() == "updates"
    assert (state.updates, state.env_steps, state.weights_version) == (5, 60, 6)
    assert (state.recent_returns[:12], len(state.recent_returns)) == (first.state.recent_returns, 20)
    assert state.wall_s > first.state.wall_s
    ledger = second.made.backend.ledger.counts()
    assert (ledger.trained, ledger.rolled_back, ledger.imbalance) == (4, 0, 0)


def test_versions_never_go_back_and_rolled_back_unrolls_add_up_over_two_crashes(train):
    """Checkpoints every 3 updates of 2 unrolls; the learner dies after the 5th, and again after 5 more."""
    paths = {"stop__updates": 100, "checkpoint__every_updates": 3}
    first = train(**paths)
    backend = first.made.backend
    first.made.backend.weights.publish(4, b"", Progress())  # an earlier learner has published
    first = train(backend=backend, **paths)
    assert first.state.weights_version == 5
    for_updates(first, 5)
    assert (backend.weights.version(), backend.ledger.counts().trained) == (10, 10)

    second = train(backend=backend, **paths)
    assert (second.state.updates, second.state.weights_version) == (3, 11)
    assert second.state.applied == {(0, 2): 5}
    assert backend.ledger.counts().rolled_back == 4  # updates 4 and 5
    for_updates(second, 5)  # saves after the 6th; 7 and 8 are lost
    assert (second.state.updates, backend.weights.version()) == (8, 16)

    third = train(backend=backend, **paths)
    assert (third.state.updates, third.state.weights_version) == (6, 17)
    ledger = backend.ledger.counts()
    assert (ledger.trained, ledger.rolled_back, ledger.lost, ledger.imbalance) == (20, 8, 0, 0)
    assert ledger.trained - ledger.rolled_back == third.state.trained_unrolls == 12
    again = train(backend=backend, **paths)  # dies before it did anything
    assert (backend.ledger.counts().rolled_back, again.state.weights_version) == (8, 17)


def test_a_learner_that_dies_together_with_the_master_is_followed_by_versions_that_no_actor_has_seen(train):
    paths = {"stop__updates": 100, "checkpoint__every_updates": 3}
    first = train(**paths)
    backend = first.made.backend
    replica = replica_of(backend)  # which has nothing of the five updates
    for_updates(first, 5)
    seen = backend.weights.version()
    promote(replica, [backend])
    second = train(backend=backend, **paths)
    assert second.state.updates == 3
    for_updates(second, 1)
    assert backend.weights.version() > seen + 1
    ledger = backend.ledger.counts()
    assert (ledger.failovers, ledger.trained - ledger.rolled_back, ledger.imbalance) == (1, 8, 0)
    third = train(backend=backend, **paths)
    assert third.state.weights_version == backend.weights.version() + 1  # nothing was forgotten since


@pytest.mark.parametrize("told", [True, False])
def test_a_learner_that_follows_a_fail_over_trusts_no_ticket_that_redis_takes_for_held(train, monkeypatch, told):
    """The learner starts after it; or its connection breaks, and the server does not say what its data is."""
    paths = {"algorithm__name": "vpg", "algorithm__max_staleness_updates": 0}
    first = train(**paths)
    backend = first.made.backend
    first.session.learner.start()
    assert backend.tickets.take((0, 1), 0.0)
    promote(replica_of(backend), [backend])  # the actor has pushed since, which the replica does not know
    backend.engine.interruptions = backend.engine.failovers = 0  # of the connection of a new process
    if not told:
        backend.engine.history = ""
        monkeypatch.setattr(backend.engine, "goes_on_from", lambda history: True)
    second = train(backend=backend, **paths)
    second.session.learner.start()
    if not told:
        assert backend.tickets.counts() == (1, 1)
        backend.engine.interruptions = 1
    second.session.attend()
    assert backend.tickets.counts() == (2, 0)


def for_updates(training, count):
    """Trains so many updates and is then killed: no final save, no last snapshot."""
    calls = []

    def killed():
        calls.append(1)
        if len(calls) > count:
            raise KeyboardInterrupt
        return False

    training.session._stop = killed
    with pytest.raises(KeyboardInterrupt):
        training.run()


@pytest.mark.parametrize(("fails_at", "kept"), [(3, 2), (1, 0)])
def test_the_updates_before_one_that_raises_are_saved_and_published(train, tmp_path, monkeypatch, fails_at, kept):
    """Before the first there are none, and no checkpoint is written."""
    training = train(stop__updates=9, checkpoint__every_s=None)
    algorithm, numbers = training.made.algorithm, iter(range(1, 10))
    update = algorithm.update

    def broken(*given):
        if next(numbers) == fails_at:
            raise TypeError("broken")
        return update(*given)

    monkeypatch.setattr(algorithm, "update", broken)
    with pytest.raises(TypeError, match="broken"):
        training.run()
    assert [path.name for path in newest_first(tmp_path / "checkpoints")] == [f"ckpt-{kept:012}"] * bool(kept)
    assert training.made.backend.weights.progress().updates == kept
    assert train().state.updates == kept


@pytest.mark.parametrize(
    ("publishing", "saving", "kept"),
    [
        (OutageError("Redis is away"), None, ["ckpt-000000000002"]),
        (ValueError("odd"), None, ["ckpt-000000000002"]),
        (FencedError("another learner"), None, []),
        (NonFiniteError("weights"), None, []),
        (None, ValueError("odd"), []),
    ],
)
def test_no_error_while_saving_hides_the_one_of_the_update(train, tmp_path, monkeypatch, publishing, saving, kept):
    """Without Redis they are saved; a learner that is fenced, or has weights that are not finite, saves nothing."""
    training = train(stop__updates=9, checkpoint__every_s=None)
    algorithm, update = training.made.algorithm, training.made.algorithm.update

    def fails(error):
        def fail(*_):
            raise error

        return fail

    def broken(*given):
        if training.state.updates < 2:
            return update(*given)
        if publishing is not None:
            monkeypatch.setattr(training.session.learner, "publish_newest", fails(publishing))
        if saving is not None:
            monkeypatch.setattr(training.attendant(Saver).checkpointer, "begin", fails(saving))
        raise TypeError("broken")

    monkeypatch.setattr(algorithm, "update", broken)
    with pytest.raises(TypeError, match="broken"):
        training.run()
    assert [path.name for path in newest_first(tmp_path / "checkpoints")] == kept


def test_a_damaged_checkpoint_is_passed_over_and_named(train, tmp_path, caplog):
    train(stop__updates=4, checkpoint__every_updates=2).run()
    (tmp_path / "checkpoints" / "ckpt-000000000004" / "main.online.npz").write_bytes(b"damaged")
    with caplog.at_level(logging.INFO, "distrl"):
        assert train().state.updates == 2
    told = [record.message for record in caplog.records if record.name == "distrl.learner.origin"]
    assert told[0].startswith("passed over ckpt-000000000004: ")
    assert told[1] == "restored ckpt-000000000002"
    (tmp_path / "checkpoints" / "ckpt-000000000002" / "meta.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"ckpt-000000000004 .*ckpt-000000000002"):
        train()


@pytest.mark.row("Q01")
def test_the_best_checkpoint_is_marked(train, tmp_path):
    training = train(stop__updates=1, checkpoint__keep=1)
    training.state.observe_episodes([3.0] * 96, [3] * 96)  # four more come with the update
    training.run()
    best = tmp_path / "checkpoints" / "best"
    assert best.read_text() == "ckpt-000000000001\n"
    worse = train(stop__updates=2, checkpoint__keep=1, run_id="later")
    worse.state.observe_episodes([0.0] * 96, [3] * 96)
    worse.run()
    assert best.read_text() == "ckpt-000000000001\n"
    assert {path.name for path in (tmp_path / "checkpoints").glob("ckpt-*")} == {f"ckpt-{i:012d}" for i in (1, 2)}


@pytest.mark.parametrize("actors", [0, 1])
def test_a_disk_that_refuses_costs_no_training_but_in_deterministic_mode(train, monkeypatch, actors):
    refused = iter([True, True])

    def sometimes(*arguments, **options):
        if next(refused, False):
            raise OSError(28, "No space left on device")
        return save(*arguments, **options)

    monkeypatch.setattr("distrl.learner.checkpointing.save", sometimes)
    monkeypatch.setattr("distrl.learner.checkpointing.RETRY_S", 0.0)
    monkeypatch.setattr("distrl.learner.attendants.reporter.EVERY_S", 0.0)
    training = train(stop__updates=40, checkpoint__every_updates=1, actors__count=actors)
    if not actors:
        with pytest.raises(OSError, match="No space left"):
            training.run()
        return
    assert training.run() == "updates"
    assert training.saved == sorted(set(training.saved))
    assert training.saved[-1] == 40
    # One word on it after the other, and none from the first checkpoint on.
    told = [snapshot["unsaved"] for snapshot in training.snapshots]
    assert [why for why, _ in groupby(told) if why] == ["[Errno 28] No space left on device"]
    assert told[-1] is None


def test_a_disk_that_is_slow_costs_no_training(train, tmp_path, monkeypatch):
    """Ten updates are made while the first checkpoint is being written, and it holds what there was when it began."""
    done = threading.Event()

    def slow(directory, step, arrays, meta, **options):
        assert done.wait(60.0)
        return save(directory, step, arrays, meta, **options)

    monkeypatch.setattr("distrl.learner.checkpointing.save", slow)
    training = train(stop__updates=12, checkpoint__every_updates=1, checkpoint__keep=20, actors__count=1)
    collect = training.session.learner._batches.collect

    def released_after_ten():
        if training.state.updates == 11:
            done.set()
        return collect()

    monkeypatch.setattr(training.session.learner._batches, "collect", released_after_ten)
    assert training.run() == "updates"
    assert (training.saved[0], training.saved[-1]) == (1, 12)
    assert not set(training.saved) & set(range(2, 11))
    assert [load(path).meta["updates"] for path in newest_first(tmp_path / "checkpoints")] == training.saved[::-1]
    first, last = (load(newest_first(tmp_path / "checkpoints")[i]).arrays["main.online"] for i in (-1, 0))
    assert any((first[name] != last[name]).any() for name in first)


# ------------------------------------------------------------------------------------------------------- not finite


@pytest.mark.parametrize("broken", ["loss", "weights"])
def test_a_batch_that_is_not_finite_is_kept_beside_the_log(train, tmp_path, broken):
    paths = {"network__optimizer_type": "SGD", "network__learning_rate": 3e38} if broken == "weights" else {}
    training = train(stop__updates=9, algorithm__reward_scale=1e3 if broken == "weights" else 1.0, **paths)
    backend = training.made.backend
    if broken == "loss":
        schema = training.made.make_source(lambda: True)._intake.schema
        push = backend.unrolls.push

        def push_huge(header, payload):
            unroll = decode_unroll(header, payload, schema)
            fields = {name: getattr(unroll, name) for name in unroll.__slots__}
            return push(header, encode_unroll(type(unroll)(**fields | {"rewards": np.full((4, 2), 3e38, np.float32)})))

        backend.unrolls.push = push_huge
    with pytest.raises(NonFiniteError) as raised:
        training.run()
    path = tmp_path / "logs" / "nonfinite-batch-1.npz"
    assert str(raised.value).endswith(f"; the batch is in {path}")
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 5
    with np.load(path, allow_pickle=False) as batch:
        assert batch["observations.observation"].shape == (5, 4, 1)
        assert batch["rewards"].shape == batch["actions.action"].shape == (4, 4)
        if broken == "loss":
            assert (batch["rewards"] == np.float32(3e38)).all()
    assert training.saved == []
    assert load_newest(tmp_path / "checkpoints") is None
    assert (backend.weights.version(), backend.ledger.counts().in_flight) == (1, 2)


# ----------------------------------------------------------------------------------- staleness, with actors in threads


class Slow(VectorEnvironment):
    """Takes its time."""

    def step(self, actions):
        lasts(0.004)
        return super().step(actions)


class Faulty(VectorEnvironment):
    """Every 23rd reward is not a number, so that the unroll is rejected."""

    steps = 0

    def step(self, actions):
        self.steps += 1
        step = super().step(actions)
        return step._replace(rewards=step.rewards * np.nan) if self.steps % 23 == 0 else step


@contextmanager
def fleet(config, backend, kinds):
    """One actor of each kind of environment, each in a thread; all are ended at the end."""
    stop = threading.Event()
    failures = []
    actors = []

    def act(number, kind):
        environment = kind(config.environment, config.actors.environments)
        try:
            producer = (number, backend.registry.register_actor(number))
            actor = Actor(
                config,
                Policy(backend.weights.get_bundle()),
                environment,
                Outbox(config, backend, producer, stop.is_set),
            )
            actor.reset(0)
            actors.append(actor)
            actor.run()
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            environment.close()

    threads = [threading.Thread(target=act, args=item, daemon=True) for item in enumerate(kinds)]
    for thread in threads:
        thread.start()
    yield actors
    stop.set()
    for thread in threads:
        thread.join(30.0)
    assert not [thread for thread in threads if thread.is_alive()]
    assert failures == []


class Learning:
    """A session with a prefetching feed, which gives up after a minute, and the lags of what it trained on."""

    def __init__(self, made):
        self.stop = threading.Event()
        self.feed = Prefetch(made.make_source(self.stop.is_set), self.stop.is_set)
        self.session = Session(made, made.make_batches(self), lambda snapshot: None, self.stop.is_set)
        self.lags = []

    def collect(self):
        parcel = self.feed.collect()
        self.lags += parcel.lags_updates if parcel else []
        return parcel

    def run(self):
        giving_up = threading.Timer(60.0, self.stop.set)
        giving_up.start()
        try:
            return self.session.run()
        finally:
            giving_up.cancel()
            self.stop.set()
            self.feed.close()


def outstanding(backend):
    free, held = backend.tickets.counts()
    ledger = backend.ledger.counts()
    return free + held + ledger.queued + ledger.in_flight


SOUND, WITH_FAULTS = (VectorEnvironment, VectorEnvironment, Slow), (VectorEnvironment, Faulty, Slow)


@pytest.mark.parametrize(
    ("kinds", "k"),
    [
        (SOUND, 0),
        (WITH_FAULTS, 1),
        *(pytest.param(SOUND, k, marks=pytest.mark.long) for k in (1, 2)),
        *(pytest.param(WITH_FAULTS, k, marks=pytest.mark.long) for k in (0, 2)),
    ],
)
@pytest.mark.row("D66", "D67", "O14", "T07", "G17")
def test_no_unroll_is_older_than_k_updates_and_nothing_dead_locks(prepared, toy_config, k, kinds):
    config = toy_config(
        algorithm__max_staleness_updates=k, stop__updates=40, learner__batch_size=2, actors__unroll_length_steps=3
    )
    made = prepared(config)
    backend = made.backend
    learning = Learning(made)
    with fleet(config, backend, kinds):
        assert learning.run() == "updates"
    assert len(learning.lags) == 80
    assert max(learning.lags) <= k
    ledger = backend.ledger.counts()
    assert ledger.imbalance == ledger.lost == ledger.foreign == 0
    assert (ledger.dropped["nonfinite"] > 0) == (Faulty in kinds)
    if k == 0:
        assert ledger.dropped["stale"] == 0  # synchrony wastes nothing
    # Every ticket bought a trained unroll, or was replaced, or is still about.
    assert outstanding(backend) == (k + 1) * 2


@pytest.mark.parametrize("k", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_restart_under_running_actors_neither_blocks_nor_leaks_tickets(prepared, toy_config, k):
    paths = {"algorithm__max_staleness_updates": k, "checkpoint__every_updates": 4}
    config = toy_config(stop__updates=6, **paths)
    made = prepared(config)
    backend = made.backend
    with fleet(config, backend, WITH_FAULTS):
        for updates in (6, 9, 15):
            learning = Learning(made)
            assert learning.run() == "updates"
            assert max(learning.lags) <= k
            made = prepared(toy_config(stop__updates=updates + 6, **paths), backend=backend)
    ledger = backend.ledger.counts()
    assert (ledger.imbalance, ledger.lost) == (0, 0)
    made.backend.weights.publish(made.state.weights_version, b"", Progress())
    assert outstanding(backend) == (k + 1) * 2


def test_a_queue_bound_below_the_tickets_does_not_dead_lock(prepared, toy_config):
    """Four batches of tickets, room for one."""
    config = toy_config(algorithm__max_staleness_updates=3, stop__updates=20)
    backend = connect("local:", "tight", QueueCaps(2, 2**20), name="test", give_up_s=1.0)
    backend.create(config.model_dump_json())
    learning = Learning(prepared(config, backend=backend, run_id="tight"))
    with fleet(config, backend, (VectorEnvironment, Slow)):
        assert learning.run() == "updates"
    assert max(learning.lags) <= 3
    assert backend.ledger.counts().imbalance == 0


class WatchedWaits(Waits):
    """Says for what its role waits now."""

    def waits_for(self, name):
        return name in self._open


@pytest.mark.parametrize(("slow", "verdict"), [("environment", "actors"), ("learner", "learner")])
def test_the_verdict_names_who_keeps_the_other_waiting(prepared, toy_config, monkeypatch, clock, slow, verdict):
    """Time passes only in what is slow, and there only while the other side waits for it."""
    monkeypatch.setattr("distrl.learner.attendants.reporter.EVERY_S", 0.0)
    monkeypatch.setattr("distrl.learner.preparation.Waits", lambda: WatchedWaits(clock))
    monkeypatch.setattr("distrl.actors.admission.Waits", lambda: WatchedWaits(clock))
    config = toy_config(stop__updates=12)
    backend = connect("local:", "small", QueueCaps(4, 2**20), name="test", give_up_s=1.0)
    backend.create(config.model_dump_json())
    made = prepared(config, backend=backend, run_id="small")
    update, ended = made.algorithm.update, threading.Event()
    learning, snapshots, actors = Learning(made), [], []

    def passes_while(*waits, name):
        wait_until(lambda: ended.is_set() or all(one.waits_for(name) for one in waits), f"the others wait: {name}")
        clock.now += 1.0

    class VerySlow(VectorEnvironment):
        def step(self, actions):
            passes_while(learning.session.waits, name="unrolls")
            return super().step(actions)

    def slowly(networks, batch):
        passes_while(*(actor.outbox.waits for actor in actors), name="waiting: room")
        return update(networks, batch)

    if slow == "learner":
        monkeypatch.setattr(made.algorithm, "update", slowly)
    monkeypatch.setattr(learning.session.reporter, "_publish", snapshots.append)
    with fleet(config, backend, [VerySlow if slow == "environment" else VectorEnvironment] * 2) as acting:
        actors.extend(wait_until(lambda: len(acting) == 2 and acting, "both actors act"))
        assert learning.run() == "updates"
        ended.set()
        waits = [actor.outbox.waits.shares() for actor in actors]
    assert snapshots[-1]["bottleneck"] == verdict
    blocked = max(share.get("waiting: room", 0.0) for share in waits)
    assert (snapshots[-1]["learner_wait_share"] > blocked) == (slow == "environment")


# -------------------------------------------------------------------------------------------------------- evaluations


def evaluation(env_steps, mean_return, version=1):
    return Evaluation(version, env_steps, 5, mean_return, 0.0, mean_return, mean_return, 3.0, 0.1)


def test_evaluations_of_a_role_reach_state_snapshots_and_the_best_checkpoint(train, tmp_path, monkeypatch):
    monkeypatch.setattr("distrl.learner.attendants.evaluations.EVERY_S", 0.0)
    monkeypatch.setattr("distrl.learner.attendants.reporter.EVERY_S", 0.0)  # every update makes a snapshot
    training = train(
        stop__updates=9,
        evaluation__every_env_steps=5,
        evaluation__last_within_s=0,
        checkpoint__every_updates=8,
    )
    registry, weights = training.made.backend.registry, training.made.backend.weights
    incarnation, blobs = registry.register("evaluator"), {}
    # At the update before; of weights that are older by then.
    told = {2: evaluation(5, 1.0, 2), 4: evaluation(10, 0.5, 3), 7: evaluation(15, 2.0, 4)}
    report = training.session.reporter._publish

    def report_and_tell(snapshot):
        report(snapshot)
        blobs[weights.version()] = weights.fetch().blob
        if (one := told.pop(snapshot["updates"] + 1, None)) is not None:
            registry.add_evaluation(one, blobs[one.weights_version], incarnation)

    training.session.reporter._publish = report_and_tell
    training.run()
    rows = {row["updates"]: row["evaluation_mean_return"] for row in training.snapshots}
    assert rows == {1: None, 2: 1.0, 3: 1.0, 4: 0.5, 5: 0.5, 6: 0.5, 7: 2.0, 8: 2.0, 9: 2.0}
    last = training.snapshots[-1]
    assert (last["evaluation_env_steps"], last["best_evaluation_return"]) == (15, 2.0)
    assert training.saved == [8, 9]  # an evaluation saves nothing
    assert best_path(tmp_path / "checkpoints").name == "ckpt-000000000008"  # the first after the best evaluation
    (tmp_path / "config.yaml").write_text("evaluation: {every_env_steps: 5}\n")
    saved, evaluated = read_policy(tmp_path, "best"), decode_weights(blobs[4])
    assert (saved.weights.version, saved.env_steps) == (4, 15)
    for name, array in saved.weights.arrays.items():
        np.testing.assert_array_equal(array, evaluated.arrays[name])


def test_the_best_of_two_evaluations_that_are_found_at_once_is_kept(train, tmp_path):
    training = train(stop__updates=1, evaluation__every_env_steps=5, evaluation__last_within_s=0)
    registry = training.made.backend.registry
    incarnation = registry.register("evaluator")
    training.state.best_score = training.state.best_saved_evaluation = 60.0
    for version, value in ((3, 90.0), (4, 50.0)):
        blob = encode_weights(Weights(version, {}))
        registry.add_evaluation(evaluation(5 * version, value, version), blob, incarnation)
    training.run()
    assert kept_best(tmp_path / "policy").score == 90.0
    assert best_path(tmp_path / "checkpoints").name == "ckpt-000000000001"
    assert training.state.best_saved_evaluation == 90.0


def test_the_best_weights_are_those_of_the_metric_that_is_named(train, tmp_path):
    named = {"environment__metrics": {"goals": "sum"}, "evaluation__best_by": "goals"}
    training = train(stop__updates=1, evaluation__every_env_steps=5, evaluation__last_within_s=0, **named)
    registry = training.made.backend.registry
    incarnation = registry.register("evaluator")
    for version, value, goals in ((3, 90.0, 1.0), (4, 50.0, 2.0), (5, 70.0, None)):
        told = replace(evaluation(5 * version, value, version), metrics={"goals": goals}, best_by="goals")
        registry.add_evaluation(told, encode_weights(Weights(version, {})), incarnation)
    training.run()
    kept = kept_best(tmp_path / "policy")
    assert (kept.mean_return, kept.best_by, kept.score, kept.weights.version) == (50.0, "goals (sum)", 2.0, 4)
    assert training.state.best_saved_evaluation == 2.0
    assert training.snapshots[-1]["best_evaluation_return"] == 90.0


def test_the_last_weights_are_evaluated_before_the_last_checkpoint(train, tmp_path):
    training = train(stop__updates=3, evaluation__every_env_steps=10**6)
    backend, asked, saved_then = training.made.backend, [], []
    incarnation = backend.registry.register("evaluator")

    def answer():  # as the evaluator's role does
        demand = backend.registry.control().evaluation
        if demand.pending:
            asked.append(demand.asked)
            saved_then.extend(training.saved)
            published = backend.weights.fetch()
            told = evaluation(published.progress.env_steps, 7.0, published.version)
            backend.registry.add_evaluation(told, published.blob, incarnation)
            backend.registry.fulfil("evaluation", demand.asked)

    training.attendant(Evaluations)._attend = answer
    assert training.run() == "updates"
    last = training.snapshots[-1]
    assert (asked, saved_then, training.saved) == ([1], [3], [3, 3])  # saved before the wait, and with the result
    assert (last["evaluation_env_steps"], last["evaluation_mean_return"]) == (last["env_steps"], 7.0)
    assert training.state.best_saved_evaluation == 7.0
    assert kept_best(tmp_path / "policy").score == 7.0


def test_no_evaluation_is_awaited_by_a_training_that_was_asked_to_stop(train):
    stopped = []
    training = train(stop=lambda: bool(stopped), evaluation__every_env_steps=10**6)
    training.session.reporter._publish = lambda snapshot: stopped.append(snapshot)
    assert training.run() == "asked"
    assert training.made.backend.registry.control().evaluation.asked == 0


@pytest.mark.row("D50")
def test_an_evaluation_that_is_good_enough_ends_training(train, monkeypatch):
    monkeypatch.setattr("distrl.learner.attendants.evaluations.EVERY_S", 0.0)
    training = train(stop__evaluation_return=475.0, stop__updates=50, evaluation__every_env_steps=5)
    registry = training.made.backend.registry
    incarnation = registry.register("evaluator")
    for env_steps, value in ((5, 474.0), (10, 476.0)):
        registry.add_evaluation(evaluation(env_steps, value), encode_weights(Weights(1, {})), incarnation)
    assert training.run() == "evaluation_return"
    assert training.snapshots[-1]["stop_reason"] == "evaluation_return"
    assert training.state.updates == 1


# --------------------------------------------------------------------------------------- a disk that refuses at the end


@pytest.fixture
def refuses(tmp_path, monkeypatch):
    """The run's directory takes no checkpoints, as a file has their place; other directories are in `tmp_path`."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("distrl.learner.attendants.saver.LAST_RETRIES_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    monkeypatch.setenv("HOME", str(elsewhere / "home"))  # it does not exist
    (tmp_path / "config.yaml").write_text("{}\n")

    def refuse():
        (tmp_path / "checkpoints").write_text("no directory")

    return refuse


def test_updates_that_the_runs_directory_does_not_take_are_saved_elsewhere(train, refuses, tmp_path):
    training = train(stop__updates=5)
    refuses()
    with pytest.raises(UnsavedError) as told:
        training.run()
    (folder,) = (tmp_path / "elsewhere").iterdir()
    assert str(told.value) == (
        f"the run's directory does not take update 5: [Errno 17] File exists: '{tmp_path / 'checkpoints'}'; it is "
        f"saved in {folder} instead: distrl train --resume {folder} goes on"
    )
    assert load_newest(folder / "checkpoints").meta["updates"] == 5
    assert read_policy(folder).weights.version == training.state.weights_version
    last = training.snapshots[-1]
    assert (training.session.reached, last["stop_reason"], last["unsaved"]) == ("updates", "updates", str(told.value))


def test_where_no_directory_takes_them_all_refusals_are_named(train, refuses, tmp_path):
    training = train(stop__updates=2)
    refuses()
    (tmp_path / "elsewhere").rmdir()
    with pytest.raises(UnsavedError) as told:
        training.run()
    assert str(told.value).startswith("update 2 cannot be saved: [Errno 17] File exists: ")
    assert str(told.value).count("[Errno 2] No such file or directory: ") == 2
    assert str(told.value).endswith("earlier checkpoints are as they were")


def test_the_last_save_is_tried_again_and_the_user_is_told_meanwhile(train, refuses, tmp_path, monkeypatch):
    monkeypatch.setattr("distrl.learner.attendants.saver.LAST_RETRIES_S", (0.001, 0.0))
    training = train(stop__updates=2)
    refuses()
    take = training.snapshots.append

    def free_the_disk(snapshot):
        take(snapshot)
        if snapshot["unsaved"]:
            (tmp_path / "checkpoints").unlink()

    training.session.reporter._publish = free_the_disk
    assert training.run() == "updates"
    told = [snapshot["unsaved"] for snapshot in training.snapshots]
    assert f"[Errno 17] File exists: '{tmp_path / 'checkpoints'}'; tried again in 0.001 s" in told
    assert told[-1] is None
    assert load_newest(tmp_path / "checkpoints").meta["updates"] == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_best_evaluation_that_the_disk_refuses_ends_no_training(train, tmp_path, caplog):
    training = train(evaluation__every_env_steps=1, evaluation__last_within_s=0, stop__updates=2)
    (tmp_path / "policy" / "best.msgpack").mkdir()
    registry = training.made.backend.registry
    blob = encode_weights(Weights(1, {}))
    registry.add_evaluation(evaluation(8, 1.0), blob, registry.register("evaluator"))
    assert training.run() == "updates"
    assert "the weights of the best evaluation cannot be kept: [Errno 21] Is a directory" in caplog.text


# ------------------------------------------------------------------------------------------------------------ stopping


def test_the_minutes_end_a_wait_for_unrolls(train):
    """Which may never come: of actors that hang, or that the operator lets pause."""
    training = train(stop__minutes=60.0, stop__updates=None)
    assert training.session.waits_on()
    training.session._conditions._began -= 3600.0
    assert not training.session.waits_on()
