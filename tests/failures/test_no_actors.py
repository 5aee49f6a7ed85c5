"""All actors at once, and for a while none: the learner waits, says so, and goes on."""

import os
import signal

import pytest

from tests.faults.processes import cpu_share

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.mark.parametrize(
    "away_s",
    [
        pytest.param(20.0, marks=pytest.mark.long),
        pytest.param(300.0, marks=[pytest.mark.endurance, pytest.mark.timeout(700)]),
    ],
)
def test_a_learner_without_actors_waits_and_goes_on(start_run, unhurried, tmp_path, measured, away_s):
    flag = tmp_path / "away"
    env = ["--env", "tests.faults.environments:Absent", "--set", f"environment.kwargs={{flag: {flag}, step_s: 0.005}}"]
    patience = ["--set", "actors.restart_budget=1000", "--set", "learner.stall_timeout_s=600"]
    run = start_run(*unhurried, *env, *patience)
    run.wait_for_updates(5)
    flag.touch()
    for pid in [run.role("actor", number).pid for number in (0, 1)]:
        os.kill(pid, signal.SIGKILL)
    run.wait_until(lambda: "nothing learned for " in run.told, "the user is told")
    assert "learner waiting: unrolls, " in run.told  # and actors that try to come back, or none
    run.wait_until(lambda: run.state("learner") == "waiting: unrolls", "the learner says what it waits for")
    learner, version = run.role("learner").pid, run.backend.weights.version()
    share = cpu_share(learner, away_s - 15.0)  # what has passed before it was told of
    assert share < 0.05
    assert run.backend.weights.version() == version  # there was nothing to learn from
    flag.unlink()
    back = run.timed_until(lambda: run.backend.weights.version() > version + 5, "it learns again")
    assert run.role("learner").pid == learner
    run.wait_until(lambda: "learning again after " in run.told, "the user is told again")
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance, summary.lost) == (0, "SIGTERM", 0, 0)
    measured(2, away_s=away_s, learner_cpu_share=share, back_s=back)
