import json
import struct

import numpy as np
import pytest

from benchmarks import serving, speed
from benchmarks.serving_load import bodies, frame, http_request, is_whole
from distrl import wire
from tests.benchmarks.test_transport import WHERE


def test_the_page_says_what_the_committed_report_says():
    page = serving.PAGE.read_text("utf-8")
    assert speed.published(page, "serving", speed.page_text("serving", serving.block)) == page


def test_the_table_compares_what_takes_turns():
    figures = {"rounds": 3, "seconds": 5.0, "p50_ms": 1.0, "p99_ms": 2.5}
    results = [
        {"name": name, **WHERE, **figures, "per_s": per_s, "cpu_us": cpu_us}
        for name, per_s, cpu_us in (("mlp-http", 20_000.0, 30.0), ("mlp-starlette", 10_000.0, 75.0))
    ]
    lines = serving.block({"command": "x", "results": results}).splitlines()
    assert lines[-2] == "| MLP, HTTP | 20,000 | 1.00 ms | 2.50 ms | 30 µs |  |  |"
    assert lines[-1] == "| MLP, HTTP, plain Starlette | 10,000 | 1.00 ms | 2.50 ms | 75 µs | 2.0 | 2.5 |"


@pytest.mark.parametrize("kind", ["numbers", "sessions", "images"])
def test_requests_are_whole(kind):
    body = bodies(kind)[0]
    message = wire.unpack(body) if kind == "images" else json.loads(body)
    assert np.shape(message["observation"]) == ((84, 84, 4) if kind == "images" else (4,))
    assert ("session" in message) == (kind == "sessions")
    head, _, sent = http_request(body, kind).partition(b"\r\n\r\n")
    assert sent == body
    assert b"Content-Length: %d" % len(body) in head
    framed = frame(body, kind)
    at = 2 if len(body) < 126 else 4
    assert at == 2 or struct.unpack(">H", framed[2:4])[0] == len(body)
    mask = np.frombuffer(framed[at : at + 4], np.uint8)
    unmasked = np.frombuffer(framed[at + 4 :], np.uint8) ^ np.resize(mask, len(body))
    assert unmasked.tobytes() == body


def test_replies_are_waited_for_to_their_end():
    reply = b'HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{"a'
    assert [is_whole(reply[:size], "http") for size in (10, len(reply) - 1, len(reply))] == [False, False, True]
    assert [is_whole(b"\x81\x02{}"[:size], "websocket") for size in (1, 3, 4)] == [False, False, True]
    with pytest.raises(AssertionError):
        is_whole(b"HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n", "http")
    with pytest.raises(AssertionError):
        is_whole(b'\x81\x0a{"error":1}', "websocket")
