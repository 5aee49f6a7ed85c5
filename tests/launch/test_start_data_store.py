"""A training with a data store: what is refused, what it stores, and that another directory goes on from it."""

import json

import numpy as np
import pytest

import distrl
from distrl.config.load import load
from distrl.data_store import checkpoints
from distrl.data_store.fetching import fetch_newest, write_writer
from distrl.data_store.local_objects import LocalObjects
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import StoredRun, Writer
from distrl.errors import CheckpointError, ConfigError, StoreError
from distrl.launch import training
from distrl.launch.start import _open_stored_run, _stored_id, going_back
from tests.data_store.stores import Breaking, saved, store_steps


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


def config(url, *sets, updates=3):
    given = [
        "actors.count=0",
        "actors.environments=8",
        "algorithm.minibatches=2",
        f"stop.updates={updates}",
        "checkpoint.every_updates=1",
    ]
    return load("cartpole-impala", sets=[*given, f"checkpoint.store={url}", *sets])


def train(url, run_dir, *sets, resume=None, run_id="r1", updates=3):
    return distrl.train(
        config(url, *sets, updates=updates), run_dir=run_dir, run_id=run_id, resume=resume, view="silent"
    )


def newest(run_dir):
    return checkpoints.load_newest(run_dir / "checkpoints")


def files(url):
    return {name.removeprefix("r1/") for name in open_objects(url).sizes("r1")}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """(summary, URL of the store, run directory) of a training with a store, from which others go on."""
    folder = tmp_path_factory.mktemp("first")
    url, here = f"file://{folder}/store", folder / "here"
    return train(url, here), url, here


@pytest.mark.row("D63", "T08")
@pytest.mark.slow
def test_another_directory_goes_on(first, tmp_path):
    summary, url, here = first
    there = tmp_path / "there"
    assert (summary.exit_code, summary.error) == (0, None)
    assert {"config.yaml", "manifest.json", "metrics.csv", "summary.json", "logs/events.log"} <= files(url)
    assert {"policy/graph.onnx", "policy/description.json", "policy/weights.msgpack"} <= files(url)
    assert not [name for name in files(url) if "key" in name or "password" in name or "lock" in name]
    rows = open_objects(url).get("r1/metrics.csv").count(b"\n")
    resumed = train(url, there, resume=f"{url}/r1", run_id=None, updates=6)
    assert (resumed.run_id, resumed.updates, resumed.resumed_updates) == ("r1", 6, 3)
    assert "fetched checkpoint 000001-000000000003" in (there / "logs" / "events.log").read_text()
    for group, arrays in newest(here).arrays.items():
        for name, array in checkpoints.load(there / "checkpoints" / "ckpt-000000000003").arrays[group].items():
            np.testing.assert_array_equal(array, arrays[name])
    assert open_objects(url).get("r1/metrics.csv").count(b"\n") > rows  # it goes on with that of the first host
    assert StoredRun(open_objects(url), "r1").look().newest == (2, 6)


@pytest.mark.slow
def test_a_store_that_vanishes_ends_with_6_and_a_complete_directory(url, tmp_path, monkeypatch):
    made = []

    def breaking(url):
        made.append(Breaking(url))
        made[-1].before_write = lambda number: setattr(made[-1], "down", len(made) > 1 and number > 3)
        return made[-1]

    for module in ("distrl.launch.start", "distrl.learner.origin"):
        monkeypatch.setattr(f"{module}.open_objects", breaking)
    monkeypatch.setattr("distrl.learner.mirror.RETRY_S", 0.1)
    summary = train(url, tmp_path / "run", "checkpoint.store_give_up_s=1")
    assert summary.exit_code == 6
    assert summary.updates == 3
    assert f"it is complete in {tmp_path}/run" in summary.error
    assert newest(tmp_path / "run").step == 3
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["exit_code"] == 6


@pytest.mark.parametrize("resume", [None, "auto"])
def test_a_store_that_cannot_be_used_is_refused_and_nothing_is_made(tmp_path, resume):
    with pytest.raises(ConfigError, match=r"checkpoint.store cannot be used: file:.*No such file"):
        train(f"file://{tmp_path}/not/mounted", tmp_path / "run", resume=resume)
    assert not [*tmp_path.iterdir()]


