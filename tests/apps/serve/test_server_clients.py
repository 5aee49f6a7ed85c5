"""Bad clients: each gets an error of one line or loses its connection, and the others are served as before."""

import concurrent.futures
import contextlib
import json
import logging
import random
import re
import socket
import struct
import threading

import psutil
import pytest

from distrl import wire
from distrl.apps.serve import gate
from distrl.apps.serve.messages import request_of
from distrl.apps.web import connections
from distrl.apps.web.access import Access
from tests.apps.serve.conftest import exchange, serving
from tests.waiting import PATIENCE_S, wait_until

GOOD = {"observation": [0.1, 0.2, 0.3, 0.4]}
BODIES = [
    *({"observation": value} for value in (None, "x", True, {}, [], [[]], [1], [1, 2, 3, "4"], [1, 2, 3, None])),
    *({"observation": value} for value in ([[1, 2, 3, 4]], [1, 2, 3, [4]], {"observation": 1}, {"a": [1, 2, 3, 4]})),
    *({"observation": [1, 2, 3, value]} for value in (1e39, 10**400, -(10**39), {}, [1])),
    *({"observations": value} for value in (None, {}, "abcd", [[1, 2, 3, 4], [1, 2, 3]], [[1, 2, 3, 4], None])),
    *(GOOD | {"session": value} for value in ("none", 7, -1, "", "x" * 10_000, [], {}, 1.5, True)),
    *(GOOD | {"want": value} for value in ("value", [1], ["x"], {}, [["value"]])),
    *(GOOD | {"greedy": value} for value in (1, "no", [])),
    *(GOOD | {"begins": value} for value in (0, "yes", {})),
    *(GOOD | {"id": value} for value in ([], 2**80, 0.5)),
    *(GOOD | {"reward": 1.0}, GOOD | GOOD | {"observations": [[1, 2, 3, 4]]}, {}, [], [GOOD], 3, "text", None, True),
    GOOD | {f"field {number}": 1 for number in range(1000)},
    {"observations": [[1, 2, 3, 4]] * 1025},
]
TEXTS = [
    *(b"", b"{", b"}", b"\x00", b"\xff\xfe", b"NaN", b'{"observation": [NaN, 1, 2, 3]}', b"[" * 200_000, b"1" * 9000),
    *(
        b'{"observation": [Infinity, 1, 2, 3]}',
        b'{"observation": 1' + b"0" * 5000 + b"}",
        b'{"observation": "\\ud800"}',
    ),
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
]
RAW = [
    *(
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /act HTTP/9.9\r\n\r\n",
        b"POST /act\r\n\r\n",
        b"\r\n\r\n\r\n\r\nA",
    ),
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999999\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: \xff\xfe[\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /act HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET //../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"DELETE /sessions/%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"BREW /act HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"PUT /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"GET /act HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 300_000 + b"\r\n\r\n",
    b"GET /" + b"x" * 300_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
]
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MASK = b"\x00\x00\x00\x00"
FRAMES = [
    *(b"\x81\x02{}", b"\x81\xfe\xff\xff", b"\x81\xff" + b"\xff" * 8, b"\xf1\x80" + MASK, b"\x83\x80" + MASK),
    *(b"\x80\x82" + MASK + b"{}", b"\x01\x82" + MASK + b"{}\x01\x82" + MASK + b"{}", b"\x89\xfe\x00\x7e" + MASK),
    *(b"\x81\x82" + MASK + b"\xff\xfe", b"\x88\x81" + MASK + b"\x03", b"\x88\x82" + MASK + b"\x00\x01"),
    b"\x81\xff" + struct.pack(">Q", 5 * 2**20) + MASK,
    b"\x82\x82" + MASK + b"{}",
]


def exchanged(port, data, *, whole):
    """Return all that the server sends until it closes the connection; `whole`: of itself, after its reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        received = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
            if not whole:
                client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                received += piece
        return received


def posted(body, kind=b"application/json"):
    head = (
        b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    )
    return head % (kind, len(body)) + body


def mangled(rng, body):
    """Return a message with some bytes changed, removed or repeated."""
    data = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                del data[place : place + rng.randint(1, 5)]
            case 2:
                data[place:place] = data[: rng.randint(1, 8)]
        data = data or bytearray(b"x")
    return bytes(data)


def cases():
    """Name -> bytes of one connection: more than 200."""
    rng = random.Random(7)
    made = {f"body {n}": posted(json.dumps(body).encode()) for n, body in enumerate(BODIES)}
    made |= {f"text {n}": posted(body) for n, body in enumerate(TEXTS)}
    made |= {f"raw {n}": data for n, data in enumerate(RAW)}
    made |= {f"frame {n}": HANDSHAKE + data for n, data in enumerate(FRAMES)}
    whole = json.dumps(GOOD | {"want": ["value"], "greedy": False, "id": 7}).encode()
    made |= {f"JSON {n}": posted(mangled(rng, whole)) for n in range(60)}
    packed = wire.pack(GOOD | {"want": ["value"], "greedy": False, "id": 7})
    made |= {f"msgpack {n}": posted(mangled(rng, packed), b"application/msgpack") for n in range(60)}
    return made


def test_bad_requests_are_refused_in_one_line_and_cost_others_nothing(trained, caplog):
    found = cases()
    assert len(found) >= 200
    own, sizes = psutil.Process(), []
    with serving(trained("mlp"), most_body_bytes=2**20) as served, served.socket() as websocket:
        expected = exchange(websocket, **GOOD)["action"]
        for _ in range(3):
            for name, data in found.items():
                received = exchanged(served.port, data, whole=name.startswith(("body", "text")))
                assert b"Traceback" not in received, name
                assert b"Internal Server Error" not in received, name
                head, _, body = received.partition(b"\r\n\r\n")
                status = int(head[9:12] or b"0")
                if b"application/json" in head and status >= 400:
                    reply = json.loads(body)
                    assert 0 < len(reply["error"]) <= 500, name
                    assert "\n" not in reply["error"], name
                if name.startswith(("body", "text")):
                    assert 400 <= status < 500, (name, received)
                assert exchange(websocket, **GOOD)["action"] == expected, name
            sizes.append(own.memory_info().rss / 2**20)
        metrics = served.ask("GET", "/metrics")[1].decode()
    assert sizes[-1] < sizes[0] + 8, sizes
    assert 'status="500"' not in metrics
    assert "distrl_serve_sessions 0.0" in metrics
    assert not [record for record in caplog.records if record.exc_info]


def test_messages_of_a_websocket_that_are_refused_leave_it_open(mlp):
    with mlp.socket() as websocket:
        for body in (*(json.dumps(body) for body in BODIES), *(text.decode("latin-1") for text in TEXTS)):
            websocket.send(body)
            assert json.loads(websocket.recv(timeout=PATIENCE_S)).get("status", 200) in (200, 400), body[:100]
        assert exchange(websocket, **GOOD)["action"] in (0, 1)


def test_one_request_of_a_session_at_a_time(lstm):
    """Requests of one session that do not wait are refused, and its state is that of those that were answered."""
    with lstm.socket() as websocket:
        for _ in range(50):
            websocket.send(json.dumps(GOOD | {"session": 1}))
        replies = [json.loads(websocket.recv(timeout=PATIENCE_S)) for _ in range(50)]
    assert {reply.get("status", 200) for reply in replies} <= {200, 409}
    assert replies[0].get("status", 409) == 409
    assert any("action" in reply for reply in replies)


def test_a_client_that_does_not_read_is_not_read_from_and_then_closed(trained, monkeypatch):
    monkeypatch.setattr("distrl.apps.serve.connections.STALLED_S", 0.5)
    message = json.dumps(GOOD | {"want": ["distribution", "value"], "id": "x" * 120}).encode()
    frame = b"\x81\xfe" + struct.pack(">H", len(message)) + MASK + message
    with serving(trained("mlp")) as served, served.socket() as other:
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as deaf:
            deaf.sendall(HANDSHAKE)
            deaf.setblocking(False)
            sent, left = 0, b""

            def is_closed():
                nonlocal sent, left
                assert exchange(other, **GOOD)["action"] in (0, 1)
                try:
                    for _ in range(20_000):
                        left = left or frame  # a frame may go in parts
                        size = deaf.send(left)
                        sent, left = sent + size, left[size:]
                except BlockingIOError:
                    return False
                except OSError:
                    return True
                return False

            wait_until(is_closed, "the server closes the connection")
        assert sent < 64 * 2**20
        metrics = served.ask("GET", "/metrics")[1].decode()
        assert "distrl_serve_websockets 1.0" in metrics


def test_half_open_connections_and_half_requests_are_not_waited_for(trained, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    halves = [b"", b"POST /act HT", posted(b"{}")[:-1], HANDSHAKE[:-2], b"GET / HTTP/1.1\r\nX-Half: "]
    with serving(trained("mlp")) as served, contextlib.ExitStack() as open_connections:
        clients = [
            open_connections.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S))
            for _ in range(10)
            for _ in halves
        ]
        for number, client in enumerate(clients):
            client.sendall(halves[number % len(halves)])
        assert served.act(**GOOD)["action"] in (0, 1)
        for client in clients:
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(65536) == b""


@pytest.mark.parametrize("limit", ["connections", "sessions", "rate"])
def test_limits(trained, limit, caplog):
    if limit == "rate":
        now = 0.0
        with serving(trained("mlp"), gate=gate.ClientGate(Access("127.0.0.1"), 20.0, clock=lambda: now)) as served:
            replies = [served.act(**GOOD) for _ in range(21)]
            assert [reply.get("status") for reply in replies] == [None] * 20 + [429]
            now += replies[-1]["wait_s"]
            assert "action" in served.act(**GOOD)
    elif limit == "sessions":
        with serving(trained("mlp"), most_sessions=3) as served:
            statuses = [served.ask("POST", "/sessions")[0] for _ in range(4)]
            assert statuses == [201, 201, 201, 503]
    else:
        with serving(trained("mlp"), most_connections=2) as served, served.socket(), served.socket():
            logging.getLogger("uvicorn.error").addHandler(caplog.handler)
            with pytest.raises(Exception, match="503"), served.socket():
                pass
            assert served.act(**GOOD)["action"] in (0, 1)
            assert caplog.records == []  # clients could fill the log


def test_tokens_that_are_guessed(trained, monkeypatch):
    monkeypatch.setattr(gate, "WRONG_TOKEN_S", 0.0)
    with serving(trained("mlp"), access=Access("127.0.0.1", "token-of-many-letters")) as served:
        guesses = [f"Bearer guess {number}" for number in range(12)] + ["Basic x", "", "Bearer"]
        statuses = [served.ask("POST", "/act", GOOD, {"Authorization": guess})[0] for guess in guesses]
        assert statuses == [401] * 10 + [429] * 2 + [401] * 2 + [429]
        with pytest.raises(Exception, match="429"), served.socket("json", "bearer.guess"):
            pass


def test_many_requests_at_once_on_a_connection_are_answered_in_their_order(mlp):
    """Bad ones too, which are answered at once: each reply lets the next request begin."""
    head = b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    good, bad = json.dumps(GOOD).encode(), b"["
    sent = b"".join(head % len(body) + body for body in (good, *[bad] * 1500, good))
    statuses, left = [], b""
    with socket.create_connection(("127.0.0.1", mlp.port), timeout=PATIENCE_S) as connection:
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        while len(statuses) < 1502:
            left += connection.recv(2**16)
            found = re.findall(rb"HTTP/1\.1 (\d+)", left)
            statuses += [int(status) for status in found]
            left = left[left.rfind(b"HTTP/1.1 ") + len(b"HTTP/1.1 ") :] if found else left
        sender.join()
    assert statuses == [200, *[400] * 1500, 200]
    assert mlp.act(**GOOD)["action"] in (0, 1)


def test_a_reply_that_fails_costs_no_other_client_its_own(mlp):
    def fails(reply):
        raise ZeroDivisionError

    batcher = mlp.server.config.app._batcher
    asked = concurrent.futures.Future()

    def ask():
        batcher.submit(request_of(GOOD), fails)
        batcher.submit(request_of(GOOD), asked.set_result)

    batcher._loop.call_soon_threadsafe(ask)
    assert asked.result(PATIENCE_S)["action"] in (0, 1)
    assert mlp.act(**GOOD)["action"] in (0, 1)


def test_errors_by_websocket_name_their_request(mlp):
    with mlp.socket() as websocket:
        for wrong in ({"foo": 1}, {"begins": 1}, {"want": "value"}, {"observations": []}):
            reply = exchange(websocket, **GOOD, **wrong, id=3, session="mine")
            assert (reply["status"], reply["id"], reply["session"]) == (400, 3, "mine")
        assert "id" not in exchange(websocket, **GOOD, id=[])
        assert exchange(websocket, **GOOD, session=1)["session"] == 1
        assert exchange(websocket, end=True)["status"] == 404
        assert exchange(websocket, end=1) == {"ended": 1}
