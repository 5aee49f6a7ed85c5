"""A run whose supervisor has died, launched again under its id while roles of the earlier launch come back late."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.faults.arguments import environment
from tests.faults.training import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.row("S14")]
RUN_ID = "cartpole-1"


@pytest.fixture
def start_actor(tmp_path, redis_url) -> Iterator:
    """Starts an actor by hand, with its errors in a file."""
    started = []

    def start(run, number):
        errors = tmp_path / f"actor-{number}.err"
        command = [sys.executable, "-m", "distrl", "actor", "--redis-url", redis_url, "--run-id", RUN_ID]
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [*command, "--id", str(number)], cwd=tmp_path, env=environment(**run.key), stderr=file
            )
        started.append(process)
        return process, errors

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def expiring(run) -> set[str]:
    """The keys of the run that have a time to live, without their prefix."""
    prefix, engine = run.backend._run.keys.prefix, run.backend.engine
    return {key.removeprefix(prefix) for key in engine.keys(f"{prefix}*") if engine.call("TTL", key) > 0}


def test_a_run_is_launched_again_under_its_id(start_run, unhurried, command_here, start_actor, redis_url):
    shared = [*unhurried, "--redis-url", redis_url, "--set", "checkpoint.every_updates=5"]
    run = start_run(*shared, "--run-id", RUN_ID)
    run.wait_for_updates(6)
    made = {"run", "applied", "actors", "unrolls:0", "incarnations", "ledger", "weights", "bundle"}
    run.wait_until(lambda: made <= expiring(run), "the keys have a time to live")
    other = command_here("train", *shared, "--run-id", RUN_ID, "--run-dir", "other")
    assert (other.returncode, f"run {RUN_ID} at " in other.stderr) == (2, True)
    assert " goes on: " in other.stderr
    removed = command_here("runs", "--redis-url", redis_url, "--remove", RUN_ID)
    assert (removed.returncode, " goes on: " in removed.stderr) == (2, True)

    actor, errors = start_actor(run, 7)
    run.wait_until(lambda: run.state("actor", 7) == "acting", "the actor by hand acts")
    os.kill(actor.pid, signal.SIGSTOP)
    pids = [pid for pid in run.pids if pid != actor.pid]
    run.process.kill()
    run.wait_until(lambda: not any(map(run.alive, pids)), "the roles have ended with their supervisor")
    first = run.backend.engine.call("HGET", run.backend._run.keys.run, "launch")
    assert RUN_ID in command_here("runs", "--redis-url", redis_url).stdout
    assert made <= expiring(run)

    again = start_run(*shared, "--resume", "auto")
    again.wait_until(lambda: f"removed what an earlier launch of {RUN_ID}" in again.told, "its keys have been removed")
    again.wait_for_updates(10)
    assert again.backend.engine.call("HGET", again.backend._run.keys.run, "launch") not in (None, first)
    os.kill(actor.pid, signal.SIGCONT)
    assert actor.wait(timeout=WAIT_S) == 6
    (line,) = [line for line in errors.read_text().splitlines() if "distrl: error: " in line]
    assert f"run {RUN_ID} at " in line
    assert "was launched again, and this role belongs to an earlier launch" in line
    assert not again.backend.registry.is_registered((7, 1))
    again.process.terminate()
    summary = again.finish()
    assert (summary.run_id, summary.exit_code, summary.imbalance, summary.restarts) == (RUN_ID, 0, 0, 0)
    assert summary.resumed_updates >= 5
    assert command_here("runs", "--redis-url", redis_url).stdout == "no run in this Redis\n"
