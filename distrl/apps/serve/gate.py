"""The right to send requests: tokens, names of this host, pages of other origins, and the rate by client."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from distrl.apps.serve.messages import RefusedError
from distrl.apps.web.access import Access, Right
from distrl.apps.web.failures import Failures, network_of

WRONG_TOKEN_S = 0.5
"""Delay of a wrong token."""
MOST_ADDRESSES = 10_000
BURST_S = 1.0
"""A client may save up so much of its rate."""
BEARER = "bearer."
"""Begins the subprotocol that carries a token: pages cannot set other headers of a WebSocket."""
Headers = Mapping[bytes, bytes]


class ClientGate:
    """Decides the right of a request, and counts what each client asks for.

    Args:
        rate: Observations per second of one address; None: any number.
        origins: Pages of these origins may send requests, beside those of this host: "https://game.example.com".
    """

    def __init__(
        self,
        access: Access,
        rate: float | None = None,
        origins: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._rate = rate
        self._origins = origins
        self._clock = clock
        self._failures = Failures("tokens")
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when it was
        self._is_ours = lru_cache(256)(lambda host: access.host_is_ours(host.decode("latin-1")))

    async def right(self, headers: Headers, address: str, token: str | None = None) -> Right:
        """Return the right of a request.

        Args:
            token: As a WebSocket's subprotocol carries it; None: the header Authorization may.

        Raises:
            RefusedError: It has none.
        """
        if not self._is_ours(headers.get(b"host", b"")):
            raise RefusedError(403, "this host name is not the server's; use 127.0.0.1, or start it with a token")
        self.check_origin(headers)
        if self._access.open:
            return "act"
        if token is None:
            scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            token = given.strip() if scheme.lower() == "bearer" else None
        if token is None:
            raise RefusedError(401, "a token is needed: Authorization: Bearer …")
        if wait_s := self._failures.wait_s(address):
            raise RefusedError(429, "too many wrong tokens from this address", float(math.ceil(wait_s)))
        right = self._access.right_of_token(token)
        if right is None:
            self._failures.add(address)
            await asyncio.sleep(WRONG_TOKEN_S)
            raise RefusedError(401, "that is not the token")
        return right

    def right_now(self, headers: Headers, address: str) -> Right | None:
        """Return the right of a request that no page sends, or None, for which `right` has the reason."""
        if not self._is_ours(headers.get(b"host", b"")) or b"origin" in headers:
            return None
        if self._access.open:
            return "act"
        scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or self._failures.wait_s(address):
            return None
        return self._access.right_of_token(given.strip())

    def check_origin(self, headers: Headers) -> str | None:
        """Return the origin of a page elsewhere that may send requests; None: it is no page, or this server's own.

        Raises:
            RefusedError: It is a page of another origin.
        """
        origin = headers.get(b"origin")
        if origin is None:
            return None
        text = origin.decode("latin-1")
        if text in self._origins:
            return text
        if _host_of(text) == headers.get(b"host", b"").decode("latin-1").lower():
            return None
        raise RefusedError(403, "pages of this origin may not send requests; name it with --origin")

    def count(self, address: str, observations: int) -> None:
        """Count observations of a client.

        Raises:
            RefusedError: It sends too many.
        """
        if self._rate is None:
            return
        network, now = network_of(address), self._clock()
        most = max(self._rate * BURST_S, float(observations) if network not in self._buckets else 1.0)
        left, then = self._buckets.pop(network, (most, now))
        left = min(left + (now - then) * self._rate, most)
        allowed = left >= observations
        self._buckets[network] = (left - observations if allowed else left, now)
        while len(self._buckets) > MOST_ADDRESSES:
            self._buckets.popitem(last=False)
        if not allowed:
            wait_s = (observations - left) / self._rate
            raise RefusedError(
                429, f"more than {self._rate:g} observations per second from one address", round(wait_s, 3)
            )


def token_of(subprotocols: list[str]) -> str | None:
    """Return the token among a WebSocket's subprotocols, or None."""
    return next((name[len(BEARER) :] for name in subprotocols if name.startswith(BEARER)), None)


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
