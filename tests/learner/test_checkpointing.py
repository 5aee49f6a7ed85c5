"""Checkpointer: when a save is due, what it holds, and that training goes on from it bit by bit."""

import os
import threading

import numpy as np
import pytest

from distrl.config.run import CheckpointConfig
from distrl.data_store.checkpoints import best_path, load, newest_first
from distrl.errors import CheckpointError
from distrl.learner import checkpointing as checkpointer_module
from distrl.learner.checkpointing import Checkpointer, restore
from distrl.learner.publisher import Publisher, StalenessBound
from distrl.learner.state import LearnerState


class Clock:
    now = 50.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(checkpointer_module, "time", made)
    return made


def make(directory, state, networks=None, **config):
    return Checkpointer(directory, CheckpointConfig(**{"every_s": None, **config}), networks or {}, state)


def save(checkpointer):
    """To the end; the newest checkpoint's directory."""
    checkpointer.begin()
    checkpointer.finish()
    return newest_first(checkpointer._directory)[0]


def steps(directory):
    return sorted(load(path).step for path in directory.glob("ckpt-*"))


@pytest.mark.row("D26")
def test_due_by_updates(tmp_path, clock):
    state = LearnerState(run_id="r", updates=7)
    checkpointer = make(tmp_path, state, every_updates=3)
    due = []
    for state.updates in range(7, 17):
        clock.now += 1000.0
        if checkpointer.due:
            due.append(state.updates)
            save(checkpointer)
    assert due == [10, 13, 16]


@pytest.mark.row("D26", "Q02")
def test_due_by_time_if_something_was_learned(tmp_path, clock):
    state = LearnerState(run_id="r")
    checkpointer = make(tmp_path, state, every_s=60.0)
    clock.now += 100.0
    assert not checkpointer.due  # nothing to save yet
    state.updates = 1
    assert checkpointer.due
    save(checkpointer)
    assert not checkpointer.due
    state.updates = 2
    clock.now += 59.0
    assert not checkpointer.due
    clock.now += 1.0
    assert checkpointer.due


def test_due_by_whichever_comes_first(tmp_path, clock):
    state = LearnerState(run_id="r")
    checkpointer = make(tmp_path, state, every_s=10.0, every_updates=5)
    state.updates = 5
    assert checkpointer.due
    save(checkpointer)
    state.updates = 6
    clock.now += 10.0
    assert checkpointer.due


def test_due_when_somebody_wants_it_until_that_is_there(tmp_path, clock):
    state = LearnerState(run_id="r", updates=5)
    checkpointer = make(tmp_path, state, every_s=1e6)  # what is restored is there
    assert (checkpointer.due, checkpointer.holds(5), checkpointer.holds(6)) == (False, True, False)
    state.updates = checkpointer.wanted = 7
    assert (checkpointer.due, checkpointer.holds(7)) == (True, False)
    save(checkpointer)
    assert (checkpointer.due, checkpointer.holds(7)) == (False, True)
    state.updates = 9  # nobody wanted these
    assert (checkpointer.due, checkpointer.holds(8)) == (False, False)


def test_a_checkpoint_can_be_wanted_before_the_first_update(tmp_path, clock):
    state = LearnerState(run_id="r")
    checkpointer = make(tmp_path, state, every_s=60.0)
    assert not checkpointer.holds(0)
    checkpointer.wanted = 0
    assert checkpointer.due
    save(checkpointer)
    assert (checkpointer.due, checkpointer.holds(0), steps(tmp_path)) == (False, True, [0])


def test_neither_means_never_but_there_is_something_behind(tmp_path, clock):
    state = LearnerState(run_id="r")
    checkpointer = make(tmp_path, state)
    assert checkpointer.behind  # not even the initial weights are saved
    state.updates, clock.now = 1_000_000, 1e9
    assert (checkpointer.due, checkpointer.behind) == (False, True)
    save(checkpointer)
    assert not checkpointer.behind
    state.updates += 1
    assert checkpointer.behind


def test_what_was_restored_is_not_behind(tmp_path):
    assert not make(tmp_path, LearnerState(run_id="r", updates=9)).behind


@pytest.mark.row("Q01")
def test_the_newest_and_the_best_are_kept(tmp_path):
    state = LearnerState(run_id="r")
    checkpointer = make(tmp_path, state, keep=2)
    saved = []
    for updates, value in enumerate((10.0, 30.0, 20.0, 30.0, 25.0), start=1):
        state.updates = updates
        state.observe_episodes([value] * 100, [1] * 100)
        saved.append((save(checkpointer), best_path(tmp_path)))
    assert steps(tmp_path) == [2, 4, 5]
    assert [best.name for _, best in saved] == [f"ckpt-{step:012d}" for step in (1, 2, 2, 2, 2)]
    # The best saved return is in the checkpoint, so that a resumed run does not call something worse the best.
    resumed, loaded = restore(tmp_path, {})
    assert (loaded.step, resumed.best_saved_return) == (5, 30.0)
    again = make(tmp_path, resumed, keep=2)
    resumed.updates = 6
    resumed.observe_episodes([29.0] * 100, [1] * 100)
    save(again)
    assert best_path(tmp_path).name == "ckpt-000000000002"


