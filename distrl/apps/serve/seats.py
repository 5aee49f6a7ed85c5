"""Seats: ordinary actors of a run, whose environments clients step, one episode after another's.

All seats of a server act with one policy, which computes the rows of a batch together. A seat's rows are one loop's:
the episode of the next client follows that of the one before, in the same unroll.
"""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.apps.agents.common_policy import CommonPolicy, LoopPolicy
from distrl.apps.agents.loop import Episodes, LearningRows, Newest, Rows
from distrl.apps.serve.messages import LARGEST_LEARNED, StepResult
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment
from distrl.errors import SchemaError
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import AWAITS_CLIENT, Producer, RoleStatus
from distrl.memory_backend.stream import Admission
from distrl.types import Array, Unroll, Weights

IDLE_S = 5.0
"""A seat whose client has not acted for that long counts as one without a client."""


class Published(NamedTuple):
    """The newest published weights that this server has, and the training's progress behind them."""

    weights: Weights
    progress: Progress


class SeatOutbox(Outbox):
    """An outbox whose weights come from the server's courier, so that acting never waits for Redis."""

    published: Callable[[], Published]

    def fetch(self, rate: float) -> tuple[Weights, Progress] | None:
        return self.published()

    def published_progress(self) -> Progress:
        return self.published().progress


class Run(NamedTuple):
    """A run that seats are of.

    Attributes:
        environment: With `spaces`.
        update: Of the launch's start.
        published: Returns the newest weights.
        admits: Whether a seat's next unroll may start now.
        push: Takes a seat's full unroll.
        drop: Takes the number of environment steps that are not learned from.
    """

    config: RunConfig
    environment: EnvironmentConfig
    update: int
    backend: Backend
    shared: CommonPolicy
    stop: threading.Event
    published: Callable[[], Published]
    admits: "Callable[[Seat], bool]"
    push: "Callable[[Seat, Unroll], None]"
    drop: Callable[[int], None]


class Seat:
    """One actor of the run. One batch at a time uses it.

    Args:
        sequence: Number of the producer's next unroll.

    Attributes:
        records: Its open unroll goes to the learner.
        granted: Its next unroll may start; set by the courier, where that takes a ticket.
        wants: It asks for that.
        since: When its newest episode ended, in monotonic seconds.
    """

    def __init__(self, run: Run, producer: Producer, sequence: int = 0) -> None:
        self._run, self.producer = run, producer
        self.shared = run.shared
        self.outbox = SeatOutbox(run.config, run.backend, producer, run.stop.is_set)
        self.outbox.published = run.published
        self.outbox.sequence = sequence
        self.outbox.progress.state = AWAITS_CLIENT
        self.records = self.granted = self.wants = False
        self._open_steps = 0  # of the unroll that it records
        self._lock = threading.Lock()  # the courier gives up what a step may complete
        self.since = time.monotonic()
        self._rate_from = (self.since, 0)
        self.episodes = Episodes(run.environment, self._make_rows, LARGEST_LEARNED)

    def _make_rows(self, environment: VectorEnvironment) -> Rows:
        self._policy = LoopPolicy(self.shared)
        self._actor = Actor(self._run.config, self._policy, environment, self.outbox)
        reset = self._actor.reset
        self._rows = LearningRows(self._actor, lambda: reset(self._run.update), self._start, self._push)
        return self._rows

    @property
    def row(self) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
        """Observations and recurrent state of the newest row, name -> [1, ...]."""
        return self._actor.newest

    def see(self, observation: Any) -> None:
        """Take an observation; `choose` comes next. An unroll begins with it as soon as one may.

        Raises:
            SchemaError: The observation is not of its space; nothing has changed.
            DistrlError: The step, or the unroll that it completed, cannot be learned from; the seat is of no more use.
        """
        with self._lock:
            self.episodes.see(observation)
            if not self.records and self._run.admits(self):
                self.records = True
                self._rows.restart()
            self._rows.ready()

    def observe(self, result: StepResult, observation: Any) -> None:
        """Take the result of the newest action, and the observation that followed it, if it is known.

        Raises:
            SchemaError: The observation is not of its space; nothing has changed.
            DistrlError: As of `see`.
        """
        ends = {"terminated": result.terminated, "truncated": result.truncated}
        with self._lock:
            recorded = self.records
            self._open_steps += int(recorded)
            try:
                self.episodes.observe(result.reward, result.metrics, observation=observation, **ends)
            except SchemaError:
                self._open_steps -= int(recorded)
                raise
        if not recorded:
            self._run.drop(1)

    def give_up(self, since: float = math.inf) -> bool:
        """Give up its open unroll and its admission, unless it was stepped since then; any thread may call this.

        Args:
            since: In monotonic seconds.

        Returns:
            Whether it had one of them: its ticket may be taken back.
        """
        with self._lock:
            if not (self.records or self.granted) or max(self.outbox.progress.last_step_at, self.since) >= since:
                return False
            self.records = self.granted = False
            self._run.drop(self._open_steps)
            self._open_steps = 0
            return True

    def choose(self) -> Any:
        """Return the action, as a gymnasium environment takes it."""
        return self.episodes.choose()

    def newest(self) -> Newest:
        """Return the way of the newest action."""
        return self._rows.newest()

    def steer(self, config: RunConfig) -> None:
        """Use this configuration's steerable settings from the next unroll on."""
        self._actor.steer(config)

    def _start(self, actor: Actor) -> None:
        if self.shared.policy.version != self._run.published().weights.version:
            self._policy.forget_weights()  # also where a restarted learner has gone back to earlier ones
        actor.begin(Admission(True, self._run.published().weights.version, False, False))

    def _push(self, actor: Actor) -> None:
        unroll = actor.close()
        if self.records:
            self.records, self._open_steps = False, 0
            self._run.push(self, unroll)

    def status(self) -> RoleStatus:
        """Return its heartbeat."""
        progress, now = self.outbox.progress, time.monotonic()
        acts = self.episodes.open and now - progress.last_step_at < IDLE_S
        (since, steps), self._rate_from = self._rate_from, (now, progress.env_steps)
        return RoleStatus(
            "actor",
            *self.producer,
            socket.gethostname(),
            os.getpid(),
            progress.state if acts else AWAITS_CLIENT,
            env_steps=progress.env_steps,
            env_steps_per_s=(progress.env_steps - steps) / max(now - since, 1e-9),
            weights_version=self._actor.weights_version,
        )
