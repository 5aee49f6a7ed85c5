"""A network that fails, in front of a Redis that does not."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable

from tests.waiting import lasts


class Proxy:
    """A port in front of a Redis, that does what networks do.

    Attributes:
        delay_s: Every piece of data waits so long, in both directions.
        loses_replies: Requests arrive, and their connection breaks before the reply.
        spoil: What becomes of a long piece (a payload) on its way to the server; gets who sends it, as CLIENT LIST
            would show it.
    """

    PAYLOAD_BYTES = 4096

    def __init__(self, host: str, port: int, upstream: tuple[str, int]) -> None:
        """Listen on `host` and `port`; `upstream` is the Redis."""
        self.delay_s = 0.0
        self.loses_replies = False
        self.spoil: Callable[[str, bytes], bytes] = lambda _name, piece: piece
        self.cuts = 0
        self._upstream = upstream
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((host, port))
        self.url = f"redis://{host}:{port}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Breaks every connection that is open."""
        with self._lock:
            broken, self._open = self._open, set()
            self.cuts += len(broken) // 2
        for one in broken:
            _break(one)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            server = socket.create_connection(self._upstream)
            name = ["?"]
            with self._lock:
                self._open |= {client, server}
            for source, sink, there in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, sink, name, there), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, name: list[str], there: bool) -> None:
        try:
            while piece := source.recv(65536):
                lasts(self.delay_s)
                if there:
                    if name[0] == "?" and (found := re.search(rb"distrl:([a-z0-9-]+)", piece)):  # keys begin so, too
                        name[0] = found[1].decode()
                    if len(piece) > self.PAYLOAD_BYTES:
                        piece = self.spoil(name[0], piece)
                elif self.loses_replies:
                    break
                sink.sendall(piece)
        except OSError:
            pass  # the other direction, or `cut`, has ended it
        for one in (source, sink):
            with self._lock:
                self._open.discard(one)
            _break(one)


def _break(one: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was broken already
        one.shutdown(socket.SHUT_RDWR)
    one.close()
