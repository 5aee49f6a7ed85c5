"""A learner and an actor over a real Redis, as threads of this process: they train, tell, and end by themselves."""

import shutil
import threading
from pathlib import Path

import pytest

from distrl.data_store.checkpoints import load_newest
from distrl.errors import UnsavedError
from distrl.roles.actor import ActorRole
from distrl.roles.description import RunAddress
from distrl.roles.learner import LearnerRole
from distrl.roles.plan import Role
from distrl.roles.trust import Trust

pytestmark = pytest.mark.redis
COMPILED = "the update has been traced in"


@pytest.mark.parametrize(
    "compression", ["none", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("zstd", "lz4"))]
)
def test_a_learner_trains_to_its_stop_condition_and_says_so_to_all(
    described_run, run_key, redis_url, tmp_path: Path, compression
):
    backend = described_run(memory={"compression": compression}, learner={"batch_size": 2}, stop={"updates": 5})
    stop = threading.Event()
    actor = ActorRole(Role("actor", 0), RunAddress(redis_url, tmp_path.name, Trust()), stop)
    acting = threading.Thread(target=actor.run)
    acting.start()
    learner = LearnerRole(Role("learner"), RunAddress(redis_url, tmp_path.name, Trust(run_key)), threading.Event())
    assert learner.status().state == "starting: importing the framework"
    assert learner.run() == "updates"
    assert backend.registry.control().stop == "updates"
    acting.join(timeout=60)
    assert not acting.is_alive()  # it learned of the stop from the registry

    counts = backend.ledger.counts()
    assert (counts.trained, counts.imbalance) == (10, 0)
    arrays_bytes = 4 * (33 * 4 * 4 + 32 * (4 + 4 + 4 + 3))  # 4 environments: observations, then numbers of each step
    assert (counts.pushed_bytes < arrays_bytes * counts.produced) == (compression != "none")
    assert backend.weights.version() == 6
    status = learner.status()
    assert (status.state, status.incarnation, status.weights_version) == ("stopping", 1, 6)
    assert 0.0 <= status.blocked_share <= 1.0
    assert status.env_steps >= 5 * 2 * 4 * 32 * 0.5
    assert actor.status().weights_version > 0
    saved = load_newest(tmp_path / "checkpoints")
    assert saved is not None
    assert (saved.step, saved.meta["updates"]) == (5, 5)
    assert [snapshot["stop_reason"] for _, snapshot in backend.registry.snapshots("0")][-1] == "updates"


def test_a_learner_that_is_asked_saves_and_leaves_the_run_to_others(
    described_run, run_key, redis_url, tmp_path: Path, caplog
):
    caplog.set_level("INFO")
    backend = described_run()
    stop = threading.Event()
    stop.set()
    assert LearnerRole(Role("learner"), RunAddress(redis_url, tmp_path.name, Trust(run_key)), stop).run() == "asked"
    assert caplog.text.count(COMPILED) == 1  # ahead of the first unroll, which never comes
    assert backend.registry.control().stop is None
    assert load_newest(tmp_path / "checkpoints") is not None
    # What it had published stays: the policy, and the first version of the weights.
    assert backend.weights.get_bundle() is not None
    assert backend.weights.version() == 1


def test_a_learner_that_cannot_save_at_its_goal_ends_the_run_all_the_same(
    described_run, run_key, redis_url, tmp_path: Path, monkeypatch
):
    """A successor would train to the same goal once more, from an older checkpoint."""
    monkeypatch.setattr("distrl.learner.attendants.saver.LAST_RETRIES_S", (0.0,))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    backend = described_run(learner={"batch_size": 2}, stop={"updates": 2})
    (tmp_path / "checkpoints").write_text("no directory")
    actor = ActorRole(Role("actor", 0), RunAddress(redis_url, tmp_path.name, Trust()), threading.Event())
    acting = threading.Thread(target=actor.run)
    acting.start()
    learner = LearnerRole(Role("learner"), RunAddress(redis_url, tmp_path.name, Trust(run_key)), threading.Event())
    with pytest.raises(UnsavedError, match="does not take update 2"):
        learner.run()
    assert backend.registry.control().stop == "updates"
    acting.join(timeout=60)
    assert not acting.is_alive()
    last = backend.registry.snapshots("0")[-1][1]
    assert (last["updates"], last["stop_reason"]) == (2, "updates")
    assert "does not take update 2" in last["unsaved"]


def test_a_learner_that_does_not_find_the_runs_directory_goes_on_from_what_is_published(
    described_run, run_key, redis_url, tmp_path: Path, caplog
):
    """As on a host that does not share it."""
    caplog.set_level("INFO")
    backend = described_run(learner={"batch_size": 2}, stop={"updates": 5})
    actor = ActorRole(Role("actor", 0), RunAddress(redis_url, tmp_path.name, Trust(run_key)), threading.Event())
    acting = threading.Thread(target=actor.run)
    acting.start()
    address = RunAddress(redis_url, tmp_path.name, Trust(run_key))
    assert LearnerRole(Role("learner"), address, threading.Event()).run() == "updates"
    acting.join(timeout=60)
    before = load_newest(tmp_path / "checkpoints")
    shutil.rmtree(tmp_path / "checkpoints")
    backend.engine.call("HDEL", backend._run.keys.control, "stop")
    stop = threading.Event()
    stop.set()  # one that began anew would be asked before its first update
    assert caplog.text.count(COMPILED) == 1
    assert LearnerRole(Role("learner"), address, stop).run() == "updates"
    assert caplog.text.count(COMPILED) == 1  # no update is left to compile
    after = load_newest(tmp_path / "checkpoints")
    assert (after.step, after.meta["env_steps"]) == (5, before.meta["env_steps"])
    for name, array in before.arrays["main.online"].items():
        assert (after.arrays["main.online"][name] == array).all()
    assert f"no checkpoint of the run is in {tmp_path} on " in caplog.text
    counts = backend.ledger.counts()
    assert (counts.trained, counts.rolled_back, counts.imbalance) == (10, 0, 0)
