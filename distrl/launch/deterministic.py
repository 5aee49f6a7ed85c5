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
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from distrl.actors.actor import Actor
from distrl.actors.filming import Films
from distrl.actors.gradient_actor import make_shipper
from distrl.actors.other_environments import make_others
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.actors.published_evaluator import PublishedEvaluator
from distrl.actors.shipping import Shipper
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
from distrl.types import EnvSpec, PolicyBundle

P = ParamSpec("P")
R = TypeVar("R")
CLOSE_S = 5.0
"""Time for an environment to close at the end, as an actor has it."""


class InlineSource(Generic[T]):
    """A source that lets something act whenever the learner wants a batch.

    Args:
        act: Makes the next unroll. Its argument says for how many seconds the learner has waited for this batch.
        make_source: Makes the source; its argument is called whenever there is no entry.
    """

    def __init__(self, act: Callable[[float], None], make_source: Callable[[Callable[[], None]], Source[T]]) -> None:
        self._source = make_source(lambda: act(time.monotonic() - self._since))
        self._since = time.monotonic()

    def collect(self) -> T | None:
        self._since = time.monotonic()
        return self._source.collect()

    def poll(self) -> T | None:
        """Nothing is there before something acts: the next one, after which the learner makes an update."""
        return self.collect()


class InlineActor(Attendant):
    """The actor's part in the learner's loop: it acts, follows settings, and begins anew after each checkpoint.

    Args:
        update: Update of the learner for which the actor is reset once it acts: by then settings of earlier launches
            are in force, and weights are published.
        stall_timeout_s: Longest wait for a batch.
    """

    def __init__(self, actor: Actor, backend: Backend, update: int, stall_timeout_s: float) -> None:
        self._actor, self._backend, self._stall_timeout_s = actor, backend, stall_timeout_s
        self._update: int | None = update

    def act(self, waited_s: float) -> None:
        """Make one more unroll."""
        if waited_s > self._stall_timeout_s:
            dropped = {reason: count for reason, count in self._backend.ledger.counts().dropped.items() if count}
            raise StalledError(f"no batch for {waited_s:.0f} s (learner.stall_timeout_s); unrolls dropped: {dropped}")
        if self._update is not None:
            self._actor.reset(self._update)
            self._update = None
        self._actor.step(self._backend.unrolls.admission())

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
    acts: "Acts | None" = None,
) -> str:
    """Train in this process and return the stop reason.

    Args:
        acts: None: an actor.
        stop: Called after every update.
        notice: Called with one line about a problem with which the training goes on; "" ends it.
    """
    config = description.config
    place = Place(Path(description.run_dir), True, description.start.update, description.start.back)
    parts = prepare(config, description.spec, place, description.run_id, backend)
    bundle = backend.weights.get_bundle()
    assert bundle is not None  # prepare has just put it
    with _Closing(notice) as cleanup:
        acts = acts or OneActor()
        of_actor = partial(acts.batches, parts, bundle, stop, notice, cleanup)
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
        session = Session(parts, batches, report, stop, own)
        acts.begins(session)
        return session.run()


class Acts(Protocol):
    """Acts in a training of one process, as an actor does."""

    def batches(
        self,
        parts: Parts,
        bundle: PolicyBundle,
        stop: Callable[[], bool],
        notice: Callable[[str], None],
        cleanup: ExitStack,
    ) -> tuple[Batches, list[Attendant]]:
        """Return batches of what it does, and the attendants that go with them."""

    def begins(self, session: Session) -> None:
        """Note the session that is about to train."""
        return


class OneActor(Acts):
    """An actor that steps the run's environment."""

    def batches(
        self,
        parts: Parts,
        bundle: PolicyBundle,
        stop: Callable[[], bool],
        notice: Callable[[str], None],
        cleanup: ExitStack,
    ) -> tuple[Batches, list[Attendant]]:
        config, backend = parts.config, parts.backend
        environment = VectorEnvironment(config.environment, config.actors.environments)
        cleanup.callback(environment.close)
        producer, shipper = (0, backend.registry.register_actor(0)), shipper_of(config, environment.spec)
        actor = Actor(config, Policy(bundle), environment, Outbox(config, backend, producer, stop, shipper))
        acting = InlineActor(actor, backend, parts.state.updates, config.learner.stall_timeout_s)
        record, recorders = recording(parts, notice)
        source: InlineSource[Any] = InlineSource(acting.act, lambda idle: parts.make_source(stop, idle, record))
        return parts.make_batches(source), [acting, *recorders]


def shipper_of(config: RunConfig, spec: EnvSpec) -> Shipper | None:
    """Make the shipper of an algorithm whose actors ship gradients; None: they ship unrolls."""
    return make_shipper(config, spec) if config.algorithm.ships == "gradients" else None


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
