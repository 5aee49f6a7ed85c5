"""`serve --learn`: sessions' episodes become unrolls of a run's actors.

    session -> SeatedEpisode -> Seat (an actor) -> Courier -> the run's Redis

The desk answers the requests of all learning episodes, in batches; the joined run gives it seats.
"""

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from distrl.apps.agents.common_policy import CommonPolicy
from distrl.apps.agents.loop import check_mask
from distrl.apps.serve.answering import Answered, Asked, columns_of, reply_of
from distrl.apps.serve.courier import Courier, Tally
from distrl.apps.serve.messages import RefusedError, error_reply, named
from distrl.apps.serve.seats import Seat
from distrl.apps.serve.sessions import Counts
from distrl.errors import DistrlError, SchemaError
from distrl.launch.run_to_join import RunToJoin
from distrl.networks.policy.description import BundleDescription
from distrl.networks.policy.exported_model import Exported
from distrl.serving.exported_policy import ExportedPolicy

_LOG = logging.getLogger(__name__)
LEAVE_S = 5.0
LOOK_S = 0.1
AGAIN_S = 1.0
"""How often a run that is away is looked for."""


class SeatedEpisode:
    """A session's episode in a seat.

    Attributes:
        seat: None once the episode is over.
    """

    def __init__(self, desk: "Desk", courier: Courier, seat: Seat) -> None:
        self.answerer, self.courier = desk, courier
        self.seat: Seat | None = seat

    def abandon(self) -> None:
        """End it before its time."""
        self.answerer.leave(self)


class Desk:
    """Answers the requests of learning episodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: deque[SeatedEpisode] = deque()

    def answers(self, questions: Sequence[Asked], rng: np.random.Generator) -> list[Answered]:
        """Answer questions in one batch. One that cannot be learned from costs its own episode alone."""
        with self._lock:
            self._let_go()
            found = [self._take(question) for question in questions]
            acting: dict[CommonPolicy, list[Seat]] = {}
            for taken in found:
                if isinstance(taken, Seat):
                    acting.setdefault(taken.shared, []).append(taken)
            for shared, seats in acting.items():
                with suppress(Exception):  # then each is computed alone below, and fails alone
                    shared.prepare([seat.row for seat in seats])
            answered = [
                self._choose(question, taken) if isinstance(taken, Seat) else taken
                for question, taken in zip(questions, found, strict=True)
            ]
            for shared in acting:
                shared.clear()
            return answered

    def leave(self, episode: SeatedEpisode) -> None:
        """Abandon an episode: now, or after the batch that is under way."""
        self._left.append(episode)
        self.tidy()

    def tidy(self) -> None:
        """Abandon what was left while a batch was under way."""
        if self._left and self._lock.acquire(blocking=False):
            try:
                self._let_go()
            finally:
                self._lock.release()

    def _let_go(self) -> None:
        while self._left:
            episode = self._left.popleft()
            if episode.seat is None:
                continue
            try:
                episode.seat.episodes.abandon()
                self._end(episode)
            except Exception as error:  # of the unroll that its last row has completed
                self._lose(episode, error)

    def _take(self, question: Asked) -> Seat | Answered:
        """Take a request's result and observation; return the seat that then needs an action, or the answer."""
        episode, request = question.learns_in, question.request
        assert isinstance(episode, SeatedEpisode)
        if (seat := episode.seat) is None:
            return _refused(question, RefusedError(409, "the session has ended"))
        observation = request.observations[0] if request.observations else None
        try:
            if observation is not None:
                check_mask(episode.courier.config.network.action_mask, observation)
            if request.result is not None:
                seat.observe(request.result, observation)
            if request.ends:
                self._end(episode)
                return Answered(_names(episode.courier, seat) | named(request), None, is_over=True)
            seat.see(observation)
        except SchemaError as error:
            return _refused(question, error)
        except Exception as error:  # the seat may hold half a row, and no other client must meet it
            return self._given_up(question, episode, error)
        return seat

    def _choose(self, question: Asked, seat: Seat) -> Answered:
        episode = question.learns_in
        assert isinstance(episode, SeatedEpisode)
        try:
            return self._chosen(question, episode.courier, seat)
        except Exception as error:  # as above
            return self._given_up(question, episode, error)

    @staticmethod
    def _chosen(question: Asked, courier: Courier, seat: Seat) -> Answered:
        action, columns = _plain(seat.choose()), dict[str, list[Any]]()
        if want := question.request.want:
            newest = seat.newest()
            outputs = {name: array[None] for name, array in newest.outputs.items()}
            distributions, given = seat.shared.policy.distributions, np.array([newest.log_probability], np.float32)
            columns = columns_of(want, distributions, outputs, lambda: given)
        return Answered(reply_of(_names(courier, seat), question.request, [action], columns), None)

    def _given_up(self, question: Asked, episode: SeatedEpisode, error: Exception) -> Answered:
        self._lose(episode, error)
        refused = RefusedError(500, "the episode is given up, as the server failed; its log says why")
        if isinstance(error, DistrlError):
            refused = RefusedError(400, f"the episode is given up: {error}")
        answered = _refused(question, refused)
        answered.is_over = True
        return answered

    @staticmethod
    def _end(episode: SeatedEpisode) -> None:
        seat, episode.seat = episode.seat, None
        if seat is not None:
            episode.courier.free(seat)

    @staticmethod
    def _lose(episode: SeatedEpisode, error: Exception) -> None:
        _LOG.info("an episode is given up: %s", error, exc_info=not isinstance(error, DistrlError))
        seat, episode.seat = episode.seat, None
        if seat is not None:
            episode.courier.lose(seat)


