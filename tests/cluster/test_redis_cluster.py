"""A training over a Redis Cluster, whose slots move from node to node and whose nodes die under it."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrl.memory_backend.backend import connect_engine
from distrl.memory_backend.keys import RunKeys
from tests.faults.arguments import environment, sets
from tests.faults.redis_cluster import NODES, RedisCluster
from tests.faults.training import Run
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.row("S04")]

SLEEPING = ["--env", "benchmarks.sleeping:Sleeping", "--set", "environment.kwargs={step_s: 0.002, features: 64}"]
SHAPE = sets("actors.count=2", "actors.environments=1", "actors.unroll_length_steps=8", "learner.batch_size=1")
CARTPOLE = ["--preset", "cartpole-impala", "--set", "stop.mean_return=null"]
BUSY = [*CARTPOLE, *sets("actors.environments=8", "actors.unroll_length_steps=8", "stop.env_steps=null")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path / "cluster")
    yield cluster
    cluster.close()


@pytest.fixture
def run(cluster: RedisCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    """A training over the Cluster, named by all of its nodes."""
    run = Run(tmp_path / "run", *request.param, "--redis-url", cluster.url, cwd=tmp_path)
    yield run
    run.end()


def slot_of(run: Run, cluster: RedisCluster) -> int:
    return cluster.slot_of(RunKeys(run.record["run_id"]).ledger)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distrl", *arguments], env=environment(), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("run", [BUSY], indirect=True)
def test_a_slot_that_moves_twice_under_load_costs_nothing(run, cluster):
    run.wait_for_updates(20)
    slot = slot_of(run, cluster)
    owners = [cluster.owner_of(slot)]
    learner = run.role("learner").pid
    for _ in range(2):
        owners.append(cluster.move(slot))
        there = run.updates
        run.wait_for_updates(there + 50)
    assert len(set(owners)) == NODES
    assert (cluster.owner_of(slot), cluster.moves) == (owners[-1], 2)
    actors = [role for role in run.backend.registry.roles() if role.role == "actor"]
    assert [role.incarnation for role in actors] == [1, 1]
    assert run.role("learner").pid == learner
    # A slot that moves takes all of its keys with it: nothing is lost, and no replica has taken over.
    counts = run.backend.ledger.counts()
    assert (counts.lost, counts.lost_to_failover, counts.failovers) == (0, 0, 0)
    assert command("stop", str(run.run_dir)).returncode == 0
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "asked", 0), run.told
    assert (summary.lost, summary.foreign) == (0, 0)
    assert {reason for reason, count in summary.dropped.items() if count} <= {"duplicate"}
    assert summary.restarts == 0


@pytest.mark.parametrize("run", [[*SLEEPING, *SHAPE]], indirect=True)
def test_a_replica_takes_over_from_a_killed_owner_and_the_training_goes_on(run, cluster):
    run.wait_for_updates(20)
    cluster.add_replicas()
    before = run.updates
    run.wait_for_updates(before + 20)
    assert run.backend.ledger.counts().failovers == 0
    learner, slot = run.role("learner").pid, slot_of(run, cluster)
    cluster.kill_owner_of(slot)
    killed = run.updates
    run.wait_for_updates(killed + 50)
    assert run.role("learner").pid == learner
    assert command("stop", str(run.run_dir)).returncode == 0
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "asked", 0), run.told
    assert (summary.failovers, summary.restarts, summary.foreign) == (1, 0, 0)
    assert summary.lost == summary.lost_to_failover


@pytest.mark.parametrize("run", [[*SLEEPING, *SHAPE]], indirect=True)
def test_the_dashboard_finds_a_run_on_every_node(run, cluster, tmp_path, free_port):
    run.wait_for_updates(3)
    slot = slot_of(run, cluster)
    empty = tmp_path / "empty"
    empty.mkdir()
    for _ in range(NODES):
        cluster.move(slot)
        arguments = ["dashboard", str(empty), "--port", str(free_port), "--redis-url", cluster.url]
        with subprocess.Popen(
            [sys.executable, "-m", "distrl", *arguments], stdout=subprocess.PIPE, text=True, env=environment()
        ) as dashboard:
            try:
                assert dashboard.stdout is not None
                (address,) = re.findall(r"http://\S+", dashboard.stdout.readline())
                wait_until(lambda address=address: [run.record["run_id"]] == listed(address), "the run is listed")
            finally:
                dashboard.terminate()
        done = command("runs", "--redis-url", cluster.url)
        assert run.record["run_id"] in done.stdout, done.stderr


@pytest.mark.parametrize("allowed", [True, False])
def test_keys_are_found_on_every_node(cluster, allowed):
    cluster.everywhere("ACL", "SETUSER", "viewer", "on", "nopass", "~*", "+@all", *(() if allowed else ("-cluster",)))
    keys = {RunKeys(f"run-{number}").run for number in range(12)}
    for key in keys:
        cluster.at_owner_of(cluster.slot_of(key), "SET", key, 1)
    assert len({cluster.owner_of(cluster.slot_of(key)) for key in keys}) == NODES
    engine = connect_engine(cluster.url.replace("://", "://viewer@"), name="test", give_up_s=5.0)
    try:
        assert sorted(engine.keys("distrl:default:*")) == sorted(keys)
    finally:
        engine.close()


def listed(address: str) -> list[str]:
    """Return the ids of the runs that the dashboard shows."""
    with urllib.request.urlopen(f"{address}api/runs", timeout=30) as answer:
        return [row["run_id"] for row in json.load(answer)["runs"]]


def test_keys_of_a_run_are_in_one_slot_of_a_real_cluster(cluster):
    keys = RunKeys("a.run-1", "team-a")
    names = [key for key in vars(keys).values() if key.startswith(keys.prefix)] + [keys.held((3, 1))]
    assert len({cluster.slot_of(key) for key in names}) == 1
    assert len({cluster.slot_of(RunKeys(f"run-{number}").run) for number in range(20)}) > NODES
