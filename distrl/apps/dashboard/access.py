"""Tokens and their rights, and the headers that keep foreign pages out.

On loopback without a token every user of this machine may read and control runs. Foreign pages in a browser may not:
the Host header must name loopback (DNS rebinding), and requests that act need a header that a foreign page cannot send.
With a token, every request needs `Authorization: Bearer …` or the cookie of a session from /login; others get 401.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from distrl.apps.dashboard.sessions import Right
from distrl.errors import ConfigError

TOKEN_VARIABLE = "DISTRL_DASHBOARD_TOKEN"
READ_ONLY_TOKEN_VARIABLE = "DISTRL_DASHBOARD_READ_ONLY_TOKEN"
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
"""Headers of every response."""
CONTROL_HEADER = "x-distrl"


@dataclass(frozen=True)
class Access:
    """The tokens of a dashboard and their rights.

    Args:
        host: The address that the server listens on.
        token: Grants the right to act. Without any token, on loopback, every request has that right.
        read_only_token: Grants the right to look.

    Raises:
        ConfigError: A host that others can reach, without a token; a token that is too short.
    """

    host: str
    token: str | None = None
    read_only_token: str | None = None

    def __post_init__(self) -> None:
        if self.open and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host} can be reached by other machines and there is no token; write one to a file and "
                "add --token-file FILE (or set DISTRL_DASHBOARD_TOKEN), or listen on 127.0.0.1"
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
    def _tokens(self) -> dict[str, Right]:
        given: list[tuple[str | None, Right]] = [(self.token, "act"), (self.read_only_token, "look")]
        return {token: right for token, right in given if token is not None}

    def host_is_ours(self, header: str | None) -> bool:
        """Whether the dashboard's own page would send this Host header. With a token any host is accepted."""
        if not self.open:
            return True
        return header is not None and is_loopback(_hostname(header))

    def right_of_token(self, token: str) -> Right | None:
        """Return the right that a token grants, or None."""
        found: Right | None = None
        for ours, right in self._tokens.items():  # all of them, always
            if hmac.compare_digest(_digest(token), _digest(ours)):
                found = right
        return found


def token_of_environment(variable: str) -> str | None:
    """Return the token in an environment variable, or None."""
    return os.environ.get(variable) or None


def access_of_environment(host: str) -> Access:
    """Return the access to a dashboard whose tokens come from the environment only."""
    return Access(host, *map(token_of_environment, (TOKEN_VARIABLE, READ_ONLY_TOKEN_VARIABLE)))


def is_loopback(host: str) -> bool:
    """Whether a host name or address is loopback."""
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


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
