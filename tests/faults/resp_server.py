"""A Redis that refuses or breaks off one command, by a script: a proxy that understands Redis' protocol."""

import contextlib
import socket
import threading
from pathlib import Path
from typing import BinaryIO

BROKEN_BEFORE = "broken before"
"""The connection breaks before the command arrives."""
BROKEN_AFTER = "broken after"
"""The command arrives, and the connection breaks before its reply."""
GREETING = (b"CLIENT", b"INFO", b"AUTH", b"HELLO", b"SELECT")
"""Commands that only begin a connection."""
HARMLESS = (b"MULTI", b"UNWATCH")
"""Commands without a key, which no state of a server refuses."""
REDIRECTIONS = (b"MOVED", b"ASK", b"CLUSTERDOWN", b"TRYAGAIN")
"""Refusals that EXEC gives in their own words; others are quoted in EXECABORT."""


class RespServer:
    """A port in front of a Redis; it passes every command on, but one that `fail` has chosen.

    A refused command has the effects that Redis gives a refusal: inside MULTI it spoils the transaction, and a refused
    EXEC discards it.

    Attributes:
        failed: The command that has failed, in words; None until then.
    """

    def __init__(self, socket_path: Path) -> None:
        self._upstream = str(socket_path)
        self._lock = threading.Lock()
        self._fault: str | None = None
        self._skip = 0
        self.failed: list[str] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, fault: str, skip: int) -> None:
        """Let one command fail: the one behind `skip` others that may.

        Args:
            fault: The text of a refusal, BROKEN_BEFORE or BROKEN_AFTER.
        """
        with self._lock:
            self._fault, self._skip, self.failed = fault, skip, None

    def relent(self) -> list[str] | None:
        """Let nothing fail any more; return the command that has failed, if one has."""
        with self._lock:
            self._fault = None
            return self.failed

    def close(self) -> None:
        """Stop listening; open connections end with their clients."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # replies are small and many
        with contextlib.suppress(OSError, EOFError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._upstream)
            with client.makefile("rb") as requests, server.makefile("rb") as replies:
                self._pass_on(client, server, requests, replies)

    def _pass_on(self, client: socket.socket, server: socket.socket, requests: BinaryIO, replies: BinaryIO) -> None:
        spoiled = in_transaction = False
        while True:
            words, request = _request(requests)
            name = words[0].upper()
            fault = self._fault_of(name, words)
            if fault == BROKEN_BEFORE:
                return
            if fault == BROKEN_AFTER:
                server.sendall(request)
                _reply(replies)
                return
            if name == b"EXEC" and (fault or spoiled):
                server.sendall(_packed(b"DISCARD"))
                _reply(replies)
                client.sendall(b"-%b\r\n" % _aborted(fault))
            elif fault:
                spoiled = in_transaction
                client.sendall(b"-%b\r\n" % fault.encode())
            else:
                server.sendall(request)
                client.sendall(_reply(replies))
            if name in (b"MULTI", b"EXEC", b"DISCARD"):
                in_transaction, spoiled = name == b"MULTI", False

    def _fault_of(self, name: bytes, words: list[bytes]) -> str | None:
        with self._lock:
            fault = self._fault
            breaks = fault in (BROKEN_BEFORE, BROKEN_AFTER)
            if fault is None or name in GREETING or (name in HARMLESS and not breaks):
                return None
            self._skip -= 1
            if self._skip >= 0:
                return None
            self._fault, self.failed = None, [word.decode(errors="replace") for word in words]
            return fault


def _aborted(fault: str | None) -> bytes:
    if fault is None:
        return b"EXECABORT Transaction discarded because of previous errors."
    told = fault.encode()
    return told if told.split()[0] in REDIRECTIONS else b"EXECABORT Transaction discarded because of: " + told


def _packed(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _request(stream: BinaryIO) -> tuple[list[bytes], bytes]:
    """Return a command's words, and its bytes."""
    words = []
    for _ in range(int(_line(stream)[1:])):
        size = int(_line(stream)[1:])
        words.append(stream.read(size + 2)[:-2])
    return words, _packed(*words)


def _reply(stream: BinaryIO) -> bytes:
    """Return the bytes of one reply of protocol 2, with all that it holds."""
    line = _line(stream)
    kind, rest = line[:1], line[1:]
    if kind == b"$" and int(rest) >= 0:
        return line + stream.read(int(rest) + 2)
    if kind == b"*" and int(rest) > 0:
        return line + b"".join(_reply(stream) for _ in range(int(rest)))
    return line


def _line(stream: BinaryIO) -> bytes:
    line = stream.readline()
    if not line:
        raise EOFError
    return line
