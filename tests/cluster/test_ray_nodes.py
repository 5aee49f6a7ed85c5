"""A training over the nodes of a Ray cluster: nodes are lost, added and too few, and everything stays accounted for."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from tests.faults.arguments import environment, sets
from tests.faults.hosts import REDIS_PORT
from tests.faults.ray_cluster import ClusterOfHosts, LocalCluster
from tests.faults.s3_server import S3Server
from tests.faults.training import Run

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.ray, pytest.mark.row("S19")]

ENDLESS = [
    *("--preset", "cartpole-impala", "--env", "benchmarks.sleeping:Sleeping"),
    *sets("environment.kwargs={step_s: 0.005}", "actors.environments=1", "actors.unroll_length_steps=8"),
    *sets("algorithm.minibatches=1", "stop.mean_return=null", "stop.env_steps=null"),
]


STATES = {  # place of a run's state -> what a learner on another node logs about it
    "shared directory": r"restored ckpt-(\d+)",
    "data store": r"restored ckpt-(\d+)",
    "published weights": r"goes on from the published weights \(version \d+, update (\d+)\)",
}


@pytest.fixture
def store(network, free_port, tmp_path, monkeypatch):
    """Return a data store that all hosts reach; hosts that start later have its credentials."""
    server = S3Server(tmp_path / "s3", free_port, address=network.address)
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


@pytest.fixture(params=STATES)
def state(request):
    """Return a place of a run's state, and its data store if that is the place; made before the cluster."""
    return request.param, request.getfixturevalue("store") if request.param == "data store" else None


@pytest.fixture
def cluster(network, free_port, tmp_path):
    """A Ray cluster over hosts of their own, each with its own folder `disk`; the driver's host takes no role."""
    disk = tmp_path / "disk"
    disk.mkdir()
    started = ClusterOfHosts(network.host("head"), free_port, disk)
    yield started
    network.close()
    started.clean()


@pytest.fixture
def nodes(cluster, network):
    """Name -> host of three nodes, each with room for two roles."""
    found = {name: network.host(name) for name in ("one", "two", "three")}
    for host in found.values():
        cluster.add(host, cpus=2)
    return found


@pytest.fixture
def start_run(cluster, nodes, redis_host, tmp_path):
    """Start a training with a learner and three actors, whose parent is on the head's host."""
    runs = []

    def start(*arguments, folder="disk"):
        where = ["--launcher", "ray", "--ray-address", cluster.address, "--actors", "3"]
        where += ["--redis-url", f"redis://{redis_host.address}:{REDIS_PORT}"]
        prefix = cluster.head.enter("env", "-C", str(tmp_path))
        (tmp_path / folder).mkdir(exist_ok=True)
        run = Run(tmp_path / folder / "run", *ENDLESS, *where, *arguments, cwd=tmp_path, prefix=prefix)
        if folder == "disk":
            run.run_dir = cluster.files(cluster.head) / "run"
        runs.append(run)
        run.wait_for_updates(20)
        run.wait_until(lambda: len(at_work(run)) == 4, "every role is at work")
        return run

    yield start
    for run in runs:
        run.end()


def at_work(run):
    """Return (kind, id) -> host of the roles that train or act."""
    roles = run.backend.registry.roles()
    return {(role.role, role.id): role.host for role in roles if role.state in ("training", "acting")}


def all_work_elsewhere(run, lost):
    places = at_work(run)
    return len(places) == 4 and lost not in places.values()


def stop(run):
    run.backend.registry.set_control(stop="asked")
    summary = run.finish()
    assert (summary.exit_code, summary.error, summary.imbalance, summary.foreign) == (0, None, 0, 0)
    return summary


@pytest.mark.usefixtures("needs_hosts")
def test_a_lost_node_s_actors_are_back_elsewhere_and_an_added_node_is_used(start_run, network, nodes, cluster):
    run = start_run()
    places = at_work(run)
    assert set(places.values()) == {"one", "two", "three"}  # four roles, and room for two on each
    acts = next(host for (kind, _), host in places.items() if kind == "actor" and host != places["learner", 0])
    network.lose_power(nodes[acts])
    run.wait_until(lambda: all_work_elsewhere(run, acts), "the actors of the lost node are back elsewhere")

    cluster.add(network.host("four"), cpus=3)
    run.backend.registry.set_control(target_actors=5, target_forced=False)
    run.wait_until(lambda: len(at_work(run)) == 6, "every actor has a place")
    assert "four" in at_work(run).values()

    summary = stop(run)
    assert summary.restarts >= 1
    for role in ("learner", "actor-0"):  # the hosts of the roles do not share the directory
        lines = (run.run_dir / "logs" / f"{role}.log").read_text().splitlines()
        assert lines
        assert len(set(lines)) == len(lines)


