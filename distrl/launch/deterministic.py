"""Deterministic mode (`launch.mode: here`): one process, no threads, in-memory backend, deterministic operations.

A checkpoint abandons open episodes, reseeds environments and sampling from (seed, update), and lets the actor take the
next weights whole: a run that is resumed from it goes on exactly as one that was not, unless `replay.checkpoint: false`
leaves the replay memory out of it."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from distrl.actors.actor import Actor
from distrl.actors.filming import Films
from distrl.actors.gradient_actor import make_shipper
from distrl.actors.other_environments import make_others
from distrl.actors.policy import Policy
from distrl.actors.published_evaluator import PublishedEvaluator
from distrl.config import RunConfig
from distrl.data.filling import with_data
from distrl.data.off_policy.beside import estimating
from distrl.data.run_recording import recording
from distrl.environments.vector import VectorEnvironment
from distrl.errors import DistrlError, StalledError
from distrl.interrupt import limited
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import Batches, Trained
from distrl.learner.origin import Place
from distrl.learner.prefetch import Source, T
from distrl.learner.preparation import Parts, prepare
from distrl.learner.session import Session
from distrl.memory_backend.backend import Backend
from distrl.metrics.counters import Waits
from distrl.metrics.snapshot import Snapshot
from distrl.roles.description import RunDescription
from distrl.types import PolicyBundle

P = ParamSpec("P")
R = TypeVar("R")
CLOSE_S = 5.0
"""Time for an environment to close at the end, as an actor has it."""


class InlineSource(Generic[T]):
    """A source that lets the actor act whenever the learner wants a batch.

    Args:
        update: Update of the learner for which the actor is reset once it acts: by then settings of earlier launches
            are in force, and weights are published. None: it has been reset.
    """

    def __init__(
        self,
        actor: Actor,
        make_source: Callable[[Callable[[], None]], Source[T]],
        backend: Backend,
        stall_timeout_s: float,
        update: int | None = None,
    ) -> None:
        self._actor = actor
        self._backend = backend
        self._stall_timeout_s = stall_timeout_s
        self._source = make_source(self._act)
        self._update = update
        self._since = time.monotonic()

    def collect(self) -> T | None:
        self._since = time.monotonic()
        return self._source.collect()

    def poll(self) -> T | None:
        """Nothing is there before the actor acts: the next one, after which the learner makes an update."""
        return self.collect()

    def _act(self) -> None:
        """Make one more unroll."""
        waited_s = time.monotonic() - self._since
        if waited_s > self._stall_timeout_s:
            dropped = {reason: count for reason, count in self._backend.ledger.counts().dropped.items() if count}
            raise StalledError(f"no batch for {waited_s:.0f} s (learner.stall_timeout_s); unrolls dropped: {dropped}")
        if self._update is not None:
            self._actor.reset(self._update)
            self._update = None
        self._actor.step(self._backend.unrolls.admission())


class InlineActor(Attendant):
    """The actor's part in the learner's loop: it follows settings, and begins anew after each checkpoint."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def steer(self, config: RunConfig) -> None:
        self._actor.steer(config)

    def saved(self, updates: int) -> None:
        self._actor.reset(updates)


class InlineEvaluator(Attendant):
    """The evaluator's part in the learner's loop: it evaluates whenever that is due.

    No evaluation goes beyond `stop.minutes`. Once they are over, the last one has `evaluation.last_within_s`.

    Args:
        trained_s: Seconds of training so far.
    """

    def __init__(
        self, evaluator: PublishedEvaluator, stop: Callable[[], bool], config: RunConfig, trained_s: float, waits: Waits
    ) -> None:
        self._evaluator, self._stop, self._waits = evaluator, stop, waits
        self._last_within_s = config.evaluation.last_within_s
        minutes = math.inf if config.stop.minutes is None else config.stop.minutes
        self._over_at = time.monotonic() + 60.0 * minutes - trained_s

    def steer(self, config: RunConfig) -> None:
        self._evaluator.environment_config = config.environment

    def attend(self, trained: Trained | None) -> None:
        now = time.monotonic()
        until = self._over_at if now < self._over_at else now + self._last_within_s
        with self._waits.measure("evaluation"):
            self._evaluator.evaluate_if_due(lambda: self._stop() or time.monotonic() >= until)


def run_deterministic(
    description: RunDescription,
    backend: Backend,
    report: Callable[[Snapshot], None],
    stop: Callable[[], bool],
    notice: Callable[[str], None],
) -> str:
    """Train in this process and return the stop reason.

    Args:
        stop: Called after every update.
        notice: Called with one line about a problem with which the training goes on; "" ends it.
    """
    config = description.config
    place = Place(Path(description.run_dir), True, description.start.update, description.start.back)
    parts = prepare(config, description.spec, place, description.run_id, backend)
    bundle = backend.weights.get_bundle()
    assert bundle is not None  # prepare has just put it
    with _Closing(notice) as cleanup:
        of_actor = partial(_of_actor, parts, backend, bundle, stop, notice, cleanup)
        parts, batches, own = with_data(parts, of_actor, stop) if config.data.sets else (parts, *of_actor())
        if config.evaluation.every_env_steps is not None:
            # Environments and a policy of its own, so that it changes nothing of the training.
            apart = VectorEnvironment(config.environment, config.evaluation.environments_used)
            cleanup.callback(apart.close)
            others = make_others(config, apart.spec, VectorEnvironment, cleanup)
            evaluated, incarnation = parts.state.evaluation_env_steps or 0, backend.registry.register("evaluator")
            films = None
            if config.evaluation.films.used:
                directory = Path(description.run_dir) / "films"
                films = Films(config.evaluation, config.environment, directory, notice)
                cleanup.callback(films.close)
            policy = Policy(bundle)
            estimate = estimating(config, policy)
            evaluator = PublishedEvaluator(
                config, backend, policy, apart, evaluated, incarnation, films, others, estimate
            )
            own.append(InlineEvaluator(evaluator, stop, config, parts.state.wall_s, parts.waits))
        return Session(parts, batches, report, stop, own).run()


def _of_actor(
    parts: Parts,
    backend: Backend,
    bundle: PolicyBundle,
    stop: Callable[[], bool],
    notice: Callable[[str], None],
    cleanup: ExitStack,
) -> tuple[Batches, list[Attendant]]:
    """Return batches of an actor in this process, and the attendants that go with them."""
    config, producer = parts.config, (0, backend.registry.register_actor(0))
    environment = VectorEnvironment(config.environment, config.actors.environments)
    cleanup.callback(environment.close)
    shipper = make_shipper(config, environment.spec) if config.algorithm.ships == "gradients" else None
    actor = Actor(config, backend, Policy(bundle), environment, producer, stop, shipper)
    record, recorders = recording(parts, notice)
    source: InlineSource[Any] = InlineSource(
        actor,
        lambda act: parts.make_source(stop, act, record),
        backend,
        config.learner.stall_timeout_s,
        parts.state.updates,
    )
    return parts.make_batches(source), [InlineActor(actor), *recorders]


class _Closing(ExitStack):
    """Closes environments at the end. One that fails or hangs there costs a line, as with actors: all is saved.

    Args:
        report: Takes the line.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self._report = report

    def callback(self, close: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Callable[P, R]:
        """Close at the end, within `CLOSE_S`."""
        super().callback(self._close, lambda: close(*args, **kwargs))
        return close

    def _close(self, close: Callable[[], object]) -> None:
        try:
            with limited(CLOSE_S):
                close()
        except (DistrlError, TimeoutError) as error:
            self._report(str(error))
