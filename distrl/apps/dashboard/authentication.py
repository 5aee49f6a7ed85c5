"""Authentication: the right of each request by token or session, sign-in and sign-out, and the middleware.

A failed attempt waits, counts against its address, and is logged. After too many of them an address gets 429 for any
token until the failures are a minute old. Existing sessions continue: their identifiers have 256 random bits and cannot
be guessed.
"""

import asyncio
import html
import math
from base64 import b64encode
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distrl.apps.dashboard.access import CONTROL_HEADER, HEADERS, POLICY
from distrl.apps.dashboard.sessions import Sessions
from distrl.apps.web.access import Access, Right
from distrl.apps.web.failures import Failures
from distrl.errors import ConfigError

LOGIN, LOGOUT, HEALTH = "/login", "/logout", "/healthz"
READS = ("GET", "HEAD")
MOST_BODY_BYTES = 16 * 1024
WRONG_TOKEN_S = 0.5
"""Delay of a failed attempt."""
_STYLE = """
:root { color-scheme: light dark; color: light-dark(#1b1f24, #e8eaed); background: light-dark(#fff, #121417); }
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
<body><main><form method="post" action="/login"><h1>distrl dashboard</h1>
<label for="token">Token</label>
<input id="token" name="token" type="password" required autocomplete="current-password">
{problem}<button type="submit">Sign in</button></form></main></body></html>
"""
LOGIN_POLICY = POLICY.replace(
    "style-src 'self'", f"style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"
)


class TooLargeError(ConfigError):
    """A body beyond `MOST_BODY_BYTES`."""


class Shown(NamedTuple):
    """The right of a request and the identifier of the session in its cookie; None where there is none."""

    right: Right | None
    session: str | None = None


class Authenticator:
    """Decides the right of a request. Used only on the event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sessions = Sessions()
        self._tokens = Failures("tokens")
        self._cookies = Failures("session cookies")

    async def pass_through(self, scope: Scope) -> Shown | Response:
        """Return the request's right, by its token or else its cookie, or the answer to a failed attempt."""
        headers, address = Headers(scope=scope), _address(scope)
        if self._access.open:
            return Shown("act")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            wait_s = self._tokens.wait_s(address)
            right = None if wait_s else self._access.right_of_token(token.strip())
            return Shown(right) if right is not None else await self._failed(self._tokens, address, wait_s, headers)
        shown = self.by_cookie(scope)
        if shown.right is not None or not _cookies(scope):
            return shown
        answer = await self._failed(self._cookies, address, self._cookies.wait_s(address), headers)
        answer.delete_cookie(cookie_name(scope))  # a browser whose session is over fails once
        return answer

    def by_cookie(self, scope: Scope) -> Shown:
        """Return the right of the session in the request's cookie; several cookies grant none."""
        found = _cookies(scope)
        right = self._sessions.right(found[0]) if len(found) == 1 else None
        return Shown(right, found[0] if right is not None else None)

    async def sign_in(self, request: Request) -> Response:
        """Answer /login: show the form, or take a token and begin a session."""
        # By the cookie only: an answer that depended on other tokens would let them be guessed without a delay.
        shown = self.by_cookie(request.scope)
        if self._access.open or (request.method != "POST" and shown.right == "act"):
            return RedirectResponse("/", 303)
        if request.method != "POST":
            return login_page(401)
        # A foreign page must not sign its visitor in with its own token.
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return login_page(403, "sign in from this page")
        body = (await read_body(request)).decode(errors="replace")
        token = parse_qs(body).get("token", [""])[0].strip()
        address = _address(request.scope)
        if wait_s := self._tokens.wait_s(address):
            return login_page(429, f"too many wrong tokens from this address; try again in {math.ceil(wait_s)} s")
        right = self._access.right_of_token(token)
        if right is None:
            self._tokens.add(address)
            await asyncio.sleep(WRONG_TOKEN_S)
            return login_page(401, "that is not the token")
        if shown.session is not None:
            self._sessions.end(shown.session)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            cookie_name(request.scope),
            self._sessions.begin(right),
            httponly=True,
            samesite="strict",
            # Behind a proxy the request's own scheme is http; a browser names the page's.
            secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:"),
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        """Answer /logout: end the session of the request's cookie."""
        shown = self.by_cookie(request.scope)
        if shown.session is not None:
            self._sessions.end(shown.session)
        answer = JSONResponse({"message": "signed out"})
        answer.delete_cookie(cookie_name(request.scope))
        return answer

    async def _failed(self, failures: Failures, address: str, wait_s: float, headers: Headers) -> Response:
        if wait_s:
            told = f"too many failed attempts from this address; try again in {math.ceil(wait_s)} s"
            return JSONResponse({"error": told}, 429, {"Retry-After": str(math.ceil(wait_s))})
        failures.add(address)
        await asyncio.sleep(WRONG_TOKEN_S)
        return refused(headers)


def refused(headers: Headers) -> Response:
    """Return the response to a request without a right: the form for a browser that requests a page, or an error."""
    if "text/html" in headers.get("accept", ""):
        return login_page(401)
    return JSONResponse(
        {"error": "a token is needed: Authorization: Bearer …, or sign in at /login"},
        401,
        {"WWW-Authenticate": 'Bearer realm="distrl"'},
    )


def cookie_name(scope: Scope) -> str:
    """Return the name of this dashboard's cookie, with its port: browsers send cookies to every port of a host."""
    _, port = scope.get("server") or ("", 0)
    return f"distrl-{port}"


def _cookies(scope: Scope) -> list[str]:
    pairs = [pair.strip().partition("=") for pair in Headers(scope=scope).get("cookie", "").split(";")]
    return [value for name, _, value in pairs if name == cookie_name(scope)]


def login_page(status: int, problem: str = "") -> Response:
    """Return the sign-in form."""
    told = f'<p role="alert">{html.escape(problem)}</p>' if problem else ""
    return HTMLResponse(_PAGE.format(style=_STYLE, problem=told), status, {"Content-Security-Policy": LOGIN_POLICY})


def client_of(request: Request) -> str:
    """Return the address of who asks."""
    return request.client.host if request.client else "unknown"


async def read_body(request: Request, most: int = MOST_BODY_BYTES) -> bytes:
    """Return a request's body of at most so many bytes, or raise TooLargeError."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise TooLargeError(f"the body is longer than {most:,} bytes")
    return body


def _address(scope: Scope) -> str:
    """Return the peer address of the connection; headers are not considered."""
    address, _ = scope.get("client") or ("", 0)
    return str(address)


class Guard:
    """ASGI middleware. Puts `right` ("act" or "look") and `session` into the request's state."""

    def __init__(self, app: ASGIApp, access: Access, authenticator: Authenticator) -> None:
        self._app = app
        self._access = access
        self._authenticator = authenticator

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
        if scope["path"] == LOGIN and scope["method"] in (*READS, "POST"):
            return None
        if scope["path"] == HEALTH and scope["method"] in READS:  # a probe has no token; a wrong one is not looked at
            return None
        shown = await self._authenticator.pass_through(scope)
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
    if right != "act" and path != LOGOUT:
        return JSONResponse({"error": "this token may only look"}, 403)
    return None
