"""Middleware around every request: its right, the page that it comes from, and the headers of every answer."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distrl.dashboard.access import CONTROL_HEADER, HEADERS, Access
from distrl.dashboard.door import DOOR, WAY_OUT, Door, refused

READS = ("GET", "HEAD")


class Guard:
    """ASGI middleware. Puts `right` ("act" or "look") and `session` into the request's state."""

    def __init__(self, app: ASGIApp, access: Access, door: Door) -> None:
        self._app = app
        self._access = access
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = await self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    async def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._access.host_is_ours(headers.get("host")):
            return JSONResponse({"error": "this host name is not the dashboard's; open it by 127.0.0.1"}, 403)
        if scope["path"] == DOOR and scope["method"] in (*READS, "POST"):
            return None
        shown = await self._door.pass_through(scope)
        if isinstance(shown, Response):
            return shown
        if shown.right is None:
            return refused(headers)
        scope.setdefault("state", {}).update(right=shown.right, session=shown.session)
        # Browsers name the page that a request comes from, at least where the dashboard is on loopback or behind TLS.
        navigation = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in READS
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not navigation:
            return JSONResponse({"error": "requests of other pages are refused"}, 403)
        if scope["method"] not in READS:
            return _refused_action(headers, shown.right, scope["path"])
        return None


def _refused_action(headers: Headers, right: str, path: str) -> Response | None:
    if headers.get(CONTROL_HEADER) != "1":
        return JSONResponse({"error": "requests that act need the header X-Distrl: 1"}, 403)
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return JSONResponse({"error": "requests that act are of content type application/json"}, 403)
    if right != "act" and path != WAY_OUT:
        return JSONResponse({"error": "this token may only look"}, 403)
    return None
