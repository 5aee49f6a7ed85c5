"""A host that only learns, without the environment, and actors that join it: how they come, die and leave."""

import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distrl.memory_backend.keys import FIRST_JOINED
from tests.faults.arguments import environment, sets
from tests.faults.own_redis import OwnRedis
from tests.faults.training import WAIT_S, Run, alive
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.row("S09")]

ENVIRONMENT = """
from benchmarks.sleeping import Sleeping

class Away(Sleeping):
    pass
"""


RUN_ID = "away"


class Actors:
    """One `distrl actors` in a process of its own, on a host that has the environment."""

    def __init__(self, folder: Path, redis_url: str, key: Path, *arguments: str) -> None:
        self._output = folder / f"{uuid.uuid4().hex}.out"
        command = [sys.executable, "-m", "distrl", "actors", "--redis-url", redis_url, "--run-id", RUN_ID, *arguments]
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--log-dir", "logs"],
                cwd=folder,
                env=environment(DISTRL_RUN_KEY_FILE=str(key)),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def told(self) -> str:
        return self._output.read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path, free_port: int) -> Iterator[OwnRedis]:
    server = OwnRedis(tmp_path / "redis", free_port).start()
    yield server
    server.end()


@pytest.fixture
def train(tmp_path: Path, server: OwnRedis) -> Iterator[Callable[..., Run]]:
    """Starts the training on a host that starts no actors and cannot import the environment."""
    host, actors, runs = tmp_path / "learner", tmp_path / "actors", []
    host.mkdir()
    actors.mkdir()
    (actors / "away.py").write_text(ENVIRONMENT)
    kwargs = ["--env", "away:Away", "--set", "environment.kwargs={step_s: 0.005}"]
    check = [sys.executable, "-m", "distrl", "env", "check", "--json", *kwargs]
    spec = subprocess.run(check, cwd=actors, env=environment(), capture_output=True, text=True, check=True).stdout
    (host / "spec.json").write_text(spec)
    shape = sets("actors.count=2", "actors.environments=1", "actors.unroll_length_steps=8", "learner.batch_size=1")
    here = ["--no-actors", "--redis-url", server.url, *sets("environment.spec_file=spec.json")]

    def start(*arguments: str) -> Run:
        runs.append(Run(host / "run", *kwargs, *shape, *here, *arguments, cwd=host))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


@pytest.fixture
def learner_host(train: Callable[..., Run]) -> Run:
    run = train("--run-id", RUN_ID)
    assert run.record["run_id"] == RUN_ID
    return run


@pytest.fixture
def join(train: Callable[..., Run], server: OwnRedis, tmp_path: Path) -> Iterator[Callable[..., Actors]]:
    started: list[Actors] = []

    def start(*arguments: str, key: Path | None = None) -> Actors:
        shared = tmp_path / "learner" / "run" / "run.key"  # on a file system that hosts share
        started.append(Actors(tmp_path / "actors", server.url, key or shared, *arguments))
        return started[-1]

    yield start
    for actors in started:
        actors.end()


def act(run: Run, *ids: int) -> bool:
    states = {status.id: status.state for status in run.backend.registry.roles() if status.role == "actor"}
    return states.keys() == set(ids) and set(states.values()) <= {"acting", "waiting: room"}


