"""TLS and passwords where servers name other servers: Sentinels their master, a node of a Cluster the slot's owner.

The certificate is of the name localhost alone. tests/memory_backend/test_tls.py tests a single server.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrl.errors import MemoryBackendError, OutageError
from distrl.memory_backend.access import users
from distrl.memory_backend.backend import connect_engine
from distrl.memory_backend.engine import Engine
from distrl.memory_backend.keys import RunKeys
from tests.faults.acl_users import add_user
from tests.faults.arguments import sets
from tests.faults.redis_cluster import NODES, RedisCluster
from tests.faults.sentinel import SENTINEL_PASSWORD, Watched
from tests.faults.tls_redis import Authority, Peers
from tests.faults.training import Run

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.row("S05")]

SLEEPING = ["--env", "benchmarks.sleeping:Sleeping", "--set", "environment.kwargs={step_s: 0.002}"]
SHAPE = sets("actors.count=2", "actors.environments=1", "actors.unroll_length_steps=8", "learner.batch_size=1")
LEARNER, LEARNERS_PASSWORD = "distrl-default-learner", "of-the-learner"


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    return Peers(Authority(tmp_path / "authority"))


@pytest.fixture
def watched(tmp_path: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A master, replicas and Sentinels; this process knows the passwords of the learner's user and of the Sentinels."""
    servers = Watched(tmp_path / "servers", peers)
    servers.everywhere(lambda client: add_user(client, users("default", "7")["learner"], LEARNERS_PASSWORD))
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", LEARNERS_PASSWORD)
    monkeypatch.setenv("DISTRL_SENTINEL_PASSWORD", SENTINEL_PASSWORD)
    yield servers
    servers.close()


def train(tmp_path: Path, url: str) -> Run:
    return Run(tmp_path / "run", *SLEEPING, *SHAPE, "--redis-url", url, cwd=tmp_path)


def stop(run: Run) -> None:
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert (summary.exit_code, summary.imbalance, summary.restarts) == (0, 0, 0), run.told


def test_a_training_survives_a_fail_over(watched, peers, tmp_path):
    url = f"{watched.url.replace('://', f'://{LEARNER}@')}?ca_file={peers.authority.file}"
    run = train(tmp_path, url)
    try:
        run.wait_for_updates(20)
        watched.kill_master()
        run.wait_for_updates(run.updates + 50)
        assert run.backend.ledger.counts().failovers == watched.switches >= 1  # more if a busy server looks dead
        stop(run)
    finally:
        run.end()


def test_sentinels_refuse_in_one_line(watched, peers, monkeypatch):
    def refusal(url: str) -> str:
        with pytest.raises(MemoryBackendError) as caught:
            connect_engine(url, name="test", give_up_s=1.0)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    trusted = f"{watched.url}?ca_file={peers.authority.file}"
    (first, *_) = watched.sentinels
    assert "self-signed certificate" in refusal(watched.url)
    assert "name it by rediss://" in refusal(watched.url.replace("rediss", "redis"))
    assert "knows no master 'other'" in refusal(trusted.replace("mymaster", "other"))
    monkeypatch.setenv("DISTRL_SENTINEL_PASSWORD", "another")
    told = refusal(trusted)
    assert told.startswith(f"the Sentinel at localhost:{first} refuses: ")
    assert told.endswith("; check its port, sentinel_user and DISTRL_SENTINEL_PASSWORD")


def test_a_user_of_sentinels_needs_one_command(watched, peers, monkeypatch):
    for port in watched.sentinels:
        with peers.client(port, SENTINEL_PASSWORD) as sentinel:
            sentinel.execute_command(
                "ACL", "SETUSER", "looker", "on", ">of-looker", "+sentinel|get-master-addr-by-name"
            )
    monkeypatch.setenv("DISTRL_SENTINEL_PASSWORD", "of-looker")
    url = f"{watched.url.replace('://', f'://{LEARNER}@')}?sentinel_user=looker&ca_file={peers.authority.file}"
    engine = connect_engine(url, name="test", give_up_s=5.0)
    try:
        assert engine.call("PING")
    finally:
        engine.close()


@pytest.fixture
def cluster(
    tmp_path: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[RedisCluster]:
    """A Cluster that announces names, or the addresses of its nodes, which no certificate has."""
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", peers.password)
    cluster = RedisCluster(tmp_path / "cluster", peers, names=request.param)
    yield cluster
    cluster.close()


KEYS = [RunKeys(f"run-{number}").run for number in range(12)]


def write_all(engine: Engine) -> None:
    for key in KEYS:
        engine.call("HSET", key, "protocol", 3)


@pytest.mark.parametrize("cluster", [True], indirect=True)
def test_nodes_that_announce_names_are_followed(cluster, peers, tmp_path):
    url = f"{cluster.url}?ca_file={peers.authority.file}"
    engine = connect_engine(url, name="test", give_up_s=5.0)
    try:
        write_all(engine)
        assert len({cluster.owner_of(cluster.slot_of(key)) for key in KEYS}) == NODES
        assert sorted(engine.keys("distrl:default:*")) == sorted(KEYS)
    finally:
        engine.close()
    run = train(tmp_path, url)
    try:
        run.wait_for_updates(20)
        stop(run)
    finally:
        run.end()


@pytest.mark.parametrize("cluster", [False], indirect=True)
def test_a_node_is_not_trusted_under_an_address_that_its_certificate_does_not_name(cluster, peers):
    engine = connect_engine(f"{cluster.url}?ca_file={peers.authority.file}", name="test", give_up_s=1.0)
    try:
        with pytest.raises(OutageError) as caught:
            write_all(engine)
    finally:
        engine.close()
    told = str(caught.value)
    assert "certificate is not valid for '127.0.0.1'" in told
    assert told.endswith("where Sentinels or nodes of a Cluster announce their addresses")
