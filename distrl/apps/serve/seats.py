"""Seats: ordinary actors of a run, whose environments clients step, one episode after another's.

All seats of a server act with one policy, which computes the rows of a batch together. A seat's rows are one loop's:
the episode of the next client follows that of the one before, in the same unroll.
"""

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
from distrl.apps.serve.messages import StepResult
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

    Attributes:
        records: Its open unroll goes to the learner.
        granted: Its next unroll may start; set by the courier, where that takes a ticket.
        wants: It asks for that.
        withdrawn: Its ticket was given back, so that its open unroll does not go to the learner.
        since: When its newest episode ended, in monotonic seconds.
        open_steps: Environment steps of the unroll that it records.
    """

    def __init__(self, run: Run, producer: Producer) -> None:
        self._run, self.producer = run, producer
        self.shared = run.shared
        self.outbox = SeatOutbox(run.config, run.backend, producer, run.stop.is_set)
        self.outbox.published = run.published
        self.outbox.progress.state = AWAITS_CLIENT
        self.records = self.granted = self.wants = self.withdrawn = False
        self.open_steps = 0
        self.since = time.monotonic()
        self._rate_from = (self.since, 0)
        self.episodes = Episodes(run.environment, self._make_rows)

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
        self.episodes.see(observation)
        if self.withdrawn:
            self.withdrawn = self.granted = self.records = False
            self._run.drop(self.open_steps)
            self.open_steps = 0
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
        records, ends = self.records, {"terminated": result.terminated, "truncated": result.truncated}
        self.open_steps += int(records)
        try:
            self.episodes.observe(result.reward, result.metrics, observation=observation, **ends)
        except SchemaError:
            self.open_steps -= int(records)
            raise
        if not records:
            self._run.drop(1)

    def holds_idly(self, since: float) -> bool:
        """Return whether it holds a ticket, and was not stepped since then, in monotonic seconds."""
        stepped = max(self.outbox.progress.last_step_at, self.since)
        return (self.records or self.granted) and not self.withdrawn and stepped < since

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
        if self.records and not self.withdrawn:
            self.records, self.open_steps = False, 0
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
