"""A password of Redis is in the environment alone: in no file, command line or key, and in nothing that is shown."""

import subprocess
import sys

import pytest

from tests.faults.tls_redis import PASSWORD, Authority, TlsRedis, places_of_password, without_password

pytestmark = [pytest.mark.slow, pytest.mark.redis]


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
    assert places_of_password([tmp_path]) == []

    stranger = status(run)
    assert (stranger.returncode, stranger.stdout) == (6, "")
    (line,) = stranger.stderr.splitlines()
    assert "refuses the login" in line
    assert "DISTRL_REDIS_PASSWORD" in line
    assert "training" in status(run, DISTRL_REDIS_PASSWORD_FILE=str(tmp_path / "password")).stdout
    run.process.terminate()
    assert run.finish().exit_code == 0
    assert places_of_password([tmp_path]) == []
