"""Launches that are refused: nothing of the run has changed then, whatever refuses it and however late."""

import shutil
from pathlib import Path
from typing import ClassVar

import pytest

import distrl
from distrl.apps.config.configuration import load
from distrl.errors import ConfigError, DistrlError, StoreError
from distrl.launch import training
from distrl.observers.observer import Observer
from distrl.runs import trial
from distrl.runs.run_directory import locked
from distrl.runs.trial import APPENDED, LATER, REPLACED
from distrl.terminal.console import PlainView
from tests.tree import tree

SETTINGS = ("actors.environments=8", "algorithm.minibatches=2", "checkpoint.every_updates=1")
OTHER_NETWORK = "network.middleware_parameters.scheme=[32]"


def train(run_dir, *sets, resume=None, updates=3):
    loaded = load("cartpole-impala", sets=[*SETTINGS, "actors.count=0", f"stop.updates={updates}", *sets])
    return distrl.train(loaded, run_dir=run_dir, resume=resume, view="silent")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("refused") / "run"
    assert train(run_dir).exit_code == 0
    return run_dir


@pytest.fixture
def run_dir(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run", symlinks=True)


def refused(run_dir, *sets, resume="itself"):
    """Launch, and return the words with which the launch is refused."""
    try:
        summary = train(run_dir, *sets, resume=str(run_dir) if resume == "itself" else resume, updates=6)
    except DistrlError as error:
        return str(error)
    assert summary.exit_code == ConfigError.exit_code
    return summary.error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (
            [OTHER_NETWORK, "trackers.own={'tests.launch.test_training_refused:Tracker': {}}"],
            "does not fit the configuration",
        ),
        ([OTHER_NETWORK, "actors.count=1"], "does not fit the configuration"),
        (["algorithm={name: appo}"], "the run to resume has algorithm.name impala, not appo"),
        (["algorithm={name: 'nowhere:Algorithm'}"], "algorithm nowhere:Algorithm: module 'nowhere' cannot be imported"),
        (["environment.kwargs={odd: 1}"], "odd"),
        (["memory.url=redis://127.0.0.1:1", "actors.count=1"], "127.0.0.1:1"),
        (["learner.init_from=nowhere"], "nowhere is for a new training"),
        (["checkpoint.store=file:///proc/nowhere"], "/proc/nowhere"),
        (["tensorboard.directory=/proc/nowhere"], "TensorBoard's files cannot be written to /proc/nowhere"),
    ],
    ids=lambda value: value[-1][:40] if isinstance(value, list) else "",
)
def test_a_refused_launch_changes_nothing_and_no_tracker_hears_of_it(run_dir, tmp_path, sets, told):
    before = tree(run_dir)
    assert told in refused(run_dir, *sets)
    assert tree(run_dir) == before
    assert not (tmp_path / "heard").exists()


class Tracker:
    """Hears nothing of a launch that is refused."""

    def begin(self, run):
        (run.run_dir.parent / "heard").touch()

    def record(self, row, env_steps):
        raise NotImplementedError

    def end(self, ending):
        raise NotImplementedError


@pytest.mark.slow
def test_a_refused_launch_from_a_chosen_checkpoint_moves_nothing(run_dir):
    before = tree(run_dir)
    assert "does not fit the configuration" in refused(run_dir, OTHER_NETWORK, resume=f"{run_dir}@1")
    assert tree(run_dir) == before
    assert train(run_dir, resume=f"{run_dir}@1", updates=2).exit_code == 0
    assert (run_dir / "after-1" / "checkpoints" / "ckpt-000000000003").is_dir()


