"""uvicorn's protocol with bounds: seconds in which a client must send a request, and connections per address.

A client that sends nothing, half a request or a byte a second is disconnected. Where there are too many connections,
the one that has owed a request for longest makes room, so that idle connections keep no client out.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""Most that a client may take for the headers of a request, and again for its body."""
STALLED_S = 30.0
"""Most that an answer may wait for a client that does not read it."""
MOST_CONNECTIONS = 256
MOST_PER_ADDRESS = 64


class BoundedProtocol(H11Protocol):
    """One connection of a client."""

    _owing: asyncio.TimerHandle | None = None
    _stalling: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn calls it."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._end_in(REQUEST_S)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        before = self.cycle
        super().data_received(data)
        if not self.owes:
            self._end_in(None)
        elif self.cycle is not before or self._owing is None:
            # The headers are complete and the body is not, or another request has begun on this connection.
            self._end_in(REQUEST_S)

    def on_response_complete(self) -> None:
        """As uvicorn calls it, which closes connections that stay idle."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.owes and self.timeout_keep_alive_task is None:
            self._end_in(REQUEST_S)  # half of a next request came together with the one that is answered now

    def pause_writing(self) -> None:
        """As asyncio calls it."""
        super().pause_writing()
        self._stalling = self.loop.call_later(STALLED_S, self._end)

    def resume_writing(self) -> None:
        """As asyncio calls it."""
        super().resume_writing()
        self._read_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio calls it."""
        self._end_in(None)
        self._read_again()
        super().connection_lost(exc)

    @property
    def owes(self) -> bool:
        """Whether the server waits for this client, and not the client for an answer."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _make_room(self) -> None:
        everyone: list[Any] = [one for one in self.connections if isinstance(one, BoundedProtocol)]
        ours = [one for one in everyone if one.client and self.client and one.client[0] == self.client[0]]
        for group, most in ((ours, MOST_PER_ADDRESS), (everyone, MOST_CONNECTIONS)):
            if len(group) > most and self in self.connections:
                idle = [one for one in group if one is not self and one.owes and one in self.connections]
                min(idle, key=lambda one: one._idle_since, default=self)._end()

    def _end_in(self, seconds: float | None) -> None:
        if self._owing is not None:
            self._owing.cancel()
        self._owing = None if seconds is None else self.loop.call_later(seconds, self._end)

    def _read_again(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
        self._stalling = None

    def _end(self) -> None:
        self.connections.discard(self)  # asyncio reports the loss only later
        self.transport.abort()
