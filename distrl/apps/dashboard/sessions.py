"""Sessions of signed-in browsers, kept only in memory."""

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from distrl.apps.web.access import Right

IDLE_S = 12 * 3600.0
"""A session ends after that long without a request."""
LONGEST_S = 7 * 24 * 3600.0
"""Longest duration of a session."""
MOST_SESSIONS = 1000
"""Most sessions of each right; beyond that, the oldest one ends."""


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


def _key(identifier: str) -> bytes:
    return hashlib.sha256(identifier.encode(errors="surrogateescape")).digest()