@pytest.mark.long
@pytest.mark.slow
def test_a_refused_launch_whose_store_has_diverged_changes_neither(run_dir, tmp_path):
    """Two directories go on from one checkpoint: the other one with the store, and this one, further, without it."""
    store = f"checkpoint.store=file://{tmp_path / 'store'}"
    assert train(run_dir, store, resume=str(run_dir), updates=4).exit_code == 0
    other = shutil.copytree(run_dir, tmp_path / "other", symlinks=True)
    assert train(other, store, resume=str(other), updates=5).exit_code == 0
    assert train(run_dir, "checkpoint.store=null", resume=str(run_dir), updates=6).exit_code == 0
    before = tree(run_dir), tree(tmp_path / "store")
    assert "does not fit the configuration" in refused(run_dir, OTHER_NETWORK, store)
    assert (tree(run_dir), tree(tmp_path / "store")) == before
    assert train(run_dir, store, resume=str(run_dir), updates=6).exit_code == 0
    assert (run_dir / "checkpoints.of-writer-1" / "ckpt-000000000006").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("resume", [pytest.param("", marks=pytest.mark.long), "@1"])
def test_a_refused_launch_leaves_its_store_as_it_was(run_dir, tmp_path, resume):
    store = f"checkpoint.store=file://{tmp_path / 'store'}"
    assert train(run_dir, store, resume=str(run_dir), updates=4).exit_code == 0
    before = tree(run_dir), tree(tmp_path / "store")
    assert "does not fit the configuration" in refused(run_dir, OTHER_NETWORK, store, resume=f"{run_dir}{resume}")
    assert (tree(run_dir), tree(tmp_path / "store")) == before


@pytest.mark.slow
def test_a_refused_new_run_leaves_nothing_in_its_store(tmp_path):
    (tmp_path / "store").mkdir()
    new = ["algorithm={name: appo}", f"checkpoint.store=file://{tmp_path / 'store'}"]
    assert "cannot be written" in refused(tmp_path / "run", *new, "tensorboard.directory=/proc/no", resume=None)
    assert [*tmp_path.rglob("*")] == [tmp_path / "store"]


class Ended(Observer):
    """Keeps the summary with which it ended."""

    summaries: ClassVar[list] = []

    def end(self, summary):
        self.summaries.append(summary)


@pytest.mark.slow
def test_observers_end_if_the_store_fails_once_they_listen(run_dir, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise StoreError("the store is gone")

    monkeypatch.setattr(training, "StoredFiles", fails)
    sets = [*SETTINGS, "actors.count=0", "stop.updates=6", f"checkpoint.store=file://{tmp_path / 'store'}"]
    before = tree(run_dir)
    with pytest.raises(StoreError, match="the store is gone"):
        training.train(
            load("cartpole-impala", sets=sets),
            run_dir=run_dir,
            resume=str(run_dir),
            view=PlainView(write=lambda _line: None),
            observers=[Ended],
        )
    assert [summary.error for summary in Ended.summaries] == ["the store is gone"]
    assert tree(run_dir) == before


@pytest.mark.slow
def test_a_damaged_file_refuses_the_launch_and_stays(run_dir):
    with (run_dir / "metrics.csv").open("ab") as file:
        file.write(b"damaged\n1,2")
    before = tree(run_dir)
    assert "metrics.csv is damaged in line" in refused(run_dir)
    assert tree(run_dir) == before


@pytest.mark.slow
def test_a_launch_beside_one_that_lives_changes_nothing(run_dir):
    with locked(run_dir):
        before = tree(run_dir)
        assert "has not ended; stop it first" in refused(run_dir)
        assert tree(run_dir) == before


@pytest.mark.slow
@pytest.mark.parametrize("actors", [0, pytest.param(1, marks=pytest.mark.long)])
def test_all_that_a_launch_writes_is_known(tmp_path, actors):
    sets = ("stop={updates: 3}", f"actors.count={actors}", "evaluation.every_env_steps=64", "launch.role_rows_s=0.1")
    loaded = load("cartpole-impala", sets=[*SETTINGS, *sets])
    assert distrl.train(loaded, run_dir=tmp_path / "run", view="silent").exit_code == 0
    found = set((tmp_path / "run").rglob("*"))
    assert found == set(trial._written(tmp_path / "run"))


def test_the_documentation_lists_all_that_a_launch_writes():
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    for pattern in (*REPLACED, *APPENDED, *LATER, "after-*"):
        assert f"`{pattern}`" in page, pattern
