"""A WebSocket: any number of sessions, whose requests may be under way at the same time.

Replies come in the order of their batches, and name session and id of their request. A client that does not read its
replies is not read from either, once so many of its requests are under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from distrl.apps.serve.batching import Batcher
from distrl.apps.serve.exposition import Measurements
from distrl.apps.serve.gate import ClientGate
from distrl.apps.serve.messages import JSON, MSGPACK, ActRequest, Codec, RefusedError, error_reply, request_of
from distrl.apps.serve.sessions import MOST_PER_CONNECTION, ClientSession, ClientSessions

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
MOST_UNDER_WAY = 256
"""Most requests of a connection without a reply that it has taken."""
UNSUPPORTED, GOING_AWAY = 1003, 1012


class Connection:
    """One client's WebSocket, after its handshake."""

    def __init__(
        self,
        codec: Codec,
        address: str,
        gate: ClientGate,
        sessions: ClientSessions,
        batcher: Batcher,
        measured: Measurements,
    ) -> None:
        self._codec = codec
        self._address = address
        self._gate, self._sessions, self._batcher, self._measured = gate, sessions, batcher, measured
        self._replies: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._own: dict[str | int, ClientSession] = {}
        self._under_way = 0
        self._room, self._answered = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._answered.set()

    async def serve(self, receive: Receive, send: Send) -> None:
        """Answer messages until the client or the server closes the connection."""
        writer = asyncio.ensure_future(self._write(send))
        try:
            while (message := await receive())["type"] == "websocket.receive":
                text, data = message.get("text"), message.get("bytes")
                if (text is None) == (self._codec is JSON):
                    kind = "text" if self._codec is JSON else "binary"
                    await send({"type": "websocket.close", "code": UNSUPPORTED, "reason": f"messages are {kind}"})
                    return
                self._take(text if data is None else data)
                await self._room.wait()
            if message["code"] == GOING_AWAY:  # the server ends
                await self._answered.wait()
                await send({"type": "websocket.close", "code": GOING_AWAY})
        finally:
            self._replies.put_nowait(None)
            for session in self._own.values():
                self._sessions.end(session)
            await writer

    def _take(self, body: Any) -> None:
        self._under_way += 1
        self._answered.clear()
        if self._under_way >= MOST_UNDER_WAY:
            self._room.clear()
        request: ActRequest | None = None
        try:
            message = self._codec.load(body)
            if isinstance(message, dict) and "end" in message:
                return self._end_session(message)
            request = request_of(message)
            self._gate.count(self._address, max(len(request.observations), 1))
            session = None if request.session is None else self._session(request.session)
            self._batcher.submit(request, self._reply, session)
        except RefusedError as error:
            self._reply(error_reply(error, request))

    def _session(self, name: str | int) -> ClientSession:
        session = self._own.get(name)
        if session is not None and self._sessions.find(self, name) is session:
            return session
        if len(self._own) >= MOST_PER_CONNECTION:
            self._own = {name: one for name, one in self._own.items() if self._sessions.find(self, name) is one}
            if len(self._own) >= MOST_PER_CONNECTION:
                raise RefusedError(503, f"this connection has {MOST_PER_CONNECTION:,} sessions, the most that it may")
        session = self._own[name] = self._sessions.begin(self, name)
        return session

    def _end_session(self, message: dict[str, Any]) -> None:
        name = message["end"]
        is_name = isinstance(name, str | int) and not isinstance(name, bool)  # True is 1
        known = message.keys() == {"end"} and is_name and name in self._own
        if not known:
            raise RefusedError(404, "end names a session of this connection, and stands alone")
        self._sessions.end(self._own.pop(name))
        self._reply({"ended": name})

    def _reply(self, reply: dict[str, Any]) -> None:
        self._measured.requests["websocket", reply.get("status", 200)] += 1
        self._replies.put_nowait(self._codec.dump(reply))

    async def _write(self, send: Send) -> None:
        field = "text" if self._codec is JSON else "bytes"
        is_open = True
        while (body := await self._replies.get()) is not None:
            if is_open:
                try:
                    await send({"type": "websocket.send", field: body.decode() if field == "text" else body})
                except (OSError, RuntimeError):  # the client has gone, or the connection closes
                    is_open = False
            self._under_way -= 1
            if self._under_way < MOST_UNDER_WAY:
                self._room.set()
            if not self._under_way:
                self._answered.set()


def codec_of_subprotocols(subprotocols: list[str]) -> Codec:
    """Return the codec that a client asks for; JSON if it asks for none."""
    return MSGPACK if MSGPACK.subprotocol in subprotocols else JSON
