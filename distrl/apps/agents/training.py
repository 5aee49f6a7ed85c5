"""Trainings that an agent acts for: one in this process. It learns while the caller waits, and acts in between."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from distrl.actors.acting import Acting
from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.actors.shipping import UnrollShipper
from distrl.apps.agents.loop import Episodes, GreedyRows, LearningRows, Rows
from distrl.apps.agents.turns import Turns
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.errors import DistrlError
from distrl.interrupt import Interrupt
from distrl.launch.one_process import Here, train_here
from distrl.memory_backend.steering import Steering
from distrl.runs.summary import Summary
from distrl.types import PolicyBundle

if TYPE_CHECKING:  # they bring the numeric framework, which the training's thread imports
    from distrl.learner.attendants.attendant import Attendant
    from distrl.learner.batches import Batches, Trained
    from distrl.learner.preparation import Parts
    from distrl.learner.session import Session

SAVE_POLL_S = 0.01


class TrainingHere:
    """A training of one process, on a thread of its own, that works in turns with the caller.

    Args:
        config: As the training has it.
        environment: The same environment with `spaces`.
        train: Runs the training; its arguments train in this process and end it.
        automatic: Hand over after each full unroll; else only in `update`.

    Attributes:
        metrics: Of the newest update, by name; empty before the first.
        batch: Of the newest update; None before the first.
    """

    def __init__(
        self,
        config: RunConfig,
        environment: EnvironmentConfig,
        train: Callable[[Here, Interrupt], Summary],
        *,
        automatic: bool,
    ) -> None:
        self._config, self._environment, self._automatic = config, environment, automatic
        self._turns, self._interrupt = Turns(), Interrupt()
        self._errands: list[Callable[[], None]] = []
        self._is_full = False
        self._loops, self._actors = 0, WeakSet[Actor]()
        self._watching: Policy | None = None
        self._summary: Summary | BaseException | None = None
        self.metrics: Mapping[str, float] = {}
        self.batch: Any = None
        self._thread = threading.Thread(target=self._work, args=(train,), name="training")
        self._thread.start()
        threading.Thread(target=self._stop_with_the_program, name="end of the program", daemon=True).start()
        try:
            self.check()
        except BaseException:  # also Ctrl-C: the run's directory is free again
            self._leave()
            self._thread.join()
            raise

    def _work(self, train: Callable[[Here, Interrupt], Summary]) -> None:
        try:
            self._summary = train(partial(train_here, acts=self), self._interrupt)
        except BaseException as error:  # raised where the agent is
            self._summary = error
        finally:
            self._turns.end()

    def _stop_with_the_program(self) -> None:
        threading.main_thread().join()
        self._leave()

    def _leave(self) -> None:
        self._interrupt.set(0, "asked")
        self._turns.leave()

    # Of `launch.deterministic.Acts`, on the training's thread.

    def batches(
        self,
        parts: "Parts",
        bundle: PolicyBundle,
        stop: Callable[[], bool],
        notice: Callable[[str], None],
        cleanup: ExitStack,
    ) -> "tuple[Batches, list[Attendant]]":
        from distrl.apps.agents.following import Following  # here: see above
        from distrl.data.run_recording import recording
        from distrl.launch.deterministic import InlineSource

        self._parts, self._bundle, self._stop = parts, bundle, stop
        record, recorders = recording(parts, notice)
        source: InlineSource[Any] = InlineSource(
            lambda _waited_s: self._let_act(), lambda idle: parts.make_source(stop, idle, record)
        )
        return parts.make_batches(source), [Following(self.steer, self.take), *recorders]

    def begins(self, session: "Session") -> None:
        self._session = session

    def _let_act(self) -> None:
        """Let the caller act, and run its errands, until it hands over an unroll."""
        self._turns.hand_to_acting()
        while self._errands:
            self._errands.pop(0)()
            self._turns.hand_to_acting()

    def steer(self, config: RunConfig) -> None:
        """Use the settings in force."""
        self._config = config
        for actor in self._actors:
            actor.steer(config)

    def take(self, trained: "Trained") -> None:
        """Keep the metrics of an update, and its batch."""
        self.batch = trained.made.batch
        self.metrics = {name: float(value) for name, value in trained.update.metrics.items()}

    # On the caller's thread.

    @property
    def ended(self) -> str | None:
        """Stop reason; None: the training goes on."""
        if not self._turns.over:
            return None
        return self._summary.stop_reason if isinstance(self._summary, Summary) else "failed"

    @property
    def version(self) -> int:
        """Version of the newest weights."""
        return self._parts.backend.weights.version()

    @property
    def updates(self) -> int:
        """Updates of the learner so far, earlier launches included."""
        return self._parts.state.updates

    def check(self) -> None:
        """Raise the error that has ended the training."""
        self._turns.wait()
        if isinstance(self._summary, BaseException):
            raise self._summary
        if self._summary is not None and self._summary.error is not None:
            raise DistrlError(self._summary.error)

    def learning(self) -> Episodes:
        """Make episodes that are learned from: those of one more actor."""
        return Episodes(self._environment, self._learning_rows)

    def greedy(self) -> Episodes:
        """Make greedy episodes."""
        policy = self._watching = self._watching or Policy(self._bundle)
        return Episodes(self._environment, lambda made: GreedyRows(made, policy, partial(self._refresh, policy)))

    def _learning_rows(self, environment: VectorEnvironment) -> Rows:
        from distrl.launch.deterministic import shipper_of  # here: see above

        number, backend = self._loops, self._parts.backend
        self._loops += 1
        producer = (number, backend.registry.register_actor(number))
        shipper = shipper_of(self._config, environment.spec)
        outbox = Outbox(self._config, backend, producer, self._stop, shipper)
        actor = Actor(self._config, Policy(self._bundle), environment, outbox)
        self._actors.add(actor)
        return LearningRows(actor, lambda: actor.reset(self._parts.state.updates), self._start, self._push)

    def _start(self, actor: Actor) -> None:
        actor.begin(actor.outbox.admission())

    def _push(self, actor: Actor) -> None:
        unroll = actor.close()
        if not self._turns.over:  # else the open episode goes on, and nothing is learned of it
            admission = actor.outbox.push(unroll)
            if self._automatic:
                self._turns.hand_to_training()
                self.check()
            self._is_full = not (self._automatic or admission.has_room)

    def check_learns(self, *, begins: bool) -> None:
        """Raise DistrlError if nothing can be learned from a step.

        Args:
            begins: Whether it begins an episode: one that is open goes on after the end of the training.
        """
        self.check()
        if begins and self._turns.over:
            raise DistrlError(f"act: the training has ended ({self.ended}); act(…, greedy=True) goes on, or close it")
        if self._is_full:
            raise DistrlError("act: as many unrolls wait as memory.queue_batches allows; call update")

    def _refresh(self, policy: Acting) -> None:
        weights = self._parts.backend.weights
        if weights.version() != policy.version:
            policy.follow(weights.version(), partial(UnrollShipper(self._config).fetch, weights, 1.0), 1.0)

    def update(self) -> None:
        """Let the learner work on what there is."""
        self._is_full = False
        self._turns.hand_to_training()
        self.check()

    def save(self) -> None:
        """Write a checkpoint."""
        if self.ended is not None:
            return  # the last one has all
        steering = Steering(self._parts.backend, "Python")
        number = steering.checkpoint()

        def save() -> None:
            while not steering.is_done("checkpoint", number):
                self._session.attend()
                time.sleep(SAVE_POLL_S)

        self._errands.append(save)
        self._turns.hand_to_training()
        self.check()

    def close(self) -> Summary:
        """End the training in order, and return its summary; raise the error that has ended it."""
        self._leave()
        self._thread.join()
        self.check()
        assert isinstance(self._summary, Summary)
        return self._summary
