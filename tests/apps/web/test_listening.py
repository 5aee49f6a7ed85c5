import socket

import pytest

from distrl.apps.web import listening as module
from distrl.apps.web.listening import address_of, listen, url_of
from distrl.errors import ConfigError


def test_a_port_that_is_named(free_port):
    with listen("127.0.0.1", free_port) as listening:
        assert url_of(listening) == f"http://127.0.0.1:{free_port}/"
        with pytest.raises(ConfigError, match=f"port {free_port} of 127.0.0.1 is taken; name another with --port"):
            listen("127.0.0.1", free_port)


def test_the_next_that_is_free(free_port, monkeypatch):
    monkeypatch.setattr(module, "PORTS_TRIED", 2)
    with listen("127.0.0.1", None, free_port) as first:
        assert url_of(first) == f"http://127.0.0.1:{free_port}/"
        with socket.create_server(("127.0.0.1", free_port + 1)), pytest.raises(ConfigError, match="are taken"):
            listen("127.0.0.1", None, free_port)


def test_a_host_of_others():
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0"):
        listen("192.0.2.1", 0)
    with pytest.raises(ConfigError, match="cannot listen on no such host:0"):
        listen("no such host", 0)


def test_all_interfaces_are_reached_by_loopback():
    with listen("0.0.0.0", 0) as listening:
        assert url_of(listening).startswith("http://127.0.0.1:")


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", None), ("::1", "[::1]")])
def test_an_address_for_other_hosts(host, shown):
    with listen(host, 0) as listening:
        assert address_of(listening) == f"{shown or socket.gethostname()}:{listening.getsockname()[1]}"
