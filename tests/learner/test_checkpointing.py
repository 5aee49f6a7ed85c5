"""Checkpointer: when a save is due, what it holds, and that training goes on from it bit by bit."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.data_store.checkpoints import best_path, load, load_newest, newest_first
from distrl.errors import CheckpointError
from distrl.learner import checkpointing as checkpointer_module
from distrl.learner.checkpointing import Checkpointer
from distrl.learner.origin import Origin, restore
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


@pytest.fixture
def folder(tmp_path):
    """Where checkpoints are."""
    return tmp_path / "checkpoints"


def make(folder, state, networks=None, **checkpoint):
    config = RunConfig.model_validate({"checkpoint": {"every_s": None, **checkpoint}})
    return Checkpointer(config, folder, networks or {}, state)


def save(checkpointer):
    """To the end; the newest checkpoint's directory."""
    checkpointer.begin()
    checkpointer.finish()
    return newest_first(checkpointer._directory)[0]


def restored(folder, networks):
    return restore(load_newest(folder), networks)


def steps(directory):
    return sorted(load(path).step for path in directory.glob("ckpt-*"))


@pytest.mark.row("D26")
def test_due_by_updates(folder, clock):
    state = LearnerState(run_id="r", updates=7)
    checkpointer = make(folder, state, every_updates=3)
    due = []
    for state.updates in range(7, 17):
        clock.now += 1000.0
        if checkpointer.due:
            due.append(state.updates)
            save(checkpointer)
    assert due == [10, 13, 16]


@pytest.mark.row("D26", "Q02")
def test_due_by_time_if_something_was_learned(folder, clock):
    state = LearnerState(run_id="r")
    checkpointer = make(folder, state, every_s=60.0)
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


def test_due_by_whichever_comes_first(folder, clock):
    state = LearnerState(run_id="r")
    checkpointer = make(folder, state, every_s=10.0, every_updates=5)
    state.updates = 5
    assert checkpointer.due
    save(checkpointer)
    state.updates = 6
    clock.now += 10.0
    assert checkpointer.due


def test_due_when_somebody_wants_it_until_that_is_there(folder, clock):
    state = LearnerState(run_id="r", updates=5)
    checkpointer = make(folder, state, every_s=1e6)  # what is restored is there
    assert (checkpointer.due, checkpointer.holds(5), checkpointer.holds(6)) == (False, True, False)
    state.updates = checkpointer.wanted = 7
    assert (checkpointer.due, checkpointer.holds(7)) == (True, False)
    save(checkpointer)
    assert (checkpointer.due, checkpointer.holds(7)) == (False, True)
    state.updates = 9  # not requested
    assert (checkpointer.due, checkpointer.holds(8)) == (False, False)


def test_a_checkpoint_can_be_wanted_before_the_first_update(folder, clock):
    state = LearnerState(run_id="r")
    checkpointer = make(folder, state, every_s=60.0)
    assert not checkpointer.holds(0)
    checkpointer.wanted = 0
    assert checkpointer.due
    save(checkpointer)
    assert (checkpointer.due, checkpointer.holds(0), steps(folder)) == (False, True, [0])


def test_neither_means_never_but_there_is_something_behind(folder, clock):
    state = LearnerState(run_id="r")
    checkpointer = make(folder, state)
    assert checkpointer.behind  # not even the initial weights are saved
    state.updates, clock.now = 1_000_000, 1e9
    assert (checkpointer.due, checkpointer.behind) == (False, True)
    save(checkpointer)
    assert not checkpointer.behind
    state.updates += 1
    assert checkpointer.behind


def test_what_was_restored_is_not_behind(folder):
    assert not make(folder, LearnerState(run_id="r", updates=9)).behind


@pytest.mark.row("Q01")
def test_the_newest_and_the_best_are_kept(folder):
    state = LearnerState(run_id="r")
    checkpointer = make(folder, state, keep=2)
    saved = []
    for updates, value in enumerate((10.0, 30.0, 20.0, 30.0, 25.0), start=1):
        state.updates = updates
        state.observe_episodes([value] * 100, [1] * 100)
        saved.append((save(checkpointer), best_path(folder)))
    assert steps(folder) == [2, 4, 5]
    assert [best.name for _, best in saved] == [f"ckpt-{step:012d}" for step in (1, 2, 2, 2, 2)]
    # The best saved return is in the checkpoint, so that a resumed run does not call something worse the best.
    resumed = restored(folder, {})
    assert (resumed.updates, resumed.best_saved_return) == (5, 30.0)
    again = make(folder, resumed, keep=2)
    resumed.updates = 6
    resumed.observe_episodes([29.0] * 100, [1] * 100)
    save(again)
    assert best_path(folder).name == "ckpt-000000000002"


