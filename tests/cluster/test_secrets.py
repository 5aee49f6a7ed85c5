"""Secrets of a run are where neither another user of the machine nor a Ray cluster's own files show them."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.faults.arguments import sets
from tests.faults.ray_cluster import LocalCluster
from tests.faults.tls_redis import PASSWORD, Authority, TlsRedis, places_of_password, without_password
from tests.faults.training import Run

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.row("S08")]

STRANGER = 65534
"""Number of a user and a group that own nothing here."""

ENDLESS = [
    *("--preset", "cartpole-impala", "--env", "benchmarks.sleeping:Sleeping"),
    *sets("environment.kwargs={step_s: 0.005}", "actors.environments=1", "actors.unroll_length_steps=8"),
    *sets("algorithm.minibatches=1", "stop.mean_return=null", "stop.env_steps=null"),
]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Redis with TLS and a password, which this process knows."""
    authority = Authority(tmp_path / "authority")
    started = TlsRedis(authority, authority.sign("server"))
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", PASSWORD)
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o600)
    yield started
    started.stop()


@pytest.fixture
def cluster(free_port, tmp_path):
    """A Ray cluster that knows no password."""
    pytest.importorskip("ray")
    started = LocalCluster(free_port, tmp_path / "ray.log", variables=without_password())
    yield started
    started.end()


@pytest.mark.ray
def test_a_ray_cluster_keeps_neither_password_nor_key(cluster, server, tmp_path):
    directory = cluster.directory
    url = f"{server.url}?ca_file={tmp_path}/authority/authority.crt"
    where = ["--launcher", "ray", "--ray-address", cluster.address, "--redis-url", url]
    known = without_password(DISTRL_REDIS_PASSWORD_FILE=str(tmp_path / "password"))
    run = Run(tmp_path / "run", *ENDLESS, *where, cwd=tmp_path, env=known)
    try:
        run.wait_for_updates(2)
        key = (run.run_dir / "run.key").read_bytes().strip()
        assert places_of_password([tmp_path, directory]) == []
        assert [path for path in directory.rglob("*") if path.is_file() and key in path.read_bytes()] == []
        run.process.terminate()
        assert run.finish().exit_code == 0
        assert places_of_password([tmp_path, directory]) == []
    finally:
        run.end()


def readable(*paths, word="", **user):
    """Return the files below `paths` that a user can read and that hold a word, which is on no command line."""
    command = ["grep", "--files-with-matches", "--no-messages", "--text", "--fixed-strings", "--file=-", "--recursive"]
    found = subprocess.run([*command, *map(str, paths)], input=word, stdout=subprocess.PIPE, text=True, **user).stdout
    return {Path(line) for line in found.splitlines()}


def test_another_user_of_the_machine_reads_no_secret(server, tmp_path):
    if os.geteuid() != 0:
        pytest.skip(f"only root can act as another user, and this is uid {os.geteuid()}: sudo make cluster")
    stranger = {"user": STRANGER, "group": STRANGER, "extra_groups": []}
    with tempfile.TemporaryDirectory() as open_to_all:  # pytest's own folders are closed to others
        os.chmod(open_to_all, 0o755)
        trusted = sets(f"memory.tls.ca_file={tmp_path}/authority/authority.crt")
        known = without_password(DISTRL_REDIS_PASSWORD=PASSWORD)
        run = Run(Path(open_to_all, "run"), *ENDLESS, *trusted, "--redis-url", server.url, cwd=tmp_path, env=known)
        try:
            run.wait_for_updates(2)
            key = (run.run_dir / "run.key").read_text().strip()
            own = Path(f"/proc/{run.process.pid}/environ")
            assert readable(own, word=PASSWORD) == {own}  # as the same user, whom nothing separates from it
            lines = [path for path in Path("/proc").glob("[0-9]*/*") if path.name in ("environ", "cmdline")]
            for secret in (PASSWORD, key):
                assert readable(*lines, open_to_all, word=secret, **stranger) == set()
            seen = readable(open_to_all, word="\n", **stranger)
            assert seen
            assert not {path.name for path in seen} & {"run.key", "run.json", "config.yaml"}
            run.process.terminate()
            assert run.finish().exit_code == 0
        finally:
            run.end()
