"""A disk that takes no more: the training goes on, says so, and saves again once it can."""

import resource

import pytest

from distrl.data_store.checkpoints import load_newest
from distrl.learner.policy_files import read_policy
from tests.faults.arguments import sets

pytestmark = [pytest.mark.slow, pytest.mark.redis]

SMALL = 4096
"""Bytes of the largest file that the learner may write meanwhile: less than its networks take."""


def test_a_disk_that_refuses_costs_no_training(start_run, unhurried, assert_ended_cleanly):
    run = start_run(*unhurried, "--set", "checkpoint.every_updates=5")
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("ckpt-*")), "a checkpoint")
    learner = run.role("learner").pid
    before = resource.prlimit(learner, resource.RLIMIT_FSIZE, (SMALL, resource.RLIM_INFINITY))
    run.wait_until(lambda: "no checkpoint can be written: [Errno 27] File too large" in run.told, "the user is told")
    saved = sorted(path.name for path in (run.run_dir / "checkpoints").iterdir())
    updates = run.updates
    run.wait_for_updates(updates + 10)
    assert sorted(path.name for path in (run.run_dir / "checkpoints").iterdir()) == saved  # no litter, nothing lost
    resource.prlimit(learner, resource.RLIMIT_FSIZE, before)
    run.wait_until(lambda: "checkpoints are written again" in run.told, "the user is told again")
    pids = run.pids
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 0, 0)
    assert_ended_cleanly(run, pids, summary)


@pytest.mark.long
def test_a_disk_that_refuses_at_the_goal_loses_nothing_and_hides_nothing(start_run, unhurried, tmp_path, monkeypatch):
    """Neither a checkpoint nor the summary is taken, and no log: the run ends once, and says where its updates are."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run = start_run(*unhurried, *sets("stop.updates=20", "checkpoint.every_s=1000"))
    run.wait_until(lambda: run.record, "the run is launched")
    (run.run_dir / "summary.json").mkdir()
    (run.run_dir / "checkpoints").rmdir()
    (run.run_dir / "checkpoints").write_text("no directory")
    assert run.process.wait(timeout=150) == 1, run.told
    (folder,) = tmp_path.glob("saved-by-distrl-run-*")
    (error,) = run.errors.read_text().splitlines()[-1:]
    assert error == (
        f"distrl: error: learner: the run's directory does not take update 20: [Errno 17] File exists: "
        f"'{run.run_dir / 'checkpoints'}'; it is saved in {folder} instead: distrl train --resume {folder} goes on"
    )
    assert run.told.count("distrl: error") == 1
    assert "started again" not in run.told
    assert f"the summary cannot be written: [Errno 21] Is a directory: '{run.run_dir}" in run.told
    assert " trained + " in run.told
    assert f"  files    {run.run_dir}: metrics.csv, tensorboard/, policy/, logs/\n" in run.told  # only what is there
    assert f"  go on    distrl train --resume {folder}\n" in run.told
    assert load_newest(folder / "checkpoints").meta["updates"] == 20
    assert read_policy(folder).env_steps > 0
    # policy/ does take something: what was published.
    assert "policy/ holds the newest published weights, which no checkpoint does (version 21, " in run.told
    assert read_policy(run.run_dir).weights.version == 21