@pytest.mark.usefixtures("needs_hosts")
def test_a_learner_whose_node_is_lost_goes_on_elsewhere(state, start_run, network, nodes):
    place, store = state
    constant = sets("network.learning_rate_decay_rate=0", "network.learning_rate_decay_steps=0")  # nothing but weights
    stored = [] if store is None else sets(f"checkpoint.store={store.url}")
    run = start_run(*constant, *stored, folder="shared" if place == "shared directory" else "disk")
    if place == "shared directory":
        run.wait_until(lambda: list(run.run_dir.glob("checkpoints/ckpt-*")), "a checkpoint")
    if store is not None:
        run.wait_until(lambda: store.has_checkpoint(run.record["run_id"]), "a checkpoint in the store")
    lost, updates = at_work(run)["learner", 0], run.updates
    network.lose_power(nodes[lost])
    ended = run.process.poll
    run.wait_until(lambda: all_work_elsewhere(run, lost) or ended() is not None, "every role is back elsewhere")
    run.wait_until(lambda: run.updates > updates or ended() is not None, "it has learned more than before")
    assert ended() is None, run.told

    summary = stop(run)
    assert summary.restarts >= 1
    log = (run.run_dir / "logs" / "learner.log").read_text()
    (began,) = {*re.findall(STATES[place], run.told + log)}
    assert 0 < int(began) < summary.updates
    if place == "published weights":
        assert int(began) >= updates
        assert summary.rolled_back == 0


@pytest.fixture
def refused(tmp_path, redis_url):
    """Return the error of a training that is refused before it starts, and that leaves nothing behind."""

    def command(address, *arguments, **variables):
        where = ["--launcher", "ray", "--ray-address", address, "--redis-url", redis_url]
        run_dir = tmp_path / "run"
        distrl = [sys.executable, "-m", "distrl", "train", "--plain", "--run-dir", str(run_dir)]
        known = environment(**variables)
        done = subprocess.run(
            [*distrl, *ENDLESS, *where, *arguments],
            cwd=tmp_path,  # Ray's workers import from it, too
            env=known,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2, done.stderr
        assert not run_dir.exists()
        (line,) = [line for line in done.stderr.splitlines() if line.strip()]
        return line

    return command


def test_too_small_a_cluster_is_refused_with_numbers(free_port, tmp_path, refused):
    cluster = LocalCluster(free_port, tmp_path / "ray.log", variables=environment())
    try:
        assert (
            f"Ray at {cluster.address} is too small for all roles at once: it needs 63 CPU (learner 3, 60 actors of "
            "1), the cluster has 8, its largest node 8; lower actors.count or learner.threads"
        ) in refused(cluster.address, "--actors", "60", *sets("learner.threads=3"))
        assert "and at most 0 GPU on a node" in refused(cluster.address, *sets("learner.device=gpu"))
    finally:
        cluster.end()


def test_another_version_on_a_node_is_one_line_that_names_both(free_port, tmp_path, refused):
    package = Path(distrl.__file__).parent
    shutil.copytree(package, tmp_path / "other" / "distrl", ignore=shutil.ignore_patterns("__pycache__"))
    version = tmp_path / "other" / "distrl" / "version.py"
    version.write_text(version.read_text().replace(f'__version__ = "{distrl.__version__}"', '__version__ = "0.0.1"'))
    known = environment(PYTHONPATH=f"{tmp_path / 'other'}:{package.parent}")
    cluster = LocalCluster(free_port, tmp_path / "ray.log", variables=known)
    try:
        line = refused(cluster.address)
        assert f"has distrl 0.0.1, this host has {distrl.__version__}; use the same versions on all nodes" in line
    finally:
        cluster.end()


def test_a_wrong_token_is_one_line(free_port, tmp_path, refused):
    right = environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 64)
    cluster = LocalCluster(free_port, tmp_path / "ray.log", variables=right)
    try:
        for wrong in ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "b" * 64}, {}):
            assert f"Ray at {cluster.address} refuses this host's token" in refused(cluster.address, **wrong)
    finally:
        cluster.end()


def test_an_address_without_a_cluster_is_one_line(free_port, refused):
    assert f"Ray at 127.0.0.1:{free_port}" in refused(f"127.0.0.1:{free_port}")
