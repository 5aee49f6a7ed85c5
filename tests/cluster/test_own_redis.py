"""A run's own Redis that other hosts reach: actors find it by the run's directory, on whatever host the run is next."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
import redis

from distrl.interrupt import INTERRUPTS
from distrl.runs.directories import RunRecord
from tests.faults.arguments import environment, sets
from tests.faults.hosts import Network
from tests.faults.training import WAIT_S, Run
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.usefixtures("needs_hosts"), pytest.mark.row("S10")]

SLEEPING = ["--env", "benchmarks.sleeping:Sleeping", "--set", "environment.kwargs={step_s: 0.01, features: 64}"]
SHAPE = sets("actors.environments=1", "actors.unroll_length_steps=16", "learner.batch_size=1")
STRANGER = 65534


@pytest.fixture
def network(tmp_path):
    network = Network(tmp_path)
    yield network
    network.close()


@pytest.fixture
def train(network, tmp_path):
    """Starts the training on a host that only learns, in a directory that all hosts share."""
    runs = []

    def start(host, *arguments):
        prefix = host.enter("env", "-C", str(tmp_path))
        alone = ["--no-actors", *sets("memory.listen=auto", "checkpoint.every_updates=5")]
        runs.append(Run(tmp_path / "run", *SLEEPING, *SHAPE, *alone, *arguments, cwd=tmp_path, prefix=prefix))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


def act(run, host, output, *options):
    """Start `distrl actors` of the run's directory on a host."""
    command = [sys.executable, "-m", "distrl", "actors", "--run-dir", str(run.run_dir), "--count", "1", *options]
    with output.open("wb") as file:
        return host.start(*command, variables=environment(), stdout=file, stderr=file)


def address(run):
    """The URL by which other hosts reach the run, once it is launched."""
    _ = run.record
    return RunRecord.read(run.run_dir / "run.json").redis_url


def updates(run):
    """Updates of the run as an operator's command on this host sees them, by the directory alone."""
    command = [sys.executable, "-m", "distrl", "status", str(run.run_dir), "--json"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    return int(json.loads(done.stdout)["snapshot"].get("updates") or 0) if done.returncode == 0 else 0


def test_actors_follow_the_run_to_another_host_and_end_with_it(network, train, tmp_path):
    learners = [network.host(name) for name in ("learner1", "learner2")]
    run = train(learners[0])
    assert f"//{learners[0].address}:" in address(run)
    told = tmp_path / "actors.out"
    actors = act(run, network.host("actors"), told, "--wait")
    wait_until(lambda: updates(run) >= 20, "the run learns from them")

    # The manager wants the host back: it sends SIGTERM to all processes there, also to redis-server and its guardian.
    parent = psutil.Process(run.process.pid)
    for process in [*parent.children(recursive=True), parent]:
        if process.name() not in ("nsenter", "env"):
            process.send_signal(signal.SIGTERM)
    first = run.finish()
    assert (first.stop_reason, first.exit_code, first.imbalance, first.lost) == ("SIGTERM", 0, 0, 0)
    assert INTERRUPTS[signal.SIGTERM] == (first.exit_code, first.stop_reason)
    assert actors.poll() is None
    wait_until(lambda: "waiting: the launch in " in told.read_text(), "they wait for the next launch")

    again = train(learners[1], "--resume", "auto")
    wait_until(lambda: f"//{learners[1].address}:" in address(again), "the next launch has its address")
    wait_until(lambda: updates(again) >= first.updates + 20, "the next launch learns from the same actors")
    stop = [sys.executable, "-m", "distrl", "stop", str(run.run_dir)]
    subprocess.run(stop, env=environment(), check=True, capture_output=True)
    last = again.finish()
    assert (last.exit_code, last.imbalance, last.resumed_updates) == (0, 0, first.updates)
    assert actors.wait(WAIT_S) == 0
    assert told.read_text().count("joined run") == 2


def test_a_learners_host_that_loses_power_is_followed_by_the_next(network, train, tmp_path):
    host = network.host("learner1")
    run = train(host)
    told = tmp_path / "actors.out"
    actors = act(run, network.host("actors"), told, "--wait")
    wait_until(lambda: updates(run) >= 10, "the run learns from them")
    network.lose_power(host)
    again = train(network.host("learner2"), "--resume", "auto")
    wait_until(lambda: again.process.poll() is not None or "resuming" in again.told, "it is launched again")
    wait_until(lambda: "was launched again" in told.read_text(), "the actors notice")
    resumed = updates(again)
    wait_until(lambda: updates(again) >= resumed + 10, "the next launch learns from the same actors")
    again.process.send_signal(signal.SIGKILL)
    actors.terminate()


def test_another_user_neither_reads_the_password_nor_connects(network, train, tmp_path):
    run = train(network.host("learner"))
    host, port = address(run).split("?")[0].removeprefix("redis://").split(":")
    assert host != "0.0.0.0"
    password = (run.run_dir / "redis.password").read_text().strip()
    read = ["setpriv", f"--reuid={STRANGER}", "--clear-groups", "cat", str(run.run_dir / "redis.password")]
    os.chmod(tmp_path, 0o755)
    done = subprocess.run(read, capture_output=True, text=True)
    assert (done.returncode, "Permission denied" in done.stderr) == (1, True)
    with redis.Redis(host=host, port=int(port)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    for process in psutil.process_iter(["cmdline", "name"]):
        assert password not in " ".join(process.info["cmdline"] or [])
    for path in run.run_dir.rglob("*"):
        assert path.is_dir() or path.name == "redis.password" or password.encode() not in path.read_bytes(), path