def test_a_full_store_is_refused(url, tmp_path, monkeypatch):
    def full(self, name, content):
        raise StoreError(f"{url}: {name}: No space left on device")

    monkeypatch.setattr(LocalObjects, "create", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        train(url, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_of_that_id_is_not_overwritten(url, tmp_path):
    store_steps(StoredRun(open_objects(url), "r1"), tmp_path / "other", 1)
    with pytest.raises(ConfigError, match=r"r1 already holds a run; choose another --run-id, or go on with --resume"):
        train(url, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_whose_claim_comes_between_the_check_and_the_start_is_not_overwritten(url, tmp_path, monkeypatch):
    """Two new runs of one id: the other one begins while this one tries out its environment."""
    check, run = training.check, StoredRun(open_objects(url), "r1")

    def slow(*given, **named):
        assert run.begin()
        return check(*given, **named)

    monkeypatch.setattr(training, "check", slow)
    with pytest.raises(ConfigError, match=r"r1 already holds a run; choose another --run-id, or go on with --resume"):
        train(url, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert run.look().is_begun


def test_auto_needs_the_id_by_which_the_store_knows_the_run(url, tmp_path):
    with pytest.raises(ConfigError, match=r"holds no run, and the data store has runs by their ids: add --run-id NAME"):
        train(url, tmp_path / "run", resume="auto", run_id=None)
    assert not (tmp_path / "run").exists()


def test_a_run_that_the_store_does_not_have(url, tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing to resume: .*/none holds no checkpoint"):
        train(url, tmp_path / "run", resume=f"{url}/none", run_id=None)
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_store(url):
    assert _stored_id(f"{url}/r1", url) == "r1"
    with pytest.raises(ConfigError, match=r"add --set checkpoint\.store=s3://b/runs"):
        _stored_id("s3://b/runs/r1", url)


def test_a_secret_that_the_store_does_not_keep_is_asked_for(url):
    loaded = config(url, 'environment.kwargs={token: "•••"}')
    with pytest.raises(ConfigError, match=r"environment\.kwargs\.token holds a secret.*add --set environment"):
        _open_stored_run(loaded.config, "r1", new=False)


def test_without_a_store():
    assert _open_stored_run(load("cartpole-impala").config, "r1", new=True) is None


@pytest.mark.long
@pytest.mark.row("G23")
@pytest.mark.slow
def test_a_run_that_goes_back_takes_the_store_with_it(url, tmp_path):
    """The later checkpoints are removed from the store, and no host takes them again."""
    here, there = tmp_path / "here", tmp_path / "there"
    train(url, here, updates=4)
    train(url, here, resume=f"{here}@2", run_id=None, updates=3)
    assert newest(here).step == 3
    assert checkpoints.load_newest(here / "after-2" / "checkpoints").step == 4
    listing = StoredRun(open_objects(url), "r1").look()
    assert listing.newest.step == 3
    assert (1, 4) not in listing.all
    resumed = train(url, there, resume=f"{url}/r1", run_id=None, updates=4)
    assert (resumed.resumed_updates, resumed.updates) == (3, 4)
    for group, arrays in newest(here).arrays.items():  # not those of the first life
        for name, array in checkpoints.load(there / "checkpoints" / "ckpt-000000000003").arrays[group].items():
            np.testing.assert_array_equal(array, arrays[name])


@pytest.mark.long
@pytest.mark.slow
def test_a_branch_of_a_run_is_a_run_of_its_own_in_the_store(url, tmp_path):
    train(url, tmp_path / "here")
    train(url, tmp_path / "branch", resume=f"{tmp_path / 'here'}@2", run_id="r2", updates=3)
    assert StoredRun(open_objects(url), "r2").look().newest == (1, 3)
    with pytest.raises(ConfigError, match="already holds a run"):
        train(url, tmp_path / "other", resume=f"{tmp_path / 'here'}@2", run_id="r2")


def test_weights_in_a_store_are_refused_with_the_remedy(url, tmp_path):
    with pytest.raises(ConfigError, match=r"is in a data store: name a file made by distrl export file://.*/r1 --out"):
        train(url, tmp_path / "new", f"learner.init_from={url}/r1", run_id="r3")
    assert not (tmp_path / "new").exists()


def test_going_back_past_an_earlier_writer(url, tmp_path):
    """The directory's mark of its writer is that of the last launch, not that of the chosen checkpoint."""
    run, here = StoredRun(open_objects(url), "r1"), tmp_path / "here"
    Writer.claim(run, 0, "one")
    for step in (100, 200):
        Writer(run, 1).store(saved(here, step), step, {}, best=False, keep=9)
    Writer.claim(run, 1, "two").store(saved(here, 300), 300, {}, best=False, keep=9)
    write_writer(here, "r1", 2)
    returning = StoredRun(run.objects, "r1", going_back(run, here / "checkpoints" / "ckpt-000000000100"))
    assert list(returning.look().complete) == [(1, 100)]
    assert run.look().newest == (2, 300)  # nothing has changed for others
    assert fetch_newest(returning, tmp_path / "there", (), print).position == (1, 100)
    Writer.claim(returning, 2, "three")
    assert list(run.look().complete) == list(returning.look().complete) == [(1, 100)]
    Writer(returning, 3).store(saved(here, 200), 200, {}, best=False, keep=9)
    assert list(returning.look().complete) == [(3, 200), (1, 100)]


def test_going_back_to_a_checkpoint_that_the_store_has_not(url, tmp_path):
    run, here = StoredRun(open_objects(url), "r1"), tmp_path / "here"
    Writer.claim(run, 0, "one").store(saved(tmp_path / "other", 200), 200, {}, best=False, keep=9)
    returning = StoredRun(run.objects, "r1", going_back(run, saved(here, 100)))
    Writer.claim(returning, 1, "two")
    assert list(run.look().complete) == []


@pytest.mark.slow
def test_another_host_refuses_other_first_weights_than_those_of_the_run(first, tmp_path):
    _, url, _ = first
    with pytest.raises(ConfigError, match=r"is for a new training; the run in .*there began with fresh weights"):
        train(url, tmp_path / "there", f"learner.init_from={tmp_path / 'x'}", resume=f"{url}/r1", run_id=None)
    assert not (tmp_path / "there").exists()


@pytest.mark.long
@pytest.mark.slow
def test_another_host_goes_on_with_a_run_whose_first_weights_it_does_not_have(url, tmp_path):
    train(f"file://{tmp_path}/elsewhere", tmp_path / "source")
    train(url, tmp_path / "here", f"learner.init_from={tmp_path / 'source'}")
    (tmp_path / "source").rename(tmp_path / "gone")
    resumed = train(url, tmp_path / "there", f"learner.init_from={tmp_path / 'source'}", resume="auto", updates=4)
    assert (resumed.exit_code, resumed.resumed_updates, resumed.updates) == (0, 3, 4)
