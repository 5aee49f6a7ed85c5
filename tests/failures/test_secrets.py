"""A password of Redis is in the environment alone: in no file, command line or key, and in nothing that is shown."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.faults.arguments import environment
from tests.faults.tls_redis import PASSWORD, Authority, TlsRedis

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def places(folders):
    """Command lines of all processes and files below `folders` that hold the password."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if PASSWORD.encode() in file.read_bytes():
                found.append(file)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found + [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.name != "password" and PASSWORD.encode() in path.read_bytes()
    ]


def without_password(**variables):
    kept = {name: value for name, value in environment().items() if not name.startswith("DISTRL_REDIS")}
    return kept | variables


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Redis with TLS and a password, which this process knows."""
    authority = Authority(tmp_path / "authority")
    started = TlsRedis(authority, authority.sign("server"))
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", PASSWORD)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "password").chmod(0o600)
    yield started
    started.stop()


def status(run, **variables):
    command = [sys.executable, "-m", "distrl", "status", str(run.run_dir)]
    return subprocess.run(
        command, env=without_password(**variables), capture_output=True, text=True, cwd=run.run_dir.parent, timeout=100
    )


def test_a_password_of_redis_is_nowhere_but_in_the_environment(start_run, unhurried, server, tmp_path):
    url = server.url.replace("://", f"://default:{PASSWORD}@")
    tls = ("--set", "memory.tls.ca_file=authority/authority.crt")  # relative, where all roles are elsewhere later
    run = start_run(*unhurried, *tls, env=without_password(DISTRL_REDIS_URL=url))
    run.wait_for_updates(2)
    assert run.record["redis_url"].startswith(f"rediss://default@localhost:{server.port}/0?ca_file=/")
    text = repr(run.backend.engine.call("HGETALL", run.backend._run.keys.run))
    assert "rediss://" in text
    assert PASSWORD not in text
    assert places([tmp_path]) == []

    stranger = status(run)
    assert (stranger.returncode, stranger.stdout) == (6, "")
    (line,) = stranger.stderr.splitlines()
    assert "refuses the login" in line
    assert "DISTRL_REDIS_PASSWORD" in line
    assert "training" in status(run, DISTRL_REDIS_PASSWORD_FILE=str(tmp_path / "password")).stdout
    run.process.terminate()
    assert run.finish().exit_code == 0
    assert places([tmp_path]) == []


@pytest.mark.ray
@pytest.mark.long
def test_nor_does_a_ray_cluster_that_is_joined_keep_it(start_run, unhurried, server, free_port, tmp_path):
    pytest.importorskip("ray")
    directory = Path(f"/tmp/ray-{free_port}")  # Ray's sockets lie in it, whose paths must be short
    options = [f"--port={free_port}", "--num-cpus=8", "--include-dashboard=false", f"--temp-dir={directory}"]
    ray = str(Path(sys.executable).parent / "ray")
    command = [ray, "start", "--head", "--block", "--disable-usage-stats", *options]
    with (tmp_path / "ray.log").open("wb") as log:
        head = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=without_password())
    try:
        deadline = time.monotonic() + 60
        while b"--block" not in (tmp_path / "ray.log").read_bytes() and time.monotonic() < deadline:
            time.sleep(0.2)
        where = ["--launcher", "ray", "--ray-address", f"127.0.0.1:{free_port}"]
        redis = ["--redis-url", f"{server.url}?ca_file={tmp_path}/authority/authority.crt"]
        known = without_password(DISTRL_REDIS_PASSWORD_FILE=str(tmp_path / "password"))
        run = start_run(*unhurried, *where, *redis, env=known)
        run.wait_for_updates(2)
        key = (run.run_dir / "run.key").read_bytes().strip()
        assert places([tmp_path, directory]) == []
        assert [path for path in directory.rglob("*") if path.is_file() and key in path.read_bytes()] == []
        run.process.terminate()
        assert run.finish().exit_code == 0
        assert places([tmp_path, directory]) == []
    finally:
        processes = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        head.wait(30)
        for process in psutil.wait_procs(processes, 10)[1]:
            process.kill()
        shutil.rmtree(directory, ignore_errors=True)
