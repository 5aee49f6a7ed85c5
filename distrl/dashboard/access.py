"""Who may look and who may act: tokens, cookies, and the headers that keep foreign pages out.

On loopback without a token everybody on this machine may; a page from elsewhere that a browser on it shows may not: the
Host header must name loopback (DNS rebinding), and what acts needs a header that no foreign page can send.
With a token nobody is answered without it but by 401: `Authorization: Bearer …`, or a cookie that /login sets.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from distrl.errors import ConfigError

Right = Literal["act", "look"]
SHORTEST_TOKEN = 16
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every answer."""
CONTROL_HEADER = "x-distrl"


@dataclass(frozen=True)
class Access:
    """Who may do what.

    Args:
        host: What the server listens on.
        token: Of who may act; None: nobody, or on loopback without any token everybody.
        read_only_token: Of who may look.

    Raises:
        ConfigError: A host that others can reach, without a token; a token that is too short.
    """

    host: str
    token: str | None = None
    read_only_token: str | None = None

    def __post_init__(self) -> None:
        if self.open and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host} can be reached from elsewhere and there is no token; write one to a file and add "
                "--token-file FILE (or set DISTRL_DASHBOARD_TOKEN), or listen on 127.0.0.1"
            )
        for token in self._tokens:
            if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
                raise ConfigError(f"a token needs at least {SHORTEST_TOKEN} printable ASCII characters")
        if self.token is not None and self.token == self.read_only_token:
            raise ConfigError("the read-only token is the token itself; make another one")

    @property
    def open(self) -> bool:
        """Whether there is no token."""
        return not self._tokens

    @property
    def cookie_name(self) -> str:
        """Browsers send cookies to every port of a host: each dashboard has its own name."""
        return f"distrl-{_digest('name', *self._tokens)[:12]}"

    @property
    def _tokens(self) -> dict[str, Right]:
        given: list[tuple[str | None, Right]] = [(self.token, "act"), (self.read_only_token, "look")]
        return {token: right for token, right in given if token is not None}

    def host_is_ours(self, header: str | None) -> bool:
        """Whether a Host header is one that a page of ours would send. With a token any is: cookies know their host."""
        if not self.open:
            return True
        return header is not None and is_loopback(_hostname(header))

    def right_of_token(self, token: str) -> Right | None:
        """What a token allows; None: nothing."""
        found: Right | None = None
        for ours, right in self._tokens.items():  # all of them, always
            if hmac.compare_digest(_digest("token", token), _digest("token", ours)):
                found = right
        return found

    def right(self, authorization: str | None, cookies: str | None) -> Right | None:
        """What a request may do, by its headers; None: nothing."""
        if self.open:
            return "act"
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            return self.right_of_token(token.strip())
        try:
            morsel = SimpleCookie(cookies or "").get(self.cookie_name)
        except CookieError:
            return None
        presented = "" if morsel is None else morsel.value
        found: Right | None = None
        for ours, right in self._tokens.items():
            if hmac.compare_digest(presented.encode(), self.cookie_of(ours).encode()):
                found = right
        return found

    def cookie_of(self, token: str) -> str:
        """What a browser keeps in place of the token: it does not tell the token, and outlives the server."""
        return _digest("cookie", token)


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is of this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _hostname(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _digest(what: str, *tokens: str) -> str:
    text = "\n".join(tokens).encode(errors="surrogateescape")
    return hmac.new(text, f"distrl dashboard {what}".encode(), hashlib.sha256).hexdigest()