def test_a_full_disk_is_tried_again_later_and_the_best_is_still_the_best(folder, clock, monkeypatch):
    state = LearnerState(run_id="r", updates=1)
    checkpointer = make(folder, state, every_updates=1)
    state.observe_episodes([30.0] * 100, [1] * 100)
    fsync = os.fsync

    def full(descriptor):
        raise OSError(28, "No space left on device")

    state.updates = 2
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(checkpointer)
    assert list(folder.iterdir()) == []
    assert (checkpointer.due, checkpointer.behind, state.best_saved_return) == (False, True, None)
    clock.now += checkpointer_module.RETRY_S
    assert checkpointer.due
    monkeypatch.setattr(os, "fsync", fsync)
    assert best_path(folder) is None
    assert save(checkpointer) == best_path(folder)
    assert state.best_saved_return == 30.0
    assert not checkpointer.due


def test_a_checkpoint_that_takes_long_is_told_of_by_how_long(folder, clock, monkeypatch):
    begun, leave = threading.Event(), threading.Event()

    def slow(*_, **__):
        begun.set()
        assert leave.wait(60.0)

    monkeypatch.setattr(checkpointer_module, "save", slow)
    checkpointer = make(folder, LearnerState(run_id="r", updates=1), every_updates=1)
    assert checkpointer.writing_s == 0.0
    checkpointer.begin()
    assert begun.wait(60.0)
    clock.now += 7.0
    assert (checkpointer.writing_s, checkpointer.finish(at_once=True)) == (7.0, None)
    leave.set()
    assert checkpointer.finish() == 1
    assert checkpointer.writing_s == 0.0


def test_who_is_fenced_out_writes_nothing_more_than_it_has_begun(folder, monkeypatch):
    """The policy comes after the checkpoint, and another learner may have written a newer one by then."""
    begun, leave, policies = threading.Event(), threading.Event(), []

    def slow(*_, **__):
        begun.set()
        assert leave.wait(60.0)

    monkeypatch.setattr(checkpointer_module, "save", slow)
    checkpointer = make(folder, LearnerState(run_id="r", updates=1))
    checkpointer.begin(lambda: policies.append("written"))
    assert begun.wait(60.0)
    threading.Timer(0.1, leave.set).start()
    checkpointer.close(abandon=True)
    assert policies == []


def test_what_the_disk_refused_at_the_end_is_in_the_log(folder, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpointer_module, "save", full)
    checkpointer = make(folder, LearnerState(run_id="r", updates=1))
    checkpointer.begin()
    checkpointer.close()
    assert "no checkpoint: [Errno 28] No space left on device" in caplog.text


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
    path = save(replace(made, origin=Origin(state, resumed=False)).make_checkpointer())
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
    publisher = Publisher(made.backend, made.config.batch_size, StalenessBound(None))
    publisher.publish(made.networks["main"].online.named_weights(), 1, Progress())
    return acting(made).collect().batch


def shuffled(batch, random):
    """Other rewards, the same shapes."""
    return batch._replace(rewards=random.standard_normal(batch.rewards.shape).astype(np.float32))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ({"network__middleware_parameters": {"scheme": [5]}}, "main/.*kernel"),
        ({"network__middleware_parameters": {"scheme": [4, 4]}}, "written by another network structure"),
        ({"network__optimizer_type": "SGD"}, "written by another network structure, network.frozen or optimizer"),
    ],
)
def test_a_checkpoint_of_other_networks_is_refused(prepared, toy_config, tmp_path, paths, message):
    made = prepared(toy_config())
    path = save(made.make_checkpointer())
    with pytest.raises(CheckpointError, match=message) as raised:
        prepared(toy_config(**paths))
    assert str(raised.value).startswith(f"{path} does not fit the configuration: ")
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_networks_go_by_their_whole_names(prepared, tmp_path):
    made = prepared()
    other = {"main": made.networks["main"], "main2": made.networks["main"]}
    two, one = tmp_path / "two" / "checkpoints", tmp_path / "one" / "checkpoints"
    save(replace(made, run_dir=two.parent, networks=other).make_checkpointer())
    assert restored(two, other) == made.state
    with pytest.raises(CheckpointError, match="holds network main2, configured are main"):
        restored(two, made.networks)
    save(replace(made, run_dir=one.parent).make_checkpointer())
    with pytest.raises(CheckpointError, match=r"has \['online', 'optimizer', 'statistics'\], the checkpoint has \[\]"):
        restored(one, other)
