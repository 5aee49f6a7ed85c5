"""Passwords of Redis: from the environment alone, for the server that is meant alone."""

import os

import pytest
import redis

from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend import credentials
from distrl.memory_backend.backend import connect_engine
from distrl.memory_backend.embedded_redis import EmbeddedRedis

URL = "redis://me@host:6379/0"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Sets variables of the process; nothing else names a password."""
    for name in [name for name in os.environ if name.startswith(("DISTRL_REDIS", "DISTRL_SENTINEL"))]:
        monkeypatch.delenv(name)

    def give(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"DISTRL_{name}", str(value))

    return give


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "password"
    path.write_text("in a file\n")
    path.chmod(0o600)
    return path


def test_without_a_password():
    assert credentials.password(URL) is None
    assert credentials.sentinel_password() is None
    assert credentials.url_of_environment() is None
    assert credentials.carried(URL) == {}


def test_the_nearest_source_wins(environment, file):
    environment(REDIS_URL="redis://me:of%20the%20url@host:6379/1")
    assert credentials.password(URL) == "of the url"
    environment(REDIS_PASSWORD_FILE=file)
    assert credentials.password(URL) == "in a file"
    environment(REDIS_PASSWORD="of its own", SENTINEL_PASSWORD_FILE=file)
    assert credentials.password(URL) == "of its own"
    assert credentials.carried(URL) == {
        "DISTRL_REDIS_PASSWORD": "of its own",
        "DISTRL_SENTINEL_PASSWORD": "in a file",
    }
    assert credentials.url_of_environment() == "redis://me@host:6379/1"


def test_the_file_that_a_url_names_is_for_this_url_alone(environment, file):
    environment(REDIS_PASSWORD="of another server")
    assert credentials.password(f"{URL}?password_file={file}&namespace=a") == "in a file"
    assert credentials.password(f"unix:///r.sock?password_file={file}") == "in a file"
    assert credentials.password(URL) == "of another server"
    assert credentials.carried(f"{URL}?password_file={file}") == {"DISTRL_REDIS_PASSWORD": "in a file"}
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=f"others may read password_file {file}; chmod 600"):
        credentials.password(f"{URL}?password_file={file}")


@pytest.mark.row("S08")
@pytest.mark.parametrize(
    ("url", "is_meant"),
    [
        ("redis://me@host:6379/3?namespace=a", True),
        ("redis://me@elsewhere:6379/0", False),
        ("redis://host:6379/0", False),
        ("redis://you@host:6379/0", False),
        ("rediss://me@host:6379/0", False),
        ("unix://me@/host:6379", False),
    ],
)
def test_the_password_in_a_url_is_for_its_server_and_user_alone(environment, url, is_meant):
    environment(REDIS_URL="redis://me:secret@host:6379/0?namespace=b")
    assert credentials.password(url) == ("secret" if is_meant else None)


def test_a_socket_is_known_by_its_path(environment):
    environment(REDIS_URL="unix://:secret@/run/a.sock")
    assert credentials.password("unix:///run/a.sock?namespace=x") == "secret"
    assert credentials.password("unix:///run/b.sock") is None


@pytest.mark.row("S08")
def test_a_file_that_others_may_read(environment, file):
    environment(REDIS_PASSWORD_FILE=file)
    file.chmod(0o604)
    with pytest.raises(ConfigError) as caught:
        credentials.password(URL)
    assert str(caught.value) == f"others may read DISTRL_REDIS_PASSWORD_FILE {file}; chmod 600 {file}"


@pytest.mark.parametrize(
    ("content", "told"), [(None, "cannot be read"), (b"\n", "is empty"), (b"\xff", "cannot be read")]
)
def test_a_file_without_a_password(environment, file, content, told):
    environment(SENTINEL_PASSWORD_FILE=file)
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(ConfigError, match=told) as caught:
        credentials.sentinel_password()
    assert str(caught.value).startswith(f"DISTRL_SENTINEL_PASSWORD_FILE {file} ")
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def server():
    with EmbeddedRedis.start(maxmemory_bytes=2**26, max_bulk_bytes=2**24) as started:
        yield started


def logged_in(url):
    client = connect_engine(url, name="x", give_up_s=0.2)
    try:
        return client.call("ACL", "WHOAMI").decode()
    finally:
        client.close()


@pytest.mark.redis
def test_a_server_without_passwords_takes_any(server, environment):
    environment(REDIS_PASSWORD="for another one")
    assert logged_in(server.url) == "default"


@pytest.mark.redis
def test_a_password_that_changes_while_a_client_runs(server, environment, file):
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "ada", "on", ">first", "+@all", "~*")
        url = server.url.replace("://", "://ada@")
        with pytest.raises(MemoryBackendError, match="refuses the login"):
            logged_in(url)
        environment(REDIS_PASSWORD_FILE=file)
        file.write_text("first\n")
        client = connect_engine(url, name="x", give_up_s=0.2)
        admin.execute_command("ACL", "SETUSER", "ada", "resetpass", ">second")
        file.write_text("second\n")
        admin.execute_command("CLIENT", "KILL", "USER", "ada")
        assert client.call("ACL", "WHOAMI") == b"ada"
        client.close()


@pytest.mark.row("S08")
def test_a_url_with_a_password_is_refused():
    with pytest.raises(ConfigError, match="the Redis URL holds a password") as caught:
        connect_engine("redis://me:s3cret@host", name="x", give_up_s=0.2)
    assert "s3cret" not in str(caught.value)
