"""Tokens and their rights.

On loopback without a token every user of this machine has all rights. Foreign pages in a browser have none: the Host
header must name loopback (DNS rebinding). With a token, every request needs it.
"""

import hashlib
import hmac
import os
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from distrl.errors import ConfigError

Right = Literal["act", "look"]
SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Access:
    """The tokens of a server and their rights.

    Args:
        host: The address that the server listens on.
        token: Grants the right to act. Without any token, on loopback, every request has that right.
        read_only_token: Grants the right to look.
        variable: The environment variable that may hold the token.

    Raises:
        ConfigError: A host that others can reach, without a token; a token that is too short.
    """

    host: str
    token: str | None = None
    read_only_token: str | None = None
    variable: str = "DISTRL_DASHBOARD_TOKEN"

    def __post_init__(self) -> None:
        if self.open and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host} can be reached by other machines and there is no token; write one to a file and "
                f"add --token-file FILE (or set {self.variable}), or listen on 127.0.0.1"
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
        """Whether a page of this server would send this Host header. With a token any host is accepted."""
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
