"""A run whose terminal closes, whose reader leaves, or that gets a second signal."""

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import termios

import pytest

from tests.faults.arguments import environment, sets

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis]


def test_a_terminal_that_closes_ends_the_run_in_order(start_run, unhurried, assert_ended_cleanly):
    master, slave = pty.openpty()

    def own_terminal():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # pytest itself may run under nohup
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    run = start_run(*unhurried, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal)
    os.close(slave)
    run.wait_for_updates(3)
    pids = run.pids
    os.close(master)
    summary = run.finish()
    assert run.process.returncode == 0
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "SIGHUP", 0)
    assert_ended_cleanly(run, pids, summary)


def test_a_run_goes_on_when_nobody_reads_its_output_any_more(start_run, unhurried, assert_ended_cleanly):
    run = start_run(*unhurried, stdout=subprocess.PIPE)
    run.wait_for_updates(3)
    run.process.stdout.close()
    pids = run.pids
    run.kill("actor", 1)  # which is an event, and would be printed
    run.wait_until(lambda: run.backend.unrolls.highest().get((1, 2), -1) >= 3, "the replacement is at work")
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert run.process.returncode == 0
    assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "SIGTERM", 1, 0)
    assert "actor 1 ended (signal 9)" in (run.run_dir / "logs" / "events.log").read_text()
    assert "Error" not in run.errors.read_text()
    assert_ended_cleanly(run, pids, summary)


def test_a_second_sigterm_does_not_wait(start_run, unhurried):
    run = start_run(*unhurried)
    run.wait_for_updates(3)
    pids, learner = run.pids, run.role("learner").pid
    os.kill(learner, signal.SIGSTOP)  # it would be waited for
    run.process.send_signal(signal.SIGTERM)
    run.wait_until(lambda: "stopping: SIGTERM" in run.told, "the first one is noted")
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(timeout=20.0) == 130
    with contextlib.suppress(ProcessLookupError):  # the kernel wakes whom a stopped group's parent has left
        os.kill(learner, signal.SIGCONT)
    run.wait_until(lambda: not any(map(run.alive, pids)), "every role has ended")


def test_a_cluster_manager_chooses_the_exit_code_and_the_key(start_run, unhurried, assert_ended_cleanly, tmp_path):
    """A Job of Kubernetes takes 0 for the end of the training, and actors' hosts have the key before it starts."""
    given = "0123456789abcdef" * 4
    (tmp_path / "given.key").write_text(given)
    (tmp_path / "given.key").chmod(0o600)
    variables = environment() | {"DISTRL_RUN_KEY_FILE": str(tmp_path / "given.key")}
    run = start_run(*unhurried, *sets("launch.sigterm_exit_code=143"), env=variables)
    run.wait_for_updates(3)
    assert (run.run_dir / "run.key").read_text().strip() == given
    pids = run.pids
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert run.process.returncode == 143
    assert (summary.exit_code, summary.stop_reason, summary.error, summary.imbalance) == (143, "SIGTERM", None, 0)
    assert_ended_cleanly(run, pids, summary)
