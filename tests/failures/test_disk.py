"""A disk that takes no more: the training goes on, says so, and saves again once it can."""

import resource

import pytest

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
