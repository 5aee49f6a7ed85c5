"""Batches over clients: requests that arrive within a window are answered together, those of each policy in one batch.

A batch that takes no longer than `INLINE_S` is computed on the event loop itself, as handing it to a thread and back
would take about as long. Longer ones are computed in a thread, so that the loop goes on reading and writing.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from distrl.apps.serve.answering import Answered, Answerer, Asked
from distrl.apps.serve.messages import ActRequest, RefusedError, error_reply
from distrl.apps.serve.sessions import ClientSession, ClientSessions
from distrl.apps.serve.versions import MAIN, PolicyVersions

INLINE_S = 1e-3
_LOG = logging.getLogger(__name__)
Reply = Callable[[dict[str, Any]], None]
Observed = Callable[[int, float, list[float]], None]
"""Takes rows of a batch, its seconds, and for each request the seconds since it arrived."""
Ended = Callable[[str, int, float], None]
"""Takes an episode that has ended: the name of its policy, its newest version, and its return."""


@dataclass(slots=True, eq=False)
class _Waiting:
    question: Asked
    answerer: Answerer
    session: ClientSession | None
    reply: Reply
    arrived: float


class Batcher:
    """Answers requests to act. Used only on the event loop.

    Args:
        window_s: How long the first request of a batch waits for others; 0: only for those that have arrived too.
        most_rows: Most observations of one batch.
        most_waiting: Most observations that wait; beyond, requests are refused.
        greedy: The most probable action, where a request does not say.
        seed: Of drawn actions; None: chance.
    """

    def __init__(
        self,
        versions: PolicyVersions,
        sessions: ClientSessions,
        *,
        window_s: float = 0.0,
        most_rows: int = 256,
        most_waiting: int = 8192,
        greedy: bool = True,
        seed: int | None = None,
        observed: Observed | None = None,
        ended: Ended = lambda policy, version, episode_return: None,
    ) -> None:
        self._versions, self._sessions = versions, sessions
        self._window_s = window_s
        self._most_rows, self._most_waiting = most_rows, most_waiting
        self._greedy = greedy
        self._rng = np.random.default_rng(seed)
        self._observed, self._ended = observed, ended
        self._waiting: deque[_Waiting] = deque()
        self._rows = 0
        self._is_due = False  # a batch is under way, or the end of the window is
        self._thread = ThreadPoolExecutor(1, "policy")
        self._last_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._futures: set[asyncio.Future[None]] = set()

    def submit(self, request: ActRequest, reply: Reply, session: ClientSession | None = None) -> None:
        """Queue a request; `reply` is called with its reply, once, on the event loop.

        Raises:
            RefusedError: It is not carried out.
        """
        if self._rows >= self._most_waiting:
            raise RefusedError(503, f"{self._rows:,} observations wait already", 0.1)
        answerer: Answerer
        if session is None:
            answerer = version = self._versions.pick(self._rng.random)
            if version.policy.remembers and not request.begins:
                raise RefusedError(
                    400, "this policy remembers earlier steps: name a session, or say that an episode begins (begins)"
                )
        else:
            answerer = self._sessions.take(session, request)
        question = Asked(request, None, self._greedy if request.greedy is None else request.greedy)
        if session is not None:
            question.state, question.learns_in = session.state, session.learns_in
        self._waiting.append(_Waiting(question, answerer, session, reply, time.perf_counter()))
        self._rows += len(request.observations)
        if not self._is_due:
            self._is_due = True
            self._plan()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    @property
    def waiting(self) -> int:
        """Observations that wait for their batch."""
        return self._rows

    def _plan(self) -> None:
        if self._window_s and self._rows < self._most_rows:
            self._loop.call_later(self._window_s, self._answer)
        else:
            self._loop.call_soon(self._answer)

    def _answer(self) -> None:
        batches = self._taken()
        if self._last_s <= INLINE_S:
            self._finish(batches, self._computed(batches))
            return
        future: asyncio.Future[None] = asyncio.ensure_future(self._answer_beside(batches))
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    async def _answer_beside(self, batches: list[list[_Waiting]]) -> None:
        self._finish(batches, await self._loop.run_in_executor(self._thread, self._computed, batches))

    def _taken(self) -> list[list[_Waiting]]:
        """Take the requests of the next batch, and group them by what answers them."""
        groups: dict[Answerer, list[_Waiting]] = {}
        rows = 0
        while self._waiting and (not rows or rows < self._most_rows):
            one = self._waiting.popleft()
            rows += len(one.question.request.observations)
            groups.setdefault(one.answerer, []).append(one)
        self._rows -= rows
        return list(groups.values())

    def _computed(self, batches: list[list[_Waiting]]) -> list[tuple[list[Answered], float]]:
        found = []
        for batch in batches:
            began = time.perf_counter()
            questions = [one.question for one in batch]
            try:
                given = batch[0].answerer.answers(questions, self._rng)
            except Exception:  # a defect: its clients get an error, and the others their answers
                _LOG.exception("a batch of %d requests failed", len(batch))
                failed = RefusedError(500, "the server failed; its log says why")
                given = [Answered(error_reply(failed, one.request), one.state, failed=True) for one in questions]
            found.append((given, began))
        return found

    def _finish(self, batches: list[list[_Waiting]], found: list[tuple[list[Answered], float]]) -> None:
        try:
            self._hand_out(batches, found)
        finally:
            if self._waiting:
                self._plan()
            else:
                self._is_due = False

    def _hand_out(self, batches: list[list[_Waiting]], found: list[tuple[list[Answered], float]]) -> None:
        self._last_s = max((time.perf_counter() - found[0][1]) / len(found), 0.5 * self._last_s) if found else 0.0
        for batch, (given, began) in zip(batches, found, strict=True):
            for one, answer in zip(batch, given, strict=True):
                if one.session is not None:
                    self._follow(one.session, one.answerer, one.question.request, answer)
                try:
                    one.reply(answer.reply)
                except Exception:  # a defect: it costs this client its reply, and no other one
                    _LOG.exception("a reply failed")
            acted = [one for one, answer in zip(batch, given, strict=True) if not (answer.failed or answer.is_over)]
            if acted and self._observed is not None:
                now = time.perf_counter()
                rows = sum(len(one.question.request.observations) for one in acted)
                self._observed(rows, now - began, [now - one.arrived for one in acted])

    def _follow(self, session: ClientSession, answerer: Answerer, request: ActRequest, answer: Answered) -> None:
        """Bring a session up to date with its answer, and an episode's last reply with its return."""
        session.is_busy = False
        if request.result is not None and not answer.failed:
            session.rewards += request.result.reward
            self._sessions.stepped(session)
        if answer.is_over:
            if not answer.failed:
                answer.reply |= {"return": session.rewards, "steps": session.steps}
                policy, version = answer.reply.get("policy", MAIN), answer.reply["version"]
                self._ended(policy, version, session.rewards)
            session.begin()
        elif not answer.failed:
            session.steps += 1
            if session.version is answerer:
                session.state = answer.state