def test_a_full_disk_is_tried_again_later_and_the_best_is_still_the_best(tmp_path, clock, monkeypatch):
    state = LearnerState(run_id="r", updates=1)
    checkpointer = make(tmp_path, state, every_updates=1)
    state.observe_episodes([30.0] * 100, [1] * 100)
    fsync = os.fsync

    def full(descriptor):
        raise OSError(28, "No space left on device")

    state.updates = 2
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(checkpointer)
    assert list(tmp_path.iterdir()) == []
    assert (checkpointer.due, checkpointer.behind, state.best_saved_return) == (False, True, None)
    clock.now += checkpointer_module.RETRY_S
    assert checkpointer.due
    monkeypatch.setattr(os, "fsync", fsync)
    assert best_path(tmp_path) is None
    assert save(checkpointer) == best_path(tmp_path)
    assert state.best_saved_return == 30.0
    assert not checkpointer.due


def test_a_checkpoint_that_takes_long_is_told_of_by_how_long(tmp_path, clock, monkeypatch):
    begun, leave = threading.Event(), threading.Event()

    def slow(*_, **__):
        begun.set()
        assert leave.wait(60.0)

    monkeypatch.setattr(checkpointer_module, "save", slow)
    checkpointer = make(tmp_path, LearnerState(run_id="r", updates=1), every_updates=1)
    assert checkpointer.writing_s == 0.0
    checkpointer.begin()
    assert begun.wait(60.0)
    clock.now += 7.0
    assert (checkpointer.writing_s, checkpointer.finish(at_once=True)) == (7.0, None)
    leave.set()
    assert checkpointer.finish() == 1
    assert checkpointer.writing_s == 0.0


def test_who_is_fenced_out_writes_nothing_more_than_it_has_begun(tmp_path, monkeypatch):
    """The policy comes after the checkpoint, and another learner may have written a newer one by then."""
    begun, leave, policies = threading.Event(), threading.Event(), []

    def slow(*_, **__):
        begun.set()
        assert leave.wait(60.0)

    monkeypatch.setattr(checkpointer_module, "save", slow)
    checkpointer = make(tmp_path, LearnerState(run_id="r", updates=1))
    checkpointer.begin(lambda: policies.append("written"))
    assert begun.wait(60.0)
    threading.Timer(0.1, leave.set).start()
    checkpointer.close(abandon=True)
    assert policies == []


def test_what_the_disk_refused_at_the_end_is_in_the_log(tmp_path, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpointer_module, "save", full)
    checkpointer = make(tmp_path, LearnerState(run_id="r", updates=1))
    checkpointer.begin()
    checkpointer.close()
    assert "no checkpoint: [Errno 28] No space left on device" in caplog.text


def test_nothing_to_restore(tmp_path):
    assert restore(tmp_path / "never", {}) is None


@pytest.mark.row("Q03")
def test_training_goes_on_bit_by_bit_from_a_checkpoint(prepared, acting, toy_config, tmp_path):
    config = toy_config(network__optimizer_type="Adam")
    made = prepared(config)
    batches = []

    def record(batch):
        batches.append(batch)
        return made.algorithm.update(made.networks, batch).metrics

    random = np.random.default_rng(3)
    template = a_batch(made, acting)
    for _ in range(3):
        record(shuffled(template, random))
    state = LearnerState(run_id="toy", updates=3, weights_version=4, applied={(0, 1): 5})
    path = save(Checkpointer(tmp_path / "checkpoints", config.checkpoint, made.networks, state))
    assert sorted(load(path).arrays) == ["main.online", "main.optimizer", "main.statistics"]
    uninterrupted = [record(shuffled(template, random)) for _ in range(10)]

    resumed = prepared(config)
    assert resumed.state == LearnerState(run_id="toy", updates=3, weights_version=4, applied={(0, 1): 5})
    continued = [resumed.algorithm.update(resumed.networks, batch).metrics for batch in batches[3:]]
    assert continued == uninterrupted
    trained = made.networks["main"].online.named_weights()
    for name, array in resumed.networks["main"].online.named_weights().items():
        np.testing.assert_array_equal(array, trained[name])


def a_batch(made, acting):
    publisher = Publisher(made.backend, made.algorithm.memory.batch_size, StalenessBound(None))
    publisher.publish(made.networks["main"].online.named_weights(), 1, 0)
    return acting(made).collect().batch


def shuffled(batch, random):
    """Other rewards, the same shapes."""
    return batch._replace(rewards=random.standard_normal(batch.rewards.shape).astype(np.float32))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ({"network__middleware_parameters": {"scheme": [5]}}, "main/.*kernel"),
        ({"network__middleware_parameters": {"scheme": [4, 4]}}, "written by another network structure"),
        ({"network__optimizer_type": "SGD"}, "written by another network structure or optimizer"),
    ],
)
def test_a_checkpoint_of_other_networks_is_refused(prepared, toy_config, tmp_path, paths, message):
    made = prepared(toy_config())
    path = save(Checkpointer(tmp_path / "checkpoints", toy_config().checkpoint, made.networks, made.state))
    with pytest.raises(CheckpointError, match=message) as raised:
        prepared(toy_config(**paths))
    assert str(raised.value).startswith(f"{path} does not fit the configuration: ")
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_networks_go_by_their_whole_names(prepared, tmp_path):
    made = prepared()
    other = {"main": made.networks["main"], "main2": made.networks["main"]}
    save(Checkpointer(tmp_path / "two", made.config.checkpoint, other, made.state))
    assert restore(tmp_path / "two", other) is not None
    with pytest.raises(CheckpointError, match="holds network main2, configured are main"):
        restore(tmp_path / "two", made.networks)
    save(Checkpointer(tmp_path / "one", made.config.checkpoint, made.networks, made.state))
    with pytest.raises(CheckpointError, match=r"has \['online', 'optimizer', 'statistics'\], the checkpoint has \[\]"):
        restore(tmp_path / "one", other)
