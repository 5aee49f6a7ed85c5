import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from subprocess import PIPE

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from distrl.apps.commands.main import main
from distrl.config.secrets import PASSWORD_FILE_VARIABLE
from distrl.memory_backend.access import ROLES, users
from distrl.memory_backend.backend import connect_engine
from distrl.memory_backend.embedded_redis import EmbeddedRedis, find_server
from tests.faults.acl_users import add_user
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("version", "weaker"), [("7", False), ("6.2", True)])
def test_the_users_are_lines_of_an_acl_file_and_the_notes_are_not(capsys, version, weaker):
    assert main(["redis", "acl", "--namespace", "team-a", "--redis", version]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == list(users("team-a", version).values())
    assert "add #<sha256 of the password as hex> at the end of each line" in err
    assert "None of them may change users: make one that may." in err
    assert ("cannot limit a command" in err) == weaker


def test_an_unknown_version_is_refused(capsys):
    assert main(["redis", "acl", "--redis", "5"]) == 2
    assert "--redis 5 is not known; use one of 6.2, 7" in capsys.readouterr().err


def blocks(page, heading):
    """Return the blocks of commands of one section of a page."""
    section = (ROOT / page).read_text().split(f"\n### {heading}\n")[1].split("\n#")[0]
    return re.findall(r"^```[^\n]*\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def socket(monkeypatch):
    """Path of a server's socket."""
    for name in [name for name in os.environ if name.startswith("DISTRL_REDIS")]:
        monkeypatch.delenv(name)
    with EmbeddedRedis.start(maxmemory_bytes=2**26, max_bulk_bytes=2**24) as started:
        yield started.url.removeprefix("unix://")


@pytest.fixture
def environment(tmp_path, socket):
    """Environment of a shell whose `distrl` prints the users of team-a, and whose `redis-cli` reaches the server."""
    client = shutil.which("redis-cli") or pytest.skip("no redis-cli")
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{line}\n" for line in users("team-a", "7").values()))
    programs = {
        "distrl": f'[ "$*" = "redis acl --namespace team-a" ] && cat {lines}',
        "redis-cli": f'[ "$1" = -h ] && shift 2\nexec {client} -s {socket} "$@"',
    }
    for name, program in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.fixture
def shell(tmp_path, environment):
    """Run commands of a page in the directory of the test; return what they print."""

    def run(text):
        command = ["bash", "-euo", "pipefail", "-c", text]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=PIPE, text=True).stdout

    return run


def logged_in(path, role):
    """Log in as the user of a role, whose password is in the file of the variable."""
    engine = connect_engine(f"unix://distrl-team-a-{role}@{path}", name="test", give_up_s=5.0)
    try:
        assert engine.call("PING")
    finally:
        engine.close()


@pytest.fixture
def acl_file(tmp_path, monkeypatch):
    """A function that starts a server with a file of users, and returns its socket."""
    started = []

    def start(file):
        path = tmp_path / "acl.sock"
        settings = ["--port", "0", "--unixsocket", path, "--aclfile", file, "--save", ""]
        started.append(subprocess.Popen([find_server(), *settings], stdout=subprocess.DEVNULL))
        wait_until(path.exists, "the server listens")
        return path

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.redis
def test_users_are_made_as_the_page_says(socket, shell, acl_file, tmp_path, monkeypatch):
    make, load, _ = blocks("docs/cluster.md", "Users")
    shell(make)
    passwords = {role: tmp_path / f"{role}.password" for role in ROLES}
    admins = tmp_path / "admin.password"
    assert {stat.S_IMODE(file.stat().st_mode) for file in (*passwords.values(), admins)} == {0o600}
    assert shell(load).split() == ["OK"] * (len(ROLES) + 2)
    for path in (socket, acl_file(tmp_path / "users.acl")):
        for role, file in passwords.items():
            monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(file))
            logged_in(path, role)
        stranger = redis.Redis(unix_socket_path=str(path), retry=Retry(NoBackoff(), 0))
        with stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        name, password = "admin", admins.read_text().strip()
        with redis.Redis(unix_socket_path=str(path), username=name, password=password) as admin:
            assert admin.acl_setuser("another", enabled=False)  # one user may still change the others


@pytest.mark.redis
def test_a_password_is_changed_as_the_page_says_while_a_role_runs(socket, environment, tmp_path, monkeypatch):
    file = tmp_path / "actor.password"
    file.write_text("first\n")
    file.chmod(0o600)
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(file))
    with redis.Redis(unix_socket_path=socket) as admin:
        add_user(admin, users("team-a", "7")["actor"], "first")
        add_user(admin, "user admin reset on +@all ~* &*", "of-admin")
        admin.acl_setuser("default", enabled=False)
        (change,) = blocks("SECURITY.md", "Change a password")
        lines = ["set -o history -o histexpand", *change.splitlines()]  # as where a user types them
        known = environment | {"REDISCLI_AUTH": "of-admin"}
        with subprocess.Popen(["bash", "-eu"], cwd=tmp_path, env=known, stdin=PIPE, stdout=PIPE, text=True) as shell:
            for line in lines:
                shell.stdin.write(f"{line}\necho ready\n")
                shell.stdin.flush()
                assert "ready\n" in iter(shell.stdout.readline, "")
                logged_in(socket, "actor")  # at every step
            shell.stdin.close()
        assert shell.returncode == 0
        assert file.read_text() != "first\n"
        assert len(admin.acl_getuser("distrl-team-a-actor")["passwords"]) == 1
