"""A run that makes no progress ends with 4, and leaves what is needed to see why."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.mark.long
def test_what_everybody_was_doing_is_told_when_a_run_stalls(start_run, unhurried):
    # The time-out also bounds the start, in which a busy machine imports for longer than the stall would need.
    stuck = ["--env", "tests.faults.environments:Stuck", "--set", "environment.step_timeout_s=100"]
    run = start_run(*unhurried, *stuck, "--set", "learner.stall_timeout_s=25")
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (4, 4, "stalled")
    report = run.run_dir / "logs" / "stall.txt"
    line = run.errors.read_text().splitlines()[-1]
    assert line.startswith("distrl: error: no update for ")
    assert line.endswith(f" s (learner.stall_timeout_s); {report} has the stacks of all roles")
    told = report.read_text()
    assert "unrolls: 0 queued, 0 in flight, 0 bytes\n" in told
    assert "learner: waiting: unrolls, incarnation 1, " in told
    assert "actor 1: acting, incarnation 1, weights version " in told
    for role, where in (("learner", "in collect"), ("actor 0", "in step"), ("actor 1", "threading.Event().wait()")):
        stacks = told.split(f"===== {role}\n")[1].split("\n=====")[0]
        assert "thread MainThread:\n" in stacks
        assert where in stacks
    assert "in stall_report\n" in told.split("===== the run's own command\n")[1]
    assert (summary.trained > 0, summary.imbalance, summary.restarts) == (True, 0, 0)
