"""Connections of clients, on uvicorn's protocols: time-outs, and shorter ways for requests to act.

`POST /act` needs no task and no ASGI messages: its body goes to the application as soon as it is complete, and its
reply is one write. That halves the time of a request. All other requests take uvicorn's own way.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from distrl.apps.serve.app import Application, Taker
from distrl.apps.serve.sockets import GOING_AWAY
from distrl.apps.web.connections import STALLED_S, Bounded

_HEADS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
MOST_READ = 64
"""Most messages of a WebSocket that are read ahead."""


class ServedHttp(Bounded, HttpToolsProtocol):  # type: ignore[misc]
    """One connection of a client by HTTP."""

    application: Application
    _handed_over = False

    def handle_websocket_upgrade(self) -> None:  # type: ignore[override]
        """Hand the connection over; its time-outs are the WebSocket's from now on."""
        self._handed_over = True
        self._end_in(None)
        HttpToolsProtocol.handle_websocket_upgrade(self)

    def _end_in(self, seconds: float | None) -> None:
        super()._end_in(None if self._handed_over else seconds)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        scope: Any = cycle.scope
        # A client that does not read its replies waits in uvicorn's way.
        if scope["path"] == "/act" and scope["method"] == "POST" and not self.flow.write_paused:
            take = None if cycle.waiting_for_100_continue else self.application.taker(scope)
            if take is not None:
                body = _Body(self, cycle, take)
                cycle.message_event = body  # type: ignore[assignment]
                if cycle.more_body:
                    body.set()
                else:  # it has waited for the one before it: not within that one's reply, or many would nest
                    self.loop.call_soon(body.set)
                return
        super()._start_asgi_task(cycle, app)


class _Body:
    """Stands in place of the event by which a cycle learns that its body grows or its client goes."""

    def __init__(self, connection: ServedHttp, cycle: RequestResponseCycle, take: Taker) -> None:
        self._connection, self._cycle, self._take = connection, cycle, take
        self._is_taken = False

    def set(self) -> None:
        """Hand a complete body on."""
        cycle = self._cycle
        if self._is_taken or cycle.disconnected:
            return
        if cycle.more_body:
            self._connection.flow.resume_reading()  # its length is known to be allowed
            return
        self._is_taken = True
        self._take(cycle.body, self._respond)

    def _respond(self, status: int, media_type: bytes, body: bytes) -> None:
        cycle, connection = self._cycle, self._connection
        if cycle.disconnected:
            return
        end = b"\r\n\r\n" if cycle.keep_alive else b"\r\nconnection: close\r\n\r\n"
        head = b"content-type: %b\r\ncontent-length: %d%b" % (media_type, len(body), end)
        connection.transport.write(b"".join((_HEADS[status], head, body)))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            connection.transport.close()
        cycle.on_response()


class ServedSocket(WebSocketsSansIOProtocol):
    """One connection of a client by WebSocket; one that does not read is closed."""

    _stalling: asyncio.TimerHandle | None = None

    def send_receive_event_to_app(self) -> None:
        """Hand a message on, and go on reading while few of them wait: uvicorn would stop at each."""
        if self.read_paused or self.queue.qsize() >= MOST_READ:
            super().send_receive_event_to_app()
            return
        self.read_paused = True
        super().send_receive_event_to_app()
        self.read_paused = False

    async def send(self, message: Any) -> None:
        """Send; a handshake that is refused is complete as well, else uvicorn would log an error for each."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    def shutdown(self) -> None:
        """Let the application answer what is under way, and close; uvicorn would close at once."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
            return
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": GOING_AWAY})

    def pause_writing(self) -> None:
        """Start the time-out of replies that are not read."""
        super().pause_writing()
        self._stalling = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop it."""
        super().resume_writing()
        self._read_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        self._read_again()
        super().connection_lost(exc)

    def _read_again(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
        self._stalling = None
