"""A real server on a real port."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import distrl
from distrl.apps.dashboard.server import make_server
from distrl.apps.web.access import Access
from distrl.apps.web.listening import listen
from tests.waiting import wait_until

PATIENCE_S = 60.0


@pytest.fixture
def served(root, make_run, free_port):
    """(port, server), serving in a thread."""
    make_run("a")
    server = make_server(root, Access("127.0.0.1"))
    with listen("127.0.0.1", free_port) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield free_port, server
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def ask(port, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


def test_over_a_socket(served, caplog):
    port, _ = served
    status, text = ask(port, "/api/runs")
    assert (status, json.loads(text)["runs"][0]["name"]) == (200, "a")
    assert ask(port, "/nothing")[0] == 404
    assert "GET" not in caplog.text


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /static/../../access.py HTTP/1.1",
        b"GET /../../../../etc/passwd HTTP/1.1",
        b"GET /api/runs/\xff\xfe HTTP/1.1",
        b"GET http://evil.example/ HTTP/1.1",
        b"\x00\x01\x02",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1",
        b"POST /api/runs/x/control HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5",
    ],
)
def test_what_no_browser_sends(served, request_line):
    port, _ = served
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(request_line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    status = int(answer.split(b" ", 2)[1])
    assert 400 <= status < 500
    assert b"root:" not in answer


def test_a_child_ends_with_its_parent(root):
    """A parent that is killed cannot say goodbye: the pipe does."""
    program = (
        "import signal, sys; from pathlib import Path; from distrl.apps.dashboard.beside import dashboard_beside\n"
        "with dashboard_beside(Path(sys.argv[1]) / 'run') as url: print(url, flush=True); signal.pause()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(distrl.__file__).parent.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        url = parent.stdout.readline()
        port = int(url.split(":")[2].split("/")[0])
        assert ask(port, "/healthz")[0] == 200
        parent.send_signal(signal.SIGKILL)
    with pytest.raises(OSError):  # noqa: PT011
        wait_until(lambda: socket.create_connection(("127.0.0.1", port), timeout=1.0).close(), "the child has ended")
