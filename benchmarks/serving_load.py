"""Clients of `benchmarks.serving`: connections with one request under way each, in one process.

python -m benchmarks.serving_load http numbers 8730 32 5 latencies.npy
"""

import base64
import json
import os
import select
import socket
import struct
import sys
import time
from pathlib import Path

import numpy as np

from distrl import wire

DIFFERENT = 256
"""Requests that are made before, so that clients take little time."""
LONGEST_WAIT_S = 30.0


def bodies(kind: str) -> list[bytes]:
    """Return messages: CartPole's numbers, the same in a session, or four frames in msgpack."""
    random = np.random.default_rng(os.getpid())
    if kind == "images":
        frames = random.integers(0, 256, (32, 84, 84, 4), np.uint8)
        return [wire.pack({"observation": frames[number % 32]}) for number in range(DIFFERENT)]
    more = {"session": 0} if kind == "sessions" else {}
    return [json.dumps({"observation": random.normal(size=4).tolist(), **more}).encode() for _ in range(DIFFERENT)]


def http_request(body: bytes, kind: str) -> bytes:
    """Return a request to act."""
    media_type = b"application/msgpack" if kind == "images" else b"application/json"
    head = b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (media_type, len(body)) + body


def frame(body: bytes, kind: str) -> bytes:
    """Return a masked frame of a WebSocket."""
    mask = np.frombuffer(os.urandom(4), np.uint8)
    masked = np.frombuffer(body, np.uint8) ^ np.resize(mask, len(body))
    opcode = b"\x82" if kind == "images" else b"\x81"
    size = bytes([0x80 | len(body)]) if len(body) < 126 else b"\xfe" + struct.pack(">H", len(body))
    return opcode + size + mask.tobytes() + masked.tobytes()


def dial(port: int, way: str, kind: str) -> socket.socket:
    """Return a connection, for WebSockets after its handshake."""
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if way == "websocket":
        key = base64.b64encode(os.urandom(16)).decode()
        protocol = "msgpack" if kind == "images" else "json"
        lines = [
            *("GET /ws HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"),
            *(f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Protocol: {protocol}"),
        ]
        client.sendall("\r\n".join([*lines, "\r\n"]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += client.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101"), answer
    return client


def is_whole(reply: bytes, way: str) -> bool:
    """Whether a reply has come to its end; raises if it is an error."""
    if way == "websocket":
        assert b'"error"' not in reply, reply
        return len(reply) >= 2 and len(reply) >= 2 + (reply[1] & 0x7F)
    head, end, body = reply.partition(b"\r\n\r\n")
    if not end:
        return False
    assert head.startswith(b"HTTP/1.1 200"), reply
    if b"chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return len(body) >= length


def act(way: str, kind: str, port: int, connections: int, seconds: float) -> np.ndarray:
    """Act by all connections for so long, and return the latencies in seconds."""
    make = {"http": http_request, "websocket": frame}[way]
    requests = [make(body, kind) for body in bodies(kind)]
    poll = select.epoll()
    clients = {client.fileno(): client for client in (dial(port, way, kind) for _ in range(connections))}
    sent, received, latencies, number = {}, dict.fromkeys(clients, b""), [], 0
    for descriptor, client in clients.items():
        poll.register(descriptor, select.EPOLLIN)
        client.sendall(requests[number % DIFFERENT])
        sent[descriptor] = time.perf_counter()
        number += 1
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ready = poll.poll(LONGEST_WAIT_S)
        assert ready, "the server does not answer"
        for descriptor, _ in ready:
            received[descriptor] += clients[descriptor].recv(65536)
            if not is_whole(received[descriptor], way):
                continue
            received[descriptor] = b""
            now = time.perf_counter()
            latencies.append(now - sent[descriptor])
            clients[descriptor].sendall(requests[number % DIFFERENT])
            sent[descriptor] = now
            number += 1
    return np.array(latencies)


if __name__ == "__main__":
    np.save(Path(sys.argv[6]), act(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