def test_actors_join_die_and_leave_and_the_accounts_are_exact(learner_host, join, tmp_path):
    run, first, second, third = learner_host, *range(FIRST_JOINED, FIRST_JOINED + 3)
    wait_until(lambda: "no actor is there: waiting until actors join" in run.told, "the learner's host waits")
    command = r"in place of this host's own: distrl actors --redis-url redis://\S+ "
    assert re.search(rf"no actors here; on their hosts, .*run\.key .*{command}", run.told)

    staying, leaving = join("--count", "2"), join("--count", "1")
    wait_until(lambda: act(run, first, second, third), "three actors act")
    by_parent = {status.id: status.pid for status in run.backend.registry.roles() if status.role == "actor"}
    of_leaving = int(re.search(r"actor-(\d+)", " ".join(sorted(os.listdir(tmp_path / "actors" / "logs"))))[1])
    assert of_leaving == first  # logs of this host, by the ids of the run

    taken = [sys.executable, "-m", "distrl", "actor", "--redis-url", run.record["redis_url"], "--id", str(first)]
    refused = subprocess.run(
        [*taken, "--run-id", run.record["run_id"]],
        cwd=tmp_path / "actors",
        env=environment(**run.key),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert refused.returncode == 2
    assert f"has actor {first}, process {by_parent[first]} on " in refused.stderr

    os.kill(by_parent[first], signal.SIGKILL)
    wait_until(lambda: f"actor {first} ended (signal 9); starting again" in staying.told + leaving.told, "it is told")
    wait_until(lambda: act(run, first, second, third) and run.role("actor", first).incarnation == 2, "it is back")

    leaving.process.terminate()
    assert leaving.process.wait(WAIT_S) == 0
    assert "every actor delivers the unroll that it has begun" in leaving.told
    left = {first, second, third} - {status.id for status in run.backend.registry.roles() if status.role == "actor"}
    assert len(left) == 1
    assert not alive(by_parent[left.pop()])

    run.process.terminate()
    summary = run.finish()
    assert staying.process.wait(WAIT_S) == 0
    assert "the run ends: SIGTERM" in staying.told
    assert (summary.exit_code, summary.imbalance, summary.lost, summary.restarts) == (0, 0, 0, 0)
    assert summary.updates > 0
    assert not any(map(alive, by_parent.values()))


def test_a_host_without_the_environment_ends_with_2_and_the_run_goes_on(learner_host, join, tmp_path):
    (tmp_path / "actors" / "away.py").unlink()
    actors = join("--count", "2")
    assert actors.process.wait(WAIT_S) == 2
    assert re.search(r"distrl: error: actor 1000\d: environment away:Away: module 'away' cannot be imp", actors.told)
    assert learner_host.process.poll() is None


def test_actors_whose_parent_is_killed_end_by_themselves(learner_host, join):
    actors = join("--count", "1")
    wait_until(lambda: act(learner_host, FIRST_JOINED), "it acts")
    pid = learner_host.role("actor", FIRST_JOINED).pid
    actors.process.kill()
    wait_until(lambda: not alive(pid), "it ends")


def test_actors_that_came_first_wait_for_the_run_and_for_its_next_launch_and_their_keys(train, join, server, tmp_path):
    copy = tmp_path / "actors" / "run.key"
    waiting = join("--count", "1", "--wait", key=copy)
    wait_until(lambda: f"waiting: no run {RUN_ID} at {server.url}" in waiting.told, "they wait")
    run = train("--run-id", RUN_ID)
    wait_until(lambda: f"waiting: DISTRL_RUN_KEY_FILE {copy} cannot be read" in waiting.told, "they need its key")
    shutil.copy(run.run_dir / "run.key", copy)
    wait_until(lambda: act(run, FIRST_JOINED), "it acts")
    run.wait_for_updates(3)
    os.killpg(run.process.pid, signal.SIGKILL)  # supervisor and learner: the host has lost power
    again = train("--resume", str(run.run_dir))
    wait_until(lambda: "was launched again" in waiting.told, "they notice")
    wait_until(lambda: "does not have its signature" in waiting.told, "their key is the first launch's")
    shutil.copy(run.run_dir / "run.key", copy)
    wait_until(lambda: again.record["pid"] == again.process.pid and again.updates > 3, "they make it learn again")
    again.process.terminate()
    summary = again.finish()
    assert (summary.exit_code, summary.imbalance, summary.lost) == (0, 0, 0)
    assert waiting.process.wait(WAIT_S) == 0
    assert waiting.told.count("joined run") == 2
