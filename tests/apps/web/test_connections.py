"""Clients that do not behave, on real sockets of a real server."""

import asyncio
import contextlib
import http.client
import socket
import threading
from types import SimpleNamespace

import pytest

from distrl.apps.dashboard import authentication
from distrl.apps.dashboard.server import make_server
from distrl.apps.web import connections as module
from distrl.apps.web.access import Access
from distrl.apps.web.listening import listen
from tests.waiting import PATIENCE_S, wait_until

TOKEN = "token-of-many-letters"


@pytest.fixture
def port(tmp_path, free_port):
    """The port of a server that wants a token."""
    server = make_server(tmp_path, Access("127.0.0.1", TOKEN))
    with listen("127.0.0.1", free_port) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield free_port
        server.should_exit = True
        thread.join(2 * PATIENCE_S)
        assert not thread.is_alive()


def dial(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def ask(port, path="/api/session"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    status = connection.getresponse().status
    connection.close()
    return status


def end_of(client):
    """Return the bytes received until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65536):
            received += piece
    return received


def sent_until_closed(client, piece):
    """Fails unless the server closes the connection while pieces are sent now and then."""
    with pytest.raises(ConnectionError):
        wait_until(lambda: client.sendall(piece), "the server closes the connection")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", marks=pytest.mark.long),
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\ntoken=",
        pytest.param(
            b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ntoken\r\n",
            marks=pytest.mark.long,
        ),
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /health",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nPOST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_half_a_request_is_not_waited_for(port, monkeypatch, sent):
    monkeypatch.setattr(module, "REQUEST_S", 0.3)
    with dial(port) as client:
        client.sendall(sent)
        end_of(client)
    monkeypatch.undo()  # a slow machine may take its time for this one
    assert ask(port) == 200


def test_a_byte_now_and_then_is_not_waited_for(port, monkeypatch):
    monkeypatch.setattr(module, "REQUEST_S", 0.3)
    with dial(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-Long: ")
        sent_until_closed(client, b"a")


def test_a_request_that_takes_less_is_answered(port, monkeypatch):
    """The time-out is for what the client owes, not for a connection that lasts."""
    timers, end_in = [], module.Bounded._end_in

    def noted(self, seconds):
        end_in(self, seconds)
        timers.append(self._owing)

    monkeypatch.setattr(module.Bounded, "_end_in", noted)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    for _ in range(4):
        connection.request("GET", "/healthz", headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"ok":true}')
        begun = [timer for timer in timers if timer is not None]
        assert begun
        assert all(timer.cancelled() for timer in begun)
    connection.close()


def test_idle_connections_keep_no_client_out(port):
    """More of them than the server takes, all from one address."""
    with contextlib.ExitStack() as held:
        for number in range(module.MOST_CONNECTIONS + 20):
            client = held.enter_context(dial(port))
            if number % 2:
                client.sendall(b"GET / HTTP/1.1\r\nX-Half: ")
        assert ask(port) == 200


def test_connections_that_are_at_work_are_not_closed_for_others(port, monkeypatch):
    monkeypatch.setattr(module, "MOST_PER_ADDRESS", 2)
    refused, go_on = threading.Semaphore(0), threading.Event()

    async def held(seconds):
        refused.release()
        await asyncio.to_thread(go_on.wait, PATIENCE_S)

    monkeypatch.setattr(authentication, "asyncio", SimpleNamespace(sleep=held))
    wrong = b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n\r\n"
    with contextlib.ExitStack() as opened:
        clients = []
        for _ in range(2):  # each waits for its refusal
            client = opened.enter_context(dial(port))
            client.sendall(wrong)
            clients.append(client)
            assert refused.acquire(timeout=PATIENCE_S)
        for _ in range(5):
            assert end_of(opened.enter_context(dial(port))) == b""
        go_on.set()
        for client in clients:
            assert client.recv(65536).startswith(b"HTTP/1.1 401")


def test_a_client_that_leaves_within_its_request_is_no_error(port, monkeypatch, caplog):
    read, lost = threading.Semaphore(0), threading.Semaphore(0)

    data_received, connection_lost = module.Bounded.data_received, module.Bounded.connection_lost
    monkeypatch.setattr(module.Bounded, "data_received", lambda *a: (data_received(*a), read.release()))
    monkeypatch.setattr(module.Bounded, "connection_lost", lambda *a: (connection_lost(*a), lost.release()))
    for path in ("/login", "/api/runs/00/control"):
        with dial(port) as client:
            client.sendall(
                f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nX-Distrl: 1\r\n"
                "Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{".encode()
            )
            assert read.acquire(timeout=PATIENCE_S)
        assert lost.acquire(timeout=PATIENCE_S)
    assert ask(port) == 200
    assert [record.getMessage() for record in caplog.records] == []


def test_a_client_that_does_not_read_is_let_go(port, monkeypatch):
    monkeypatch.setattr(module, "STALLED_S", 0.3)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", port))
        line = f"GET /static/vendor/uplot.min.js HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        client.sendall(200 * line.encode())
        sent_until_closed(client, b" ")
    assert ask(port) == 200
