"""A bound on the bytes received from a Redis and on the time they take, for readers that do not trust it."""

import socket
import time
from collections.abc import Callable
from typing import Any

from distrl.errors import MemoryBackendError


class Meter:
    """Counts what one or more connections receive since `begin`. Used by one thread at a time.

    Args:
        most_bytes: Bytes that may be received.
        most_s: Seconds within which all of them must arrive.
    """

    def __init__(self, most_bytes: int, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes, self._most_s, self._clock = most_bytes, most_s, clock
        self.begin()

    def begin(self) -> None:
        """Start counting from zero."""
        self._left_bytes, self._ends = self._most_bytes, self._clock() + self._most_s

    def left_s(self) -> float:
        """Return the seconds that are left.

        Raises:
            MemoryBackendError: None are left.
        """
        left_s = self._ends - self._clock()
        if left_s <= 0.0:
            raise MemoryBackendError(
                f"Redis has not answered within {self._most_s:g} s; check that it runs and the URL"
            )
        return left_s

    def add(self, received: int) -> None:
        """Count received bytes.

        Raises:
            MemoryBackendError: More than `most_bytes` were received.
        """
        self._left_bytes -= received
        if self._left_bytes < 0:
            raise MemoryBackendError(
                f"Redis answers with more than {self._most_bytes:,} bytes, which no run of distrl does; check the URL"
            )


class MeteredSocket:
    """A socket whose received bytes are counted; everything else is the socket's own."""

    def __init__(self, inner: socket.socket, meter: Meter) -> None:
        self._inner, self._meter = inner, meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def recv(self, *arguments: Any) -> bytes:
        received: bytes = self._metered(lambda: self._inner.recv(*arguments), len)
        return received

    def recv_into(self, *arguments: Any) -> int:
        received: int = self._metered(lambda: self._inner.recv_into(*arguments), int)
        return received

    def _metered(self, receive: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        usual_s = self._inner.gettimeout()
        left_s = self._meter.left_s()
        self._inner.settimeout(left_s if usual_s is None else min(left_s, usual_s))
        try:
            received = receive()
        except TimeoutError:
            self._meter.left_s()  # raises if it was the meter's time that is over
            raise
        finally:
            self._inner.settimeout(usual_s)
        self._meter.add(size(received))
        return received


def metered(connection_class: type[Any], meter: Meter) -> type[Any]:
    """Return the connection class of redis-py with sockets that `meter` counts."""

    class Metered(connection_class):  # type: ignore[misc]
        def _connect(self) -> MeteredSocket:
            usual_s: float = super().socket_connect_timeout
            self.socket_connect_timeout = min(usual_s, meter.left_s())
            return MeteredSocket(super()._connect(), meter)

    return Metered
