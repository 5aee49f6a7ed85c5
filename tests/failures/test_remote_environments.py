"""Trainings in environments at the other end of a socket, whose server is killed, and comes back or stays away."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import distrl

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis]

FINISH_S = 250.0
SMALL = ["--set", "actors.environments=4", "--set", "learner.batch_size=1", "--set", "actors.unroll_length_steps=16"]


@pytest.fixture
def serve(free_port: int) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `distrl serve-env` on the port, and returns once it listens."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        where = arguments or ("--port", str(free_port))
        command = [sys.executable, "-m", "distrl", "serve-env", "CartPole-v1", *where]
        variables = {**os.environ, "PYTHONPATH": str(Path(distrl.__file__).parent.parent)}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables))
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def wait_for_updates(run, count):
    run.wait_until(lambda: run.updates >= count or run.process.poll() is not None, f"{count} updates", FINISH_S)
    assert run.process.poll() is None, run.told


def test_training_goes_on_after_the_server_was_killed_in_the_middle_of_episodes(start_run, serve, free_port):
    server = serve()
    run = start_run("--env", f"tcp://127.0.0.1:{free_port}", *SMALL, "--actors", "2", "--set", "stop.minutes=10")
    wait_for_updates(run, 5)
    server.kill()
    server.wait()
    serve()
    wait_for_updates(run, run.updates + 50)
    run.process.terminate()
    summary = run.finish(FINISH_S)
    # No actor had to be started again, and every unroll is accounted for.
    assert (summary.exit_code, summary.restarts, summary.imbalance, summary.lost) == (0, 0, 0, 0)
    logs = [(run.run_dir / "logs" / f"actor-{actor}.log").read_text() for actor in range(2)]
    assert [log.count("(1 episodes lost so far)") for log in logs] == [4, 4]


def test_a_server_that_stays_away_ends_the_run_with_3(start_run, serve, free_port):
    server = serve()
    run = start_run(
        *("--env", f"tcp://127.0.0.1:{free_port}", *SMALL, "--actors", "1", "--set", "actors.restart_budget=1"),
        *("--set", "environment.kwargs={give_up_s: 1, connect_timeout_s: 1}"),
    )
    wait_for_updates(run, 5)
    server.kill()
    summary = run.finish(FINISH_S)
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (3, 3, "restart budget spent")
    assert summary.imbalance == 0
    assert f"127.0.0.1:{free_port} cannot be reached: Connection refused" in run.told


def test_environments_that_dial_two_actors(start_run, serve, free_port):
    serve("--connect", f"127.0.0.1:{free_port}", "--connections", "8")
    run = start_run(
        "--env", f"tcp-listen://127.0.0.1:{free_port}", *SMALL, "--actors", "2", "--set", "stop.env_steps=5000"
    )
    summary = run.finish(FINISH_S)
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "env_steps", 0)
    assert summary.env_steps >= 5000
