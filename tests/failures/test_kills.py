"""kill -9 of any process, or SIGSTOP of all: the run goes on, or nothing of it is left."""

import os
import signal
from pathlib import Path

import pytest

from distrl.inference.place import socket_path
from distrl.roles.description import RunDescription
from tests.waiting import lasts

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def test_a_killed_actor_is_replaced_and_the_run_goes_on(start_run, unhurried):
    run = start_run(*unhurried)
    run.wait_for_updates(1)
    learner, actor = run.role("learner").pid, run.role("actor", 1).pid
    assert os.getsid(learner) == os.getsid(actor)  # where Linux weighs one's niceness beside the other's
    lower = os.getpriority(os.PRIO_PROCESS, actor) - os.getpriority(os.PRIO_PROCESS, learner)
    assert lower == min(10, 19 - os.nice(0))
    run.kill("actor", 1)
    run.wait_until(
        lambda: run.backend.unrolls.highest().get((1, 2), -1) >= 5, "the replacement's unrolls are trained on"
    )
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason) == (0, "SIGTERM")
    assert (summary.restarts, summary.imbalance) == (1, 0)
    assert "actor 1 ended (signal 9); starting again" in run.told
    # Nothing was wrong with any unroll: whole ones arrived, the one in hand was never produced.
    assert (sum(summary.dropped.values()), summary.lost, summary.foreign, summary.rolled_back) == (0, 0, 0, 0)


@pytest.mark.long
def test_an_actor_without_a_log_is_replaced_its_simulators_end_and_a_starting_learner_is_no_error(
    start_run, unhurried, tmp_path
):
    pids = tmp_path / "simulators"
    of_simulators = ["--env", "tests.faults.environments:Simulated", "--set", f"environment.kwargs={{pids: {pids}}}"]
    run = start_run(*unhurried, *of_simulators, "--actors", "1", "--set", "checkpoint.every_updates=1")
    run.wait_for_updates(3)
    first = int(pids.read_text().split()[-1])
    assert run.alive(first)
    run.wait_until(lambda: any((run.run_dir / "checkpoints").glob("ckpt-*")), "a checkpoint")
    (run.run_dir / "logs").rename(run.run_dir / "elsewhere")
    run.kill("actor")
    run.wait_until(
        lambda: run.backend.unrolls.highest().get((0, 2), -1) >= 1, "the replacement's unrolls are trained on"
    )
    assert not run.alive(first)
    assert run.told.count("actor 0 runs without a log (") == 1
    run.kill("learner")
    run.wait_until(lambda: "learner started again (restart 1)" in run.told, "the learner starts")
    run.process.terminate()
    summary = run.finish()
    assert (run.process.returncode, summary.stop_reason, summary.error) == (0, "SIGTERM", None)
    assert not any(run.alive(int(pid)) for pid in pids.read_text().split())


def test_a_killed_learner_resumes_from_the_newest_checkpoint(start_run, endless):
    run = start_run(*endless, "--set", "checkpoint.every_updates=10")
    run.wait_for_updates(20)
    folder = run.run_dir / "checkpoints"  # whose checkpoints are written beside the training
    run.wait_until(lambda: any(path.name >= f"ckpt-{20:012}" for path in folder.glob("ckpt-*")), "one of 20 updates")
    version = run.backend.weights.version()
    saved = max(int(path.name.removeprefix("ckpt-")) for path in (run.run_dir / "checkpoints").glob("ckpt-*"))
    fence = run.role("learner").incarnation
    run.kill("learner")
    run.wait_until(lambda: run.role("learner").incarnation > fence, "another learner trains")
    run.wait_until(lambda: run.backend.weights.version() > version, "it publishes above its predecessor's versions")
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "SIGTERM", 1, 0)
    assert (summary.lost, summary.foreign) == (0, 0)
    # What had been trained after the checkpoint is shown, and no more than one checkpoint interval of it.
    assert summary.trained == summary.updates + summary.rolled_back
    assert 0 <= summary.rolled_back <= 10 + 1
    assert saved >= 20


