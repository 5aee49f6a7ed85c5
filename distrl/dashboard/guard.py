"""Around every request: who asks, from where, and the headers of every answer; and the door that /login is."""

import asyncio
import html
from base64 import b64encode
from hashlib import sha256
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distrl.dashboard.access import CONTROL_HEADER, HEADERS, POLICY, Access
from distrl.errors import ConfigError

DOOR = "/login"
MOST_BODY_BYTES = 16 * 1024
WRONG_TOKEN_S = 0.5
"""Whoever guesses waits for that long."""
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; display: grid; place-items: center; min-height: 90vh; margin: 0 16px; }
form { display: grid; gap: 12px; width: min(360px, 100%); }
h1 { font-size: 20px; margin: 0; }
input, button { font: inherit; padding: 8px 12px; border-radius: 8px; border: 1px solid #8888; }
button { background: #3b5bdb; color: #fff; border-color: #3b5bdb; cursor: pointer; }
input:focus-visible, button:focus-visible { outline: 3px solid #748ffc; outline-offset: 1px; }
p { margin: 0; color: light-dark(#b42318, #ff9c8f); }
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>distrl · sign in</title><style>{style}</style></head>
<body><form method="post" action="/login"><h1>distrl dashboard</h1>
<label for="token">Token</label>
<input id="token" name="token" type="password" required autocomplete="current-password">
{problem}<button type="submit">Sign in</button></form></body></html>
"""
LOGIN_POLICY = POLICY.replace(
    "style-src 'self'", f"style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"
)


class TooLargeError(ConfigError):
    """A body beyond `MOST_BODY_BYTES`."""


class Guard:
    """ASGI middleware. Puts `right` ("act" or "look") into the request's state."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

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

        refusal = self._refusal(scope)
        if refusal is not None and refusal.status_code == 401 and Headers(scope=scope).get("authorization"):
            await asyncio.sleep(WRONG_TOKEN_S)
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        if not self._access.host_is_ours(headers.get("host")):
            return JSONResponse({"error": "this host name is not the dashboard's; open it by 127.0.0.1"}, 403)
        right = self._access.right(headers.get("authorization"), headers.get("cookie"))
        scope.setdefault("state", {})["right"] = right
        if path == DOOR and scope["method"] in ("GET", "HEAD", "POST"):
            return None
        if right is None:
            if "text/html" in headers.get("accept", "") and scope["method"] == "GET":
                return login_page(401)
            return JSONResponse(
                {"error": "a token is needed: Authorization: Bearer …, or sign in at /login"},
                401,
                {"WWW-Authenticate": 'Bearer realm="distrl"'},
            )
        if scope["method"] not in ("GET", "HEAD"):
            return _refused_action(headers, right)
        return None


def _refused_action(headers: Headers, right: str) -> Response | None:
    if headers.get(CONTROL_HEADER) != "1":
        return JSONResponse({"error": "requests that act need the header X-Distrl: 1"}, 403)
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return JSONResponse({"error": "requests that act are of content type application/json"}, 403)
    if right != "act":
        return JSONResponse({"error": "this token may only look"}, 403)
    return None


def login_page(status: int, problem: str = "") -> Response:
    """The form that takes a token."""
    told = f'<p role="alert">{html.escape(problem)}</p>' if problem else ""
    return HTMLResponse(_PAGE.format(style=_STYLE, problem=told), status, {"Content-Security-Policy": LOGIN_POLICY})


async def login(request: Request, access: Access) -> Response:
    """Takes a token and sets the cookie; who has one already goes on to the page."""
    # By the cookie alone: an answer that depended on other tokens would let them be guessed without a pause.
    if access.open or (request.method != "POST" and access.right(None, request.headers.get("cookie")) == "act"):
        return RedirectResponse("/", 303)
    if request.method != "POST":
        return login_page(401)
    # A page from elsewhere cannot sign its visitor in with a token of its own.
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return login_page(403, "sign in from this page")
    body = (await read_body(request)).decode(errors="replace")
    token = parse_qs(body).get("token", [""])[0].strip()
    if access.right_of_token(token) is None:
        await asyncio.sleep(WRONG_TOKEN_S)
        return login_page(401, "that is not the token")
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        access.cookie_name,
        access.cookie_of(token),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


async def read_body(request: Request) -> bytes:
    """A request's body.

    Raises:
        TooLargeError: It is longer than anything the dashboard takes.
    """
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY_BYTES:
            raise TooLargeError(f"the body is longer than {MOST_BODY_BYTES:,} bytes")
    return body
