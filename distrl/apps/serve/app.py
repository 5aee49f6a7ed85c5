"""The server's requests, as an ASGI application.

    GET    /               spaces, versions and limits
    POST   /act            an action, or several
    POST   /sessions       begin a session
    DELETE /sessions/ID    end it
    GET    /healthz        whether it serves; needs no token
    GET    /metrics        Prometheus' text
    GET    /demo/          a game that teaches the policy, with --demo; needs no token
    ws     /ws             any number of sessions

It uses no framework: an action takes some 20 µs, and Starlette's requests and responses would take longer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from distrl.apps.serve.batching import Batcher, Reply
from distrl.apps.serve.demo import PLACE, File, demo_replies
from distrl.apps.serve.exposition import MEDIA_TYPE, Measurements
from distrl.apps.serve.gate import ClientGate, Headers, token_of
from distrl.apps.serve.messages import (
    CODECS,
    JSON,
    MOST_ROWS,
    WANTS,
    ActRequest,
    Codec,
    RefusedError,
    codec_of_media_type,
    error_reply,
    request_of,
)
from distrl.apps.serve.report import ServerReport
from distrl.apps.serve.sessions import Change, ClientSessions, Learning
from distrl.apps.serve.sockets import Connection, Receive, Send, codec_of_subprotocols
from distrl.apps.serve.versions import PolicyTrack, PolicyVersions, warmed
from distrl.errors import DistrlError
from distrl.version import __version__

_LOG = logging.getLogger(__name__)
EXPIRE_S = 1.0
"""How often idle sessions are looked for."""
MOST_KNOWN = 4096
METHODS = {"/": "GET", "/act": "POST", "/sessions": "POST", "/healthz": "GET", "/metrics": "GET", "/ws": "WebSocket"}
LOOKS = {"/", "/metrics"}
"""Paths for which the right to look is enough."""
Scope = dict[str, Any]
Taker = Callable[[bytearray, Callable[[int, bytes, bytes], None]], None]
_PLAIN = {codec.media_type: codec for codec in CODECS}


@dataclass(frozen=True)
class ServeSettings:
    """How a server acts, and its limits.

    Attributes:
        window_s: How long a batch waits for further requests.
        greedy: The most probable action, where a request does not say.
        change: When sessions take a newer version.
        poll_s: How often a newer version is looked for.
        seed: Of drawn actions; None: chance.
        most_body_bytes: Longest message.
        most_sessions: Most sessions.
        session_idle_s: A session ends after that long without a request.
        most_connections: Most connections by WebSocket, and as many by HTTP.
        demo: Whether there is the page with the game.
    """

    window_s: float = 0.0
    greedy: bool = True
    change: Change = "episodes"
    poll_s: float = 1.0
    seed: int | None = None
    most_body_bytes: int = 4 * 2**20
    most_sessions: int = 10_000
    session_idle_s: float = 600.0
    most_connections: int = 1024
    demo: bool = False


class Application:
    """Serves versions of a policy. One event loop uses it.

    Args:
        report: Shows the server on a run's page; None: no page does.
    """

    _batcher: Batcher

    def __init__(
        self,
        versions: PolicyVersions,
        gate: ClientGate,
        settings: ServeSettings,
        report: ServerReport | None = None,
        learning: Learning | None = None,
    ) -> None:
        self._versions, self._gate, self._settings = versions, gate, settings
        self._report, self._learning = report, learning
        most, idle_s = settings.most_sessions, settings.session_idle_s
        self._sessions = ClientSessions(versions, most, idle_s, settings.change, learning)
        self._for_all: dict[str, tuple[int, dict[str, Any] | File]] = {"/healthz": (200, {"ok": True})}
        self._methods = METHODS
        if settings.demo:
            self._for_all |= demo_replies()
            self._methods = METHODS | {PLACE: "GET"}
        self._measured = Measurements()
        self._tasks: list[asyncio.Task[None]] = []
        self._known: dict[tuple[Any, ...], Codec] = {}  # address and headers of clients that may act

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._batcher = Batcher(
            self._versions,
            self._sessions,
            window_s=self._settings.window_s,
            greedy=self._settings.greedy,
            seed=self._settings.seed,
            observed=self._measured.batch,
            ended=self._measured.returns.add,
        )
        followed = [track for track in self._versions.tracks if track.source.follows]
        self._tasks = [asyncio.create_task(self._follow(track)) for track in followed]
        self._tasks.append(asyncio.create_task(self._expire()))
        if self._report is not None:
            kept = self._report.keep(self._versions, self._sessions, self._measured, self._batcher)
            self._tasks.append(asyncio.create_task(kept))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._batcher.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _follow(self, track: PolicyTrack) -> None:
        """Look for newer versions of a track; each acts once before it takes over."""
        reported = ""
        while True:
            await asyncio.sleep(self._settings.poll_s)
            try:
                policy = await asyncio.to_thread(warmed, track.source)
                if policy is not None:
                    version = self._versions.add(track, policy)
                    self._sessions.leave_old()
                    level = logging.INFO if self._learning is None else logging.DEBUG  # with each update
                    _LOG.log(level, "%s of %s: version %d", track.name, track.source.name, version.number)
                reported = ""
            except (DistrlError, OSError) as error:
                if str(error) != reported:  # a store that is away is reported once
                    reported = str(error)
                    self._measured.failed_changes += 1
                    _LOG.warning("%s: version %d goes on: %s", track.source.name, track.newest.number, error)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S)
            self._sessions.expire()
            if self._learning is not None:
                self._learning.tidy()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = dict(scope["headers"])
        codec = JSON
        origin: str | None = None
        try:
            _check_once(scope)
            if headers.get(b"content-encoding", b"identity") != b"identity":
                raise RefusedError(415, "the body has a content encoding; send it plain")
            origin = self._gate.check_origin(headers)
            codec = codec_of_media_type(headers.get(b"content-type", b""))
            status, reply = await self._answer(scope, headers, codec, receive)
        except RefusedError as error:
            status, reply = error.status, error_reply(error)
        if scope["path"] == "/act":
            self._measured.requests["http", status] += 1
        file = reply if isinstance(reply, File) else File(codec.media_type, codec.dump(reply))
        body = file.body
        lines = [(b"content-type", file.media_type), (b"content-length", b"%d" % len(body)), *file.headers]
        if status >= 400 and scope["method"] in ("POST", "DELETE") and status in (411, 413, 415):
            lines.append((b"connection", b"close"))  # the rest of its body is not read
        if origin is not None:
            lines += _shared_with(origin)
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(
        self, scope: Scope, headers: Headers, codec: Codec, receive: Receive
    ) -> tuple[int, dict[str, Any] | File]:
        path, method = scope["path"], scope["method"]
        if path in self._for_all and method in ("GET", "HEAD"):
            return self._for_all[path]
        if method == "OPTIONS":  # a page asks before it sends JSON
            return 200, {}
        address = _address(scope)
        right = await self._gate.right(headers, address)
        is_session = path.startswith("/sessions/")
        wanted = "DELETE" if is_session else self._methods.get(path)
        if wanted is None:
            raise RefusedError(404, f"there is no such path; there are {', '.join(self._methods)} and /sessions/ID")
        if method != wanted and not (method == "HEAD" and wanted == "GET"):
            raise RefusedError(405, f"{path if path in self._methods else '/sessions/ID'} takes {wanted}")
        if path not in LOOKS and right != "act":
            raise RefusedError(403, "this token may only look")
        if path == "/act":
            return await self._act(codec, await self._body(headers, receive), address)
        if is_session:
            return self._end_session(path.removeprefix("/sessions/"))
        if path == "/sessions":
            return self._begin_session(codec, await self._body(headers, receive))
        if path == "/metrics":
            text = self._measured.text(self._versions, self._sessions, self._batcher.waiting)
            return 200, File(MEDIA_TYPE, text)
        return 200, self._description()

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        most = self._settings.most_body_bytes
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > most:
            raise RefusedError(413, f"the body is longer than {most:,} bytes")
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "the client went before its body was complete")
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise RefusedError(413, f"the body is longer than {most:,} bytes")
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _act(self, codec: Codec, body: bytes, address: str) -> tuple[int, dict[str, Any]]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._submit(codec, body, address, _setter(future))
        reply = await future
        return reply.get("status", 200), reply

    def _submit(self, codec: Codec, body: bytes, address: str, reply: Reply) -> None:
        """Take a request to act; `reply` is called with its reply, now or later."""
        request: ActRequest | None = None
        try:
            request = request_of(codec.load(body))
            self._gate.count(address, max(len(request.observations), 1))
            session = None
            if request.session is not None:
                session = self._sessions.find(None, request.session)
                if session is None:
                    raise RefusedError(404, "there is no such session, or it was idle: POST /sessions begins one")
            self._batcher.submit(request, reply, session)
        except RefusedError as error:
            reply(error_reply(error, request))

    def taker(self, scope: Scope) -> Taker | None:
        """Return what takes the body of a plain request to act; None: `__call__` answers it, as all others.

        The function gets the body, and another one that it calls with status, media type and body of the reply.
        """
        address = _address(scope)
        key = (address, *scope["headers"])
        codec = self._known.get(key)
        if codec is None:
            headers = dict(scope["headers"])
            codec = self._plain(headers, address) if len(headers) == len(scope["headers"]) else None
            if codec is None:
                return None
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = codec
        known = codec

        def take(body: bytearray, respond: Callable[[int, bytes, bytes], None]) -> None:
            def reply(tree: dict[str, Any]) -> None:
                status = tree.get("status", 200)
                self._measured.requests["http", status] += 1
                respond(status, known.media_type, known.dump(tree))

            self._submit(known, bytes(body), address, reply)

        return take

    def _plain(self, headers: Headers, address: str) -> Codec | None:
        """Return the codec of a request with the right to act, of no page and within the limits; else None."""
        length = headers.get(b"content-length", b"")
        is_plain = b"origin" not in headers and b"content-encoding" not in headers
        if not is_plain or not length.isdigit() or len(length) > 9 or int(length) > self._settings.most_body_bytes:
            return None
        if self._gate.right_now(headers, address) != "act":
            return None
        return _PLAIN.get(headers.get(b"content-type", b""))

    def _begin_session(self, codec: Codec, body: bytes) -> tuple[int, dict[str, Any]]:
        if body and codec.load(body) != {}:
            raise RefusedError(400, "a session begins without fields; leave the body empty")
        session = self._sessions.begin()
        return 201, {"session": session.key[1], "version": session.version.number}

    def _end_session(self, name: str) -> tuple[int, dict[str, Any]]:
        session = self._sessions.find(None, name)
        if session is None:
            raise RefusedError(404, "there is no such session, or it was idle")
        self._sessions.end(session)
        return 200, {"ended": name}

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers: Headers = dict(scope["headers"])
        subprotocols: list[str] = scope["subprotocols"]
        address = _address(scope)
        try:
            right = await self._gate.right(headers, address, token_of(subprotocols))
            if scope["path"] != "/ws":
                raise RefusedError(404, "WebSockets are at /ws")
            if right != "act":
                raise RefusedError(403, "this token may only look")
            if self._measured.websockets >= self._settings.most_connections:
                raise RefusedError(503, f"there are {self._settings.most_connections:,} connections", 1.0)
        except RefusedError as error:
            lines = [(b"content-type", JSON.media_type)]
            await send({"type": "websocket.http.response.start", "status": error.status, "headers": lines})
            await send({"type": "websocket.http.response.body", "body": JSON.dump(error_reply(error))})
            return
        codec = codec_of_subprotocols(subprotocols)
        chosen = codec.subprotocol if codec.subprotocol in subprotocols else None
        await send({"type": "websocket.accept", "subprotocol": chosen})
        self._measured.websockets += 1
        try:
            connection = Connection(codec, address, self._gate, self._sessions, self._batcher, self._measured)
            await connection.serve(receive, send)
        finally:
            self._measured.websockets -= 1

    def _description(self) -> dict[str, Any]:
        settings, spec = self._settings, self._versions.spec
        policies = {
            track.name: {
                "source": track.source.name,
                "version": track.newest.number,
                "algorithm": track.newest.policy.exported.algorithm,
                "env_steps": track.newest.policy.exported.env_steps,
                "share": track.share,
            }
            for track in self._versions.tracks
        }
        return {
            "distrl": __version__,
            "environment": spec.id,
            "observations": {name: asdict(array) for name, array in spec.observations.items()},
            "actions": {name: asdict(action) for name, action in spec.actions.items()},
            "remembers": self._versions.remembers,
            "greedy": settings.greedy,
            "learns": self._learning is not None,
            "want": sorted(WANTS),
            "policies": policies,
            "limits": {
                "body_bytes": settings.most_body_bytes,
                "observations": MOST_ROWS,
                "sessions": settings.most_sessions,
                "session_idle_s": settings.session_idle_s,
                "connections": settings.most_connections,
            },
        }


def _setter(future: "asyncio.Future[dict[str, Any]]") -> Any:
    def take(reply: dict[str, Any]) -> None:
        if not future.done():  # the request may have been cancelled, at the server's end
            future.set_result(reply)

    return take


_ONCE = (b"host", b"authorization", b"origin", b"content-type", b"content-encoding")


def _check_once(scope: Scope) -> None:
    """Raise RefusedError if a header that decides something comes twice."""
    names = [name for name, _ in scope["headers"]]
    for name in _ONCE:
        if names.count(name) > 1:
            raise RefusedError(400, f"the header {name.decode()} comes twice")


def _address(scope: Scope) -> str:
    """Return the peer address of the connection; headers are not considered."""
    address, _ = scope.get("client") or ("", 0)
    return str(address)


def _shared_with(origin: str) -> Iterable[tuple[bytes, bytes]]:
    """Return headers by which a browser shows the reply to a page of another origin."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-headers", b"authorization, content-type"),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"vary", b"origin"),
    ]
