"""Sessions: the state of the policy for each client's episode, the version that it acts with, and the limits.

A session of HTTP has an identifier that the server draws. Those of a WebSocket are named by the client, belong to its
connection and end with it.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from random import random
from typing import Literal

from distrl.apps.serve.messages import RefusedError
from distrl.apps.serve.versions import PolicyVersions, Version
from distrl.serving.exported_policy import PolicyState

Change = Literal["episodes", "now"]
MOST_PER_CONNECTION = 1024
Key = tuple[Hashable, str | int]
"""The owner, which is None for HTTP and a connection otherwise, and the name."""


@dataclass(slots=True, eq=False)
class ClientSession:
    """One client's sequence of episodes.

    Attributes:
        state: The policy's memory of the episode; None: there is none, or the next observation is its first.
        acts: Whether the episode has begun.
        is_busy: A request is under way.
    """

    key: Key
    version: Version
    used: float
    state: PolicyState | None = None
    acts: bool = False
    is_busy: bool = False


class ClientSessions:
    """All sessions. Used only on the event loop.

    Args:
        most: Most sessions; beyond, a new one is refused until another one has ended or is idle.
        idle_s: A session ends after that long without a request.
        change: When a session takes a newer version: at its next episode, or at once.
    """

    def __init__(
        self,
        versions: PolicyVersions,
        most: int,
        idle_s: float,
        change: Change = "episodes",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._versions = versions
        self._most = most
        self._idle_s = idle_s
        self._change = change
        self._clock = clock
        self._sessions: OrderedDict[Key, ClientSession] = OrderedDict()  # the least recently used first
        self.expired = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, owner: Hashable = None, name: str | int | None = None) -> ClientSession:
        """Begin a session under a name, or under one that is drawn here.

        Raises:
            RefusedError: There are too many.
        """
        self.expire()
        if len(self._sessions) >= self._most:
            raise RefusedError(503, f"there are {self._most:,} sessions, the most that this server takes", 1.0)
        key = (owner, secrets.token_urlsafe(16) if name is None else name)
        session = ClientSession(key, self._versions.pick(random), self._clock())
        self._sessions[key] = session
        return session

    def find(self, owner: Hashable, name: str | int) -> ClientSession | None:
        """Return a session, or None."""
        return self._sessions.get((owner, name))

    def take(self, session: ClientSession, *, begins: bool) -> Version:
        """Note that a session is used, and return the version for its next action.

        Raises:
            RefusedError: Its previous request is under way.
        """
        if session.is_busy:
            raise RefusedError(409, "the session's previous request is under way; wait for its reply")
        session.used = self._clock()
        self._sessions.move_to_end(session.key)
        if begins:
            session.state, session.acts = None, False
        newest = self._versions.newest_of(session.version)
        if newest is not session.version and (not session.acts or self._change == "now" or session.version.is_over):
            self._move(session, newest)
        session.is_busy = session.acts = True
        return session.version

    def _move(self, session: ClientSession, version: Version) -> None:
        if session.state is not None and not version.policy.takes(session.state):
            session.state = None  # another network: its episode goes on without memory
        session.version = version

    def end(self, session: ClientSession) -> None:
        """End a session."""
        self._sessions.pop(session.key, None)

    def expire(self) -> None:
        """End sessions that have been idle for too long."""
        latest = self._clock() - self._idle_s
        while self._sessions:
            session = next(iter(self._sessions.values()))
            if session.used > latest:
                return
            if session.is_busy:  # its batch takes long
                session.used = self._clock()
                self._sessions.move_to_end(session.key)
            else:
                self.end(session)
                self.expired += 1

    def leave_old(self) -> None:
        """Move sessions off versions that are no longer kept: memory must not grow with idle sessions."""
        for session in self._sessions.values():
            if session.version.is_over and not session.is_busy:
                self._move(session, self._versions.newest_of(session.version))
