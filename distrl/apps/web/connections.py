"""uvicorn's protocols with time-outs for requests and a bound on connections per address.

A client that sends nothing, half a request or a byte a second is disconnected. If there are too many connections, the
one that has been idle for longest is closed, so that idle connections do not lock out clients.
"""

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:  # a mixin, which any of uvicorn's protocols follows
    Protocol = object

REQUEST_S = 10.0
"""Time-out for the headers of a request, and again for its body."""
STALLED_S = 30.0
"""Time-out for a client that does not read its response."""
MOST_CONNECTIONS = 256
MOST_PER_ADDRESS = 64


class Bounded(Protocol):
    """One connection of a client; the next of its classes is one of uvicorn's protocols for HTTP.

    Attributes:
        most, most_per_address: Most connections.
    """

    most = MOST_CONNECTIONS
    most_per_address = MOST_PER_ADDRESS
    _owing: asyncio.TimerHandle | None = None
    _stalling: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time-out of the first request."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._end_in(REQUEST_S)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Stop the time-out when a request is complete."""
        before = self.cycle
        super().data_received(data)
        if not self.owes:
            self._end_in(None)
        elif self.cycle is not before or self._owing is None:
            # The headers are complete and the body is not, or another request has begun on this connection.
            self._end_in(REQUEST_S)

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn closes connections that stay idle."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.owes and self.timeout_keep_alive_task is None:
            self._end_in(REQUEST_S)  # part of the next request arrived together with this one

    def pause_writing(self) -> None:
        """Start the time-out of a response that is not read."""
        super().pause_writing()
        self._stalling = self.loop.call_later(STALLED_S, self._end)

    def resume_writing(self) -> None:
        """Stop that time-out."""
        super().resume_writing()
        self._read_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all time-outs."""
        self._end_in(None)
        self._read_again()
        super().connection_lost(exc)

    @property
    def owes(self) -> bool:
        """Whether the server waits for this client to send."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _make_room(self) -> None:
        everyone: list[Any] = [one for one in self.connections if isinstance(one, Bounded)]
        ours = [one for one in everyone if one.client and self.client and one.client[0] == self.client[0]]
        for group, most in ((ours, self.most_per_address), (everyone, self.most)):
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
