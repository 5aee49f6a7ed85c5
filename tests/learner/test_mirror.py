"""Mirror: what is stored and when, outages of the store, and its end."""

import threading

import numpy as np
import pytest

from distrl.data_store import checkpoints
from distrl.data_store.fetching import write_writer, written
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import CheckpointPosition, StoredRun, Writer
from distrl.errors import FencedError, StoreError
from distrl.learner import mirror as mirror_module
from distrl.learner.mirror import Mirror
from tests.data_store.stores import Breaking, saved
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(mirror_module, "RETRY_S", 0.05)
    monkeypatch.setattr(mirror_module, "LAST_RETRY_S", 0.05)


@pytest.fixture
def objects(tmp_path):
    return Breaking(f"file://{tmp_path}/s")


@pytest.fixture
def run(objects):
    return StoredRun(objects, "r")


@pytest.fixture
def here(tmp_path):
    return tmp_path / "here"


@pytest.fixture
def mirrored(run, here):
    made = []

    def make(after=0, give_up_s=20.0, keep=5):
        made.append(Mirror(run, here, after=after, launch="l", keep=keep, give_up_s=give_up_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


def finish(mirror):
    mirror.finish(lambda: None)


def steps(run):
    return [position.step for position in run.look().complete]


@pytest.mark.row("D63")
def test_checkpoints_the_best_and_the_policy(mirrored, run, here):
    (here / "policy").mkdir(parents=True)
    (here / "policy" / "weights.msgpack").write_bytes(b"one")
    saved(here, 1, best=True)
    mirror = mirrored()
    finish(mirror)
    (here / "policy" / "weights.msgpack").write_bytes(b"two")
    saved(here, 2)
    mirror.request()
    finish(mirror)
    assert steps(run) == [2, 1]
    assert run.best(run.look()) == CheckpointPosition(1, 1)
    assert run.objects.get("r/policy/weights.msgpack") == b"two"
    assert written(here) == ("r", 1)
    claim = dict(run.claim(1))
    assert len(claim.pop("token")) == 16
    assert claim == {"base": None, "launch": "l"}


def test_every_replay_memory_goes_with_its_checkpoint(mirrored, run, here):
    folder = here / "checkpoints"
    replays = {name: checkpoints.save_replay(folder, 1, {name: np.zeros(2)}, name) for name in checkpoints.REPLAYS}
    checkpoints.save(folder, 1, {}, {}, keep=5, replays=replays)
    finish(mirrored())
    for file in ("replay.npz", "replay-data.npz"):
        assert run.objects.get(f"r/checkpoints/000001-000000000001/{file}") is not None


@pytest.mark.parametrize("what", ["unrolls", "the end"])
def test_the_store_stays_as_it_is_until_the_training_has_begun(run, here, objects, what):
    saved(here, 1)
    begun, asked = threading.Event(), threading.Semaphore(0)

    def look():
        asked.release()
        return begun.is_set()

    mirror = Mirror(run, here, after=0, launch="l", keep=5, give_up_s=20.0, begun=look)
    assert asked.acquire(timeout=PATIENCE_S)
    saved(here, 2)
    mirror.request()  # a checkpoint that an operator has asked for
    assert asked.acquire(timeout=PATIENCE_S)
    assert asked.acquire(timeout=PATIENCE_S)
    assert not objects.sizes("r")
    if what == "unrolls":
        begun.set()
    else:
        finish(mirror)
    wait_until(lambda: steps(run))
    mirror.close()


def test_the_same_is_not_stored_twice(mirrored, run, here, objects):
    saved(here, 5)
    finish(mirrored())
    write_writer(here, "r", 1)
    objects.writes = 0
    finish(mirrored(after=1))
    assert objects.writes == 1  # the claim
    assert run.look().newest == CheckpointPosition(1, 5)


def test_a_checkpoint_that_only_the_directory_has_is_stored_at_the_start(mirrored, run, here):
    saved(here, 5)
    finish(mirrored())
    saved(here, 9)
    finish(mirrored(after=1))
    assert run.look().newest == CheckpointPosition(2, 9)


@pytest.mark.row("T08")
def test_a_fenced_writer_stops_and_its_checkpoint_is_never_the_newest(mirrored, run, here):
    saved(here, 1)
    mirror = mirrored()
    finish(mirror)
    Writer.claim(run, 1, "other")
    saved(here, 2)
    mirror.request()
    with pytest.raises(FencedError, match=r"another learner has taken over the run in file:.*writer 2"):
        finish(mirror)
    with pytest.raises(FencedError):
        mirror.check()
    assert run.look().newest == CheckpointPosition(1, 1)


def test_a_store_that_is_removed_is_an_outage_and_no_other_learner(mirrored, run, here, tmp_path):
    saved(here, 1)
    mirror = mirrored(give_up_s=0.2)
    wait_until(lambda: steps(run) == [1])
    claim = (tmp_path / "s" / "r" / "checkpoints" / "writer-000001").rename(tmp_path / "away")
    saved(here, 2)
    mirror.request()
    with pytest.raises(StoreError, match=r"lacks the last checkpoint: file:.* has lost writer-000001.* complete in"):
        finish(mirror)
    mirror.check()
    claim.rename(tmp_path / "s" / "r" / "checkpoints" / "writer-000001")
    wait_until(lambda: mirror.trouble is None)
    assert steps(run) == [2, 1]


def test_a_claim_after_an_outage_is_refused_if_another_learner_has_claimed_meanwhile(mirrored, here, objects):
    saved(here, 1)
    objects.down = True
    mirror = mirrored()
    wait_until(lambda: mirror.trouble)
    Writer.claim(StoredRun(open_objects(objects.url), "r"), 0, "other")
    objects.down = False
    with pytest.raises(FencedError):
        finish(mirror)


def test_an_outage_is_reported_and_ends(mirrored, run, here, objects):
    saved(here, 1)
    mirror = mirrored()
    finish(mirror)
    objects.down = True
    saved(here, 2)
    mirror.request()
    wait_until(lambda: mirror.trouble)
    assert "no answer" in mirror.trouble
    mirror.check()  # no error of the training
    objects.down = False
    finish(mirror)
    assert mirror.trouble is None
    assert steps(run) == [2, 1]


@pytest.mark.row("T08")
def test_a_store_that_has_vanished_at_the_end(mirrored, here, objects):
    saved(here, 1)
    objects.down = True
    mirror = mirrored(give_up_s=0.3)
    with pytest.raises(
        StoreError, match=r"lacks the last checkpoint: file:.*no answer; it is complete in .*here"
    ) as end:
        finish(mirror)
    assert end.value.exit_code == 6


def test_a_store_that_hangs_at_the_end(mirrored, here, objects):
    saved(here, 1)
    goes_on = threading.Event()
    objects.before_write = lambda number: goes_on.wait(30.0)
    mirror = mirrored(give_up_s=0.3)
    with pytest.raises(StoreError, match=r"it has not taken it within 0\.3 s"):
        finish(mirror)
    goes_on.set()


def test_a_store_that_hangs_is_reported(mirrored, here, objects, monkeypatch):
    monkeypatch.setattr(mirror_module, "SLOW_S", 0.1)
    saved(here, 1)
    goes_on = threading.Event()
    objects.before_write = lambda number: goes_on.wait(30.0)
    mirror = mirrored()
    wait_until(lambda: mirror.trouble)
    assert mirror.trouble.endswith("has been taking it for more than 0.1 s, or does not answer")
    goes_on.set()
    finish(mirror)
    assert mirror.trouble is None


def test_a_slow_store_leaves_out_what_lies_between(mirrored, run, here, objects):
    saved(here, 1)
    began, goes_on = threading.Event(), threading.Event()

    def before_write(number):
        if number == 1:
            began.set()
            goes_on.wait(30.0)

    objects.before_write = before_write
    mirror = mirrored()
    assert began.wait(30.0)
    for step in (2, 3, 4):
        saved(here, step, keep=1)  # which removes the one that is being stored
        mirror.request()
    goes_on.set()
    finish(mirror)
    assert steps(run) == [4, 1]
    assert run.objects.get("r/checkpoints/000001-000000000001/meta.json") is not None


def test_waiting_is_reported(mirrored, here, objects):
    saved(here, 1)
    told = threading.Event()
    objects.before_write = lambda number: told.wait(PATIENCE_S)
    mirrored(give_up_s=PATIENCE_S).finish(told.set)
    assert told.is_set()


@pytest.mark.parametrize("lost", ["the answer to the claim", "a look after it"])
def test_a_writer_knows_its_own_claim_again(mirrored, run, here, objects, monkeypatch, lost):
    """One answer that is lost is not another learner."""
    saved(here, 1)
    name = "create" if lost == "the answer to the claim" else "sizes"
    original, calls = getattr(objects, name), []

    def losing(*arguments):
        found = original(*arguments)
        calls.append(arguments)
        if len(calls) == (1 if name == "create" else 2):  # the first look is that before the claim
            raise StoreError("no answer")
        return found

    monkeypatch.setattr(objects, name, losing)
    mirror = mirrored()
    finish(mirror)
    assert calls
    assert run.look().newest == CheckpointPosition(1, 1)
    mirror.check()


def test_a_claim_that_a_library_repeats_is_the_writer_s_own(run):
    """The first request was applied and its answer lost; the second one finds the object."""
    assert Writer.claim(run, 0, "l", token="a").number == 1
    created = run.objects.create
    run.objects.create = lambda name, content: created(name, content) and False
    assert Writer.claim(run, 1, "l", token="b").number == 2
    with pytest.raises(FencedError):
        Writer.claim(run, 1, "l", token="c")


def test_odd_checkpoints_of_the_directory_are_passed_over(mirrored, run, here):
    saved(here, 1, best=True)
    damaged = saved(here, 5)
    weights = (damaged / "main.online.npz").read_bytes()
    (damaged / "main.online.npz").write_bytes(weights[:-1])
    (here / "checkpoints" / "ckpt-000000000009").mkdir()  # without a manifest
    mirror = mirrored()
    finish(mirror)
    assert steps(run) == [1]
    (damaged / "main.online.npz").write_bytes(weights)  # the same step again, this time whole
    (here / "checkpoints" / "best").write_text("ckpt-000000000002\n")  # which is gone
    mirror.request()
    finish(mirror)
    assert steps(run) == [5, 1]
    assert mirror._done == mirror._wanted  # it does not ask itself again and again


def test_an_error_that_nobody_expects_is_reported(mirrored, here, run, monkeypatch):
    saved(here, 1)
    monkeypatch.setattr(run, "look", lambda: {}["odd"])
    mirror = mirrored(give_up_s=0.3)
    with pytest.raises(StoreError, match="unexpected KeyError: 'odd'"):
        finish(mirror)
