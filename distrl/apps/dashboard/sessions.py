"""Sessions of signed-in browsers, and the limit of failed attempts per address. Both are kept only in memory."""

import hashlib
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Literal

Right = Literal["act", "look"]
IDLE_S = 12 * 3600.0
"""A session ends after that long without a request."""
LONGEST_S = 7 * 24 * 3600.0
"""Longest duration of a session."""
MOST_SESSIONS = 1000
"""Most sessions of each right; beyond that, the oldest one ends."""
FAILURES = 10
"""Most failures of an address; then it waits until one failure is `FORGIVE_S` old."""
FORGIVE_S = 60.0
MOST_ADDRESSES = 10_000
REPORT_S = 60.0
"""Failures of one address are logged in one line per that long."""
_LOG = logging.getLogger(__name__)


@dataclass
class _Session:
    right: Right
    began: float
    used: float


class Sessions:
    """Random session identifiers and their rights. Safe for several threads. Only hashes of identifiers are kept."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock  # the wall clock: sessions also end while the machine sleeps
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def begin(self, right: Right) -> str:
        """Begin a session and return its identifier."""
        identifier = secrets.token_urlsafe(32)
        now = self._clock()
        with self._lock:
            for key in [key for key, session in self._sessions.items() if self._is_over(session)]:
                del self._sessions[key]
            alike = [key for key, session in self._sessions.items() if session.right == right]
            for key in alike[
                : max(len(alike) - MOST_SESSIONS + 1, 0)
            ]:  # sign-ins with one right do not end sessions of the other
                del self._sessions[key]
            self._sessions[_key(identifier)] = _Session(right, now, now)
        return identifier

    def right(self, identifier: str) -> Right | None:
        """Return the right of a session; None if it does not exist or is over."""
        with self._lock:
            session = self._sessions.get(_key(identifier))
            if session is None or self._is_over(session):
                self._sessions.pop(_key(identifier), None)
                return None
            session.used = self._clock()
            return session.right

    def end(self, identifier: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_key(identifier), None)

    def _is_over(self, session: _Session) -> bool:
        now = self._clock()
        return now - session.used >= IDLE_S or now - session.began >= LONGEST_S


class Failures:
    """Counts failed attempts of a kind (`what`) per address, and logs them without the presented secret."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._times: OrderedDict[str, list[float]] = OrderedDict()
        self._reported: dict[str, float] = {}
        self._unreported: dict[str, int] = {}

    def wait_s(self, address: str) -> float:
        """Return how long an address must wait before its next attempt."""
        times = self._recent(_network(address))
        return max(times[-FAILURES] + FORGIVE_S - self._clock(), 0.0) if len(times) >= FAILURES else 0.0

    def add(self, address: str) -> None:
        """Record a failed attempt."""
        network = _network(address)
        self._times[network] = [*self._recent(network), self._clock()][-FAILURES:]
        self._times.move_to_end(network)
        while len(self._times) > MOST_ADDRESSES:
            oldest, _ = self._times.popitem(last=False)
            self._reported.pop(oldest, None)
            self._unreported.pop(oldest, None)
        self._report(network)

    def _recent(self, network: str) -> list[float]:
        return [at for at in self._times.get(network, ()) if self._clock() - at < FORGIVE_S]

    def _report(self, network: str) -> None:
        count = self._unreported.get(network, 0) + 1
        if self._clock() - self._reported.get(network, float("-inf")) < REPORT_S:
            self._unreported[network] = count
            return
        self._reported[network], self._unreported[network] = self._clock(), 0
        _LOG.warning("wrong %s from %s: %d", self._what, network, count)


def _network(address: str) -> str:
    """Return the address, or the /64 of an IPv6 address, as every host has that many addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(parsed, IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else f"{IPv6Address(int(parsed) >> 64 << 64)}/64"
    return address


def _key(identifier: str) -> bytes:
    return hashlib.sha256(identifier.encode(errors="surrogateescape")).digest()
