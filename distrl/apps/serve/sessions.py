"""Sessions: each client's episode, the state of the policy for it, what it acts with, and the limits.

A session of HTTP has an identifier that the server draws. Those of a WebSocket are named by the client, belong to its
connection and end with it.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from random import random
from typing import Literal, NamedTuple, Protocol

from distrl.apps.serve.answering import Answerer
from distrl.apps.serve.messages import ActRequest, RefusedError, StepResult
from distrl.apps.serve.versions import MAIN, PolicyVersions, Version
from distrl.serving.exported_policy import PolicyState

Change = Literal["episodes", "now"]


class LearningEpisode(Protocol):
    """A session's episode of which something is learned."""

    @property
    def answerer(self) -> Answerer:
        """Answers its requests, together with those of other such episodes."""

    def abandon(self) -> None:
        """End it before its time: its client has gone, or begins another one."""


class Counts(NamedTuple):
    """How much clients have taught a run.

    Attributes:
        episodes: That are open now.
        unrolls: That have gone to the learner.
        dropped_steps: Environment steps of which nothing is learned, as the run takes no unrolls at the time.
    """

    episodes: int
    unrolls: int
    dropped_steps: int


class Learning(Protocol):
    """The way of sessions to a training."""

    def begin(self) -> LearningEpisode | None:
        """Begin an episode; None: nothing can be learned now."""

    def drop(self, env_steps: int) -> None:
        """Count steps of an episode that `begin` could not take."""

    def tidy(self) -> None:
        """Abandon episodes whose clients have gone; called once a second."""

    def counts(self) -> Counts:
        """Return the counts since the server began."""


MOST_PER_CONNECTION = 1024
EPISODE_IDLE_S = 60.0
"""Where all seats are taken, an episode without a request for that long is given up for another one."""
Key = tuple[Hashable, str | int]
"""The owner, which is None for HTTP and a connection otherwise, and the name."""


@dataclass(slots=True, eq=False)
class ClientSession:
    """One client's sequence of episodes.

    Attributes:
        state: The policy's memory of the episode; None: there is none, or the next observation is its first.
        steps: Actions of the episode so far; 0: none has begun.
        rewards: Sum of the rewards that its client has reported.
        is_busy: A request is under way.
        learns_in: The learning episode; None: nothing is learned of this one.
        is_missed: It would have been learned from, if the run took unrolls when it began.
    """

    key: Key
    version: Version
    used: float
    state: PolicyState | None = None
    steps: int = 0
    rewards: float = 0.0
    is_busy: bool = False
    learns_in: LearningEpisode | None = None
    is_missed: bool = False

    def begin(self) -> None:
        """Forget the episode."""
        self.state, self.steps, self.rewards, self.learns_in, self.is_missed = None, 0, 0.0, None, False


class ClientSessions:
    """All sessions. Used only on the event loop.

    Args:
        most: Most sessions; beyond, a new one is refused until another one has ended or is idle.
        idle_s: A session ends after that long without a request.
        change: When a session takes a newer version: at its next episode, or at once.
        learning: Takes episodes that are to be learned from; None: nothing is learned. Also an attribute.
    """

    def __init__(
        self,
        versions: PolicyVersions,
        most: int,
        idle_s: float,
        change: Change = "episodes",
        learning: Learning | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._versions = versions
        self._most = most
        self._idle_s = idle_s
        self._change = change
        self.learning = learning
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

    def take(self, session: ClientSession, request: ActRequest) -> Answerer:
        """Note that a session is used, and return what answers its request.

        Raises:
            RefusedError: Its previous request is under way, or the request does not fit its episode.
        """
        if session.is_busy:
            raise RefusedError(409, "the session's previous request is under way; wait for its reply")
        session.used = self._clock()
        self._sessions.move_to_end(session.key)
        if request.begins:
            self._abandon(session)
        if request.greedy and session.learns_in is not None:
            raise RefusedError(400, "greedy: this episode is learned from, with explored actions; say it as one begins")
        if request.result is not None:
            self._check(session, request.result)
        elif session.learns_in is not None and session.steps:
            raise RefusedError(
                400, "reward is missing: of the session's newest action; or begin another episode (begins)"
            )
        if self.learning is not None and session.version.track == MAIN:
            self._learn(session, request, self.learning)
        session.is_busy = True
        if session.learns_in is not None:
            return session.learns_in.answerer
        newest = self._versions.newest_of(session.version)
        if newest is not session.version and (not session.steps or self._change == "now" or session.version.is_over):
            self._move(session, newest)
        return session.version

    def _learn(self, session: ClientSession, request: ActRequest, learning: Learning) -> None:
        """Begin a learning episode, if one begins; count a step of one that could not."""
        if not (session.steps or session.learns_in or request.greedy):
            session.learns_in = learning.begin()
            session.is_missed = session.learns_in is None
            if session.is_missed:
                self._abandon_idle()
        elif session.is_missed and request.result is not None:
            learning.drop(1)

    def _abandon_idle(self) -> None:
        """Abandon the learning episode that is idle for the longest time: its client may be gone, and another waits."""
        latest = self._clock() - EPISODE_IDLE_S
        for session in self._sessions.values():
            if session.used > latest:
                return
            if session.learns_in is not None and not session.is_busy:
                self._abandon(session)
                return

    def _check(self, session: ClientSession, result: StepResult) -> None:
        """Refuse a result that is not of the session's newest action; where it may be of another one, all is lost."""
        if session.steps == 0:
            raise RefusedError(409, "no action of this session waits for a result: an episode begins without one")
        newest = session.steps - 1
        if result.step is not None and result.step != newest:
            self._abandon(session)
            raise RefusedError(409, f"step {result.step} is not the newest action, {newest}: the episode is given up")

    def _abandon(self, session: ClientSession) -> None:
        if session.learns_in is not None:
            session.learns_in.abandon()
        session.begin()

    def _move(self, session: ClientSession, version: Version) -> None:
        if session.state is not None and not version.policy.takes(session.state):
            session.state = None  # another network: its episode goes on without memory
        session.version = version

    def end(self, session: ClientSession) -> None:
        """End a session; its open episode is given up."""
        self._sessions.pop(session.key, None)
        self._abandon(session)

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
