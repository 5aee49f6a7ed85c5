"""Messages of remote environments on a stream socket: TensorForce's frame, the strict decoder, a deadline for each.

    byte 0 … 7    length of the body in bytes: 8 decimal digits in ASCII with leading zeros, so at most 99,999,999
    byte 8 …      the body: one msgpack map, arrays in msgpack-numpy's encoding (`wire.py`)

Requests are maps with ``cmd``, replies are maps with ``status``: "ok", or "error" with the reason in ``message``; with
``retry: true`` beside it, such as where a server is full, the same may work on a later connection. After any error
the beginning of the next frame is unknown: the channel's owner closes it.
"""

import math
import socket
import time
from contextlib import suppress
from typing import Any

from distrl import wire
from distrl.errors import DecodeError, EnvironmentFailedError, one_line

HEADER_BYTES = 8
LARGEST_BODY_BYTES = 10**HEADER_BYTES - 1
"""The greatest number of eight digits."""

_CHUNK_BYTES = 2**18
_FAREWELL_S = 1.0

Message = dict[str, Any]


class ConnectionLostError(EnvironmentFailedError):
    """The other side is gone, or too slow; a new connection may help."""


class RemoteError(EnvironmentFailedError):
    """The other side answered with status "error"; the message is its own."""


class Channel:
    """One connection, used by one thread.

    Args:
        connected: A connected TCP socket, which the channel takes over.
        message_timeout_s: Longest time from the first to the last byte of a message, in either direction.
        max_bytes: Largest accepted body.
        peer: The other side's name in messages; default: its address.
    """

    def __init__(
        self,
        connected: socket.socket,
        *,
        message_timeout_s: float,
        max_bytes: int = LARGEST_BODY_BYTES,
        peer: str | None = None,
    ) -> None:
        self._socket = connected
        self._timeout_s = message_timeout_s
        self._max_bytes = min(max_bytes, LARGEST_BODY_BYTES)
        self._received = bytearray()  # what has come beyond the last message
        self.peer = peer or _name(connected)
        with suppress(OSError):  # where the other side has gone already, the first read reports it
            _tune(connected)

    def send(self, message: Message, *, by: float = math.inf) -> None:
        """Send the whole message.

        Args:
            by: Deadline on `time.monotonic`'s clock, if that is earlier than `message_timeout_s`.

        Raises:
            ConnectionLostError: The other side is gone or does not read.
            TypeError, OverflowError: A value of the message has no encoding.
            ValueError: The message has more than `LARGEST_BODY_BYTES`.
        """
        body = wire.pack(message)
        if len(body) > LARGEST_BODY_BYTES:
            raise ValueError(f"a message of {len(body):,} bytes; {LARGEST_BODY_BYTES:,} is the most there can be")
        try:
            # For all of sendall, not for each of its parts. 0: as much as the kernel takes at once.
            self._socket.settimeout(max(min(self._timeout_s, by - time.monotonic()), 0.0))
            self._socket.sendall(b"%08d" % len(body) + body)
        except (TimeoutError, BlockingIOError) as error:
            raise ConnectionLostError(f"{self.peer} has not read a message in the time it has for it") from error
        except OSError as error:
            raise self._gone(error) from error

    def receive(self, *, first_byte_s: float | None, by: float = math.inf) -> Message:
        """Return the next whole message.

        Args:
            first_byte_s: Longest wait for its first byte; None: as long as the connection lasts; 0 or less: none, but
                bytes that have come are read.
            by: Deadline on `time.monotonic`'s clock, if that is earlier than `message_timeout_s`.

        Raises:
            ConnectionLostError: The other side is gone or too slow.
            DecodeError: The bytes are no frame, too large, not on `wire`'s allow-list, or not a map.
        """
        if not self._received:
            self._read(first_byte_s, "sent nothing")
        deadline = min(time.monotonic() + self._timeout_s, by)
        self._fill(HEADER_BYTES, deadline)
        header = bytes(self._received[:HEADER_BYTES])
        if not header.isdigit():
            raise DecodeError(f"{self.peer} sent {header!r} where a length in {HEADER_BYTES} digits must stand")
        length = int(header)
        if length > self._max_bytes:
            raise DecodeError(f"{self.peer} announced {length:,} bytes; the limit is {self._max_bytes:,}")
        self._fill(HEADER_BYTES + length, deadline)
        body = bytes(memoryview(self._received)[HEADER_BYTES : HEADER_BYTES + length])
        del self._received[: HEADER_BYTES + length]
        message = wire.unpack(body, max_bytes=self._max_bytes)
        if not isinstance(message, dict):
            raise DecodeError(f"{self.peer} sent a {type(message).__name__}, not a map")
        return message

    def reply(self, *, first_byte_s: float, by: float = math.inf) -> Message:
        """Receive the reply to a request; its status is "ok".

        Raises:
            RemoteError: Its status is "error".
            ConnectionLostError: As `receive`; also where the other side asks for a later connection.
            DecodeError: As `receive`; also where there is no status.
        """
        message = self.receive(first_byte_s=first_byte_s, by=by)
        status = message.get("status")
        if status == "ok":
            return message
        if status != "error":
            raise DecodeError(f"{self.peer} replied with status {str(status)[:50]!r}; it must be 'ok' or 'error'")
        reason = f"{self.peer}: {foreign_text(message.get('message', 'no reason given'))}"
        raise ConnectionLostError(reason) if message.get("retry") is True else RemoteError(reason)

    def set_limits(self, message_timeout_s: float, max_bytes: int) -> None:
        """Set the constructor's limits for all further messages, once the other side has shown its token."""
        self._timeout_s = message_timeout_s
        self._max_bytes = min(max_bytes, LARGEST_BODY_BYTES)

    def dismiss(self, reason: object, *, retry: bool = False) -> None:
        """Send the reason for the end, if the other side still reads, and close.

        Args:
            retry: The same may work on a later connection.
        """
        try:
            self._timeout_s = min(self._timeout_s, _FAREWELL_S)
            self.send({"status": "error", "message": foreign_text(reason), **({"retry": True} if retry else {})})
            self._socket.shutdown(socket.SHUT_WR)
            # Unread bytes would make the kernel take the reply back: closing becomes a reset.
            deadline = time.monotonic() + _FAREWELL_S
            while (left_s := deadline - time.monotonic()) > 0.0:
                self._socket.settimeout(left_s)
                if not self._socket.recv(_CHUNK_BYTES):
                    break
        except (ConnectionLostError, OSError):
            return  # the other side is gone
        finally:
            self.close()

    def interrupt(self) -> None:
        """End the owner's present or next call with ConnectionLostError; from any thread."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is not connected any more, which was the aim

    def close(self) -> None:
        self._socket.close()

    def _fill(self, size: int, deadline: float) -> None:
        """Read until `size` bytes are there. Memory grows with the bytes that come, not with an announced length."""
        while len(self._received) < size:
            self._read(deadline - time.monotonic(), f"sent {len(self._received):,} of {size:,} bytes")

    def _read(self, wait_s: float | None, so_far: str) -> None:
        try:
            # Without time left, bytes that have come already are still taken: a late reader had no late sender.
            self._socket.settimeout(None if wait_s is None else max(wait_s, 0.0))
            data = self._socket.recv(_CHUNK_BYTES)
        except (TimeoutError, BlockingIOError) as error:
            raise ConnectionLostError(f"{self.peer} {so_far} in the time it has for a message") from error
        except OSError as error:
            raise self._gone(error) from error
        if not data:
            where = "in the middle of a message" if self._received else "between messages"
            raise ConnectionLostError(f"{self.peer} closed the connection {where}")
        self._received += data

    def _gone(self, error: OSError) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self.peer} is broken: {error.strerror or error}")


def foreign_text(text: object) -> str:
    """Return foreign text in at most 300 printable characters, safe in a terminal."""
    line = one_line(str(text)[:1000])
    return "".join(character if character.isprintable() else "?" for character in line)[:300]


def _tune(connected: socket.socket) -> None:
    # Small messages that wait for each other: Nagle's algorithm would add 40 ms to every step.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A peer whose machine is gone without a word is noticed within two minutes, however quiet the connection.
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):  # Linux has all of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _name(connected: socket.socket) -> str:
    try:
        host, port = connected.getpeername()[:2]
    except OSError:
        return "the other side"
    return f"{host}:{port}"