class JoinedRun:
    """A run that clients teach. It is joined again when it is launched again; meanwhile nothing is learned.

    Args:
        to_join: Names the run.

    Attributes:
        name: For messages; `follows`: newer versions come. It is the source of what acts in other episodes.
        environment: Of the run.

    Raises:
        MemoryBackendError: There is no such run, or its Redis cannot be reached.
        ConfigError: No loop of others can join it.
    """

    follows = True

    def __init__(self, to_join: RunToJoin) -> None:
        self.name = to_join.name
        self._to_join, self._desk = to_join, Desk()
        self._closing, self._tally = threading.Event(), Tally()
        self._courier: Courier | None = Courier(to_join, self._closing, self._tally)
        self.environment = self._courier.config.environment
        self._problem = "the run has ended before its learner published weights"
        self._given = 0
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        courier = self._courier
        while courier is not None:
            try:
                courier.run()
            except Exception as error:  # such as Redis that goes as the run is joined
                self._problem = str(error)
                _LOG.info("nothing is learned for now: %s", error, exc_info=not isinstance(error, DistrlError))
            self._courier = None
            courier = self._courier = self._joined_again()

    def _joined_again(self) -> Courier | None:
        """Join the run's next launch; return None if this server ends before."""
        while not self._closing.wait(AGAIN_S):
            try:
                courier = Courier(self._to_join, self._closing, self._tally)
            except (DistrlError, OSError):  # it is away
                continue
            return courier
        return None

    def wait(self) -> None:
        """Wait for the learner's first weights.

        Raises:
            DistrlError: The run ended before.
        """
        courier = self._courier
        while courier is not None and not courier.is_ready.wait(LOOK_S):
            if not self._thread.is_alive() or courier is not self._courier:
                courier = None
        if courier is None:
            raise DistrlError(f"{self.name}: {self._problem}")

    def newer(self) -> ExportedPolicy | None:
        """Return the newest weights as a policy for episodes of which nothing is learned; see `PolicySource`."""
        courier = self._courier
        if courier is None or not courier.is_ready.is_set() or courier.published.weights.version == self._given:
            return None
        weights, progress = courier.published
        described = BundleDescription.from_json(courier.bundle.description)
        exported = Exported(described, courier.config.algorithm.name, progress.env_steps, weights.version)
        self._given = weights.version
        return ExportedPolicy(courier.bundle, exported, weights)

    def begin(self) -> SeatedEpisode | None:
        """Begin an episode that is learned from; None: nothing can be learned now."""
        courier = self._courier
        seat = None if courier is None else courier.seat()
        return None if courier is None or seat is None else SeatedEpisode(self._desk, courier, seat)

    def tidy(self) -> None:
        """Abandon episodes whose clients have gone; called once a second."""
        self._desk.tidy()

    def drop(self, env_steps: int) -> None:
        """Count steps of an episode that began when nothing could be learned."""
        self._tally.drop(env_steps)

    def counts(self) -> Counts:
        """Return how much has gone to the learner since the server began."""
        courier, tally = self._courier, self._tally
        return Counts(0 if courier is None else courier.episodes, tally.unrolls, tally.dropped_steps)

    def close(self) -> None:
        """Leave the run, which goes on. If its Redis is away, there is nothing to hand over."""
        self._closing.set()
        self._thread.join(LEAVE_S)


def _names(courier: Courier, seat: Seat) -> dict[str, Any]:
    version: dict[str, Any] = {"version": seat.shared.policy.version}
    return version | {"learns": True} if courier.learns else version


def _refused(question: Asked, error: DistrlError) -> Answered:
    refused = error if isinstance(error, RefusedError) else RefusedError(400, str(error))
    return Answered(error_reply(refused, question.request), question.state, failed=True)


def _plain(tree: Any) -> Any:
    """Return an action in plain numbers, lists and maps."""
    if isinstance(tree, np.ndarray | np.generic):
        return tree.tolist()
    if isinstance(tree, Mapping):
        return {name: _plain(part) for name, part in tree.items()}
    return [_plain(part) for part in tree] if isinstance(tree, tuple | list) else tree
