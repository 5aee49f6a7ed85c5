"""Signals to one role alone stop no run: the role starts again. Code of the user's in roles sees no command line."""

import os
import signal

import pytest

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_to_the_learner_alone_stops_no_run(start_run, unhurried, number):
    parses = ["--env", "tests.faults.environments:Bare", "--set", "evaluation.every_env_steps=100"]
    before = signal.signal(number, signal.SIG_DFL)  # what began the tests may ignore it, and children then do, too
    try:
        run = start_run(*unhurried, *parses, "--actors", "1", "--set", "stop.updates=60")
    finally:
        signal.signal(number, before)
    run.wait_for_updates(10)
    os.kill(run.role("learner").pid, number)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (0, 0, "updates")
    assert (summary.updates, summary.restarts, summary.imbalance) == (60, 1, 0)
    assert "learner ended (exit code 0, though the run goes on); starting again" in run.told
    assert summary.rolled_back == 0  # it had saved before it ended