def test_a_killed_inference_server_is_replaced_its_actors_go_on_and_nothing_is_left(start_run, unhurried):
    run = start_run(*unhurried, "--set", "actors.inference=host")
    run.wait_for_updates(1)
    launch = RunDescription.model_validate_json(run.backend.config_json()).launch
    directory, redis, pids = Path("/dev/shm", f"distrl-inference-{launch}"), run.socket, run.pids
    assert socket_path(directory).is_socket()
    run.kill("inference")
    run.wait_until(lambda: run.role("inference").incarnation == 2, "another server")
    trained = run.backend.unrolls.highest()
    assert trained.keys() == {(0, 1), (1, 1)}
    run.wait_until(
        lambda: all(number >= trained[actor] + 3 for actor, number in run.backend.unrolls.highest().items()),
        "unrolls of the same actors are trained on",
    )
    pids += run.pids
    run.process.terminate()
    summary = run.finish()
    assert (run.process.returncode, summary.stop_reason, summary.error) == (0, "SIGTERM", None)
    assert (summary.restarts, summary.imbalance, summary.lost, sum(summary.dropped.values())) == (1, 0, 0, 0)
    assert "inference 0 ended (signal 9); starting again" in run.told
    assert not any(map(run.alive, pids))
    assert not directory.exists()
    assert not redis.parent.exists()


def test_nothing_is_left_of_a_run_whose_parent_was_killed(start_run, unhurried):
    run = start_run(*unhurried)
    run.wait_for_updates(5)
    socket, pids = run.socket, run.pids
    assert len(pids) == 4
    os.kill(run.process.pid, signal.SIGKILL)
    run.wait_until(lambda: not any(map(run.alive, pids)), "every role has ended")
    run.wait_until(lambda: not socket.parent.exists(), "the private directory is gone")
    # The learner was asked, not shot: it saved what it had.
    assert any((run.run_dir / "checkpoints").glob("ckpt-*"))


@pytest.mark.parametrize(
    "asleep_s",
    [
        pytest.param(35.0, marks=pytest.mark.long),
        pytest.param(300.0, marks=[pytest.mark.endurance, pytest.mark.timeout(900)]),
    ],
)
def test_a_run_that_was_stopped_and_continued_goes_on_and_blames_nobody(start_run, unhurried, measured, asleep_s):
    """As a laptop's lid does: everything stands still for longer than any time-out, and comes back one by one."""
    run = start_run(*unhurried, "--set", "environment.step_timeout_s=20", "--set", "learner.stall_timeout_s=30")
    run.wait_for_updates(5)
    pids = [pid for pid in run.pids if pid != run.process.pid]
    for pid in (run.process.pid, *pids):
        os.kill(pid, signal.SIGSTOP)
    lasts(asleep_s)
    os.kill(run.process.pid, signal.SIGCONT)
    lasts(1.0)  # the supervisor is the first that wakes up
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    run.wait_for_updates(run.updates + 20)
    assert pids == [pid for pid in run.pids if pid != run.process.pid]
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "SIGTERM", 0, 0)
    measured(13, asleep_s=asleep_s, restarts=summary.restarts, lost=summary.lost)


@pytest.mark.long
def test_chaos_kills_and_tells_who_came_back(start_run, unhurried, distrl_command):
    run = start_run(*unhurried, "--set", "actors.restart_budget=50")
    run.wait_for_updates(3)
    trial = ["chaos", str(run.run_dir), "--kill", "actor", "--every", "3s", "--for", "9s", "--within", "1m"]
    done = distrl_command(*trial)
    assert done.returncode == 0, done.stdout + done.stderr
    kills = done.stdout.count("killing actor")
    assert kills >= 1
    assert done.stdout.count("  back after ") == kills
    assert f"{kills} killed, {kills} back, the slowest after" in done.stdout
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, kills, 0)
