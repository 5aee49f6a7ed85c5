"""A training elsewhere that an agent joins as one more actor: its learner takes the unrolls of the caller's loops."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from weakref import WeakSet

from distrl.actors.actor import Actor
from distrl.actors.admission import FOR_THE_LEARNER
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.apps.agents.common_policy import CommonPolicy, LoopPolicy
from distrl.apps.agents.loop import Episodes, GreedyRows, LearningRows, Rows
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.remote_environment import GivenSpaces
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, DistrlError, MemoryBackendError
from distrl.launch.run_to_join import RunToJoin
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.steering import Steering
from distrl.memory_backend.stream import Admission
from distrl.roles.description import RunAddress
from distrl.roles.join import JoinedRole, await_bundle, await_weights, log
from distrl.roles.plan import Role

GIVE_UP_S, LOOK_S = 5.0, 0.5
SAVE_POLL_S = 0.05


def check_takes_unrolls(config: RunConfig, run_id: str) -> None:
    """Raise ConfigError if the run has no use for unrolls of loops that are not its own."""
    if config.learns_from_data or config.algorithm.ships != "unrolls":
        what = "learns from data" if config.learns_from_data else f"takes {config.algorithm.ships} of its actors"
        raise ConfigError(f"run {run_id} {what}: a loop of your own cannot join it")


class _Member(JoinedRole):
    """The actor that the run knows: heartbeats, settings of operators, and the end of the run.

    It runs on a thread; the caller's thread acts with its connection.
    """

    def __init__(self, role: Role, address: RunAddress, stop: threading.Event) -> None:
        super().__init__(role, address, stop)
        config = self._run.config
        check_takes_unrolls(config, address.run_id)
        self._incarnation = self._backend.registry.register_actor(role.id)
        self.actors, self.loops = WeakSet[Actor](), 0
        self.left = threading.Event()
        producer = role.id, self._incarnation
        self.outbox = Outbox(config, self._backend, producer, lambda: stop.is_set() or self.left.is_set())

    @property
    def config(self) -> RunConfig:
        return self._run.config

    def _work(self, cleanup: ExitStack) -> None:
        """Watch the run until the agent leaves it, or it is gone."""
        watch = self._run.open_backend("agent")
        cleanup.callback(watch.close)
        while not (self.left.wait(LOOK_S) or self._stop.is_set()):
            with self.until_gone():
                watch.check_launch()

    @contextmanager
    def until_gone(self) -> Iterator[None]:
        """Note the end of a run that is gone, was launched again, or whose Redis is gone for good."""
        try:
            yield
        except MemoryBackendError as error:
            log.info("the agent has left the run: %s", error)
            self._stop.set()

    def status(self) -> RoleStatus:
        """The heartbeat. The age of the newest step counts for nothing: the caller may take as long as it likes."""
        progress, waits = self.outbox.progress, self.outbox.waits.shares()
        return replace(
            self._identity(),
            state=progress.state,
            env_steps=progress.env_steps,
            weights_version=max((actor.weights_version for actor in [*self.actors]), default=0),
            blocked_share=sum(waits.get(name, 0.0) for name in FOR_THE_LEARNER),
            waits=waits,
        )

    def _steer(self, config: RunConfig) -> None:
        super()._steer(config)
        for actor in [*self.actors]:
            actor.steer(config)


class JoinedTraining:
    """The training of a run that goes on in other processes.

    All loops of the agent are one actor of the run, whose policy they share.

    Args:
        spaces: None: those of the run's environment.

    Raises:
        ConfigError: The environment is another one than the run's, or no loop can join the run.
        MemoryBackendError: There is no such run, or its Redis cannot be reached.
    """

    metrics: Mapping[str, float] = {}
    batch = None

    def __init__(self, to_join: RunToJoin, spaces: GivenSpaces | None) -> None:
        redis_url, run_id = to_join.address()
        with closing(connect(redis_url, run_id, name="agent", give_up_s=GIVE_UP_S)) as backend:
            role = Role("actor", backend.registry.claim_actor())
        self._stop, self._joined = threading.Event(), to_join
        self._member = _Member(role, RunAddress(redis_url, run_id, to_join.trust()), self._stop)
        self._backend = self._member._backend  # of the caller's thread from now on
        self._thread = threading.Thread(target=self._member.run, name="agent", daemon=True)
        self._thread.start()
        try:
            self._begin(spaces)
        except BaseException:
            self.close()
            raise

    def _begin(self, spaces: GivenSpaces | None) -> None:
        from distrl.environments.given import given_environment, spaces_of_named  # here: it brings gymnasium

        config, backend = self._member.config, self._backend
        bundle = await_bundle(backend, self._stop)
        if bundle is None or not await_weights(backend, self._stop):
            raise DistrlError(f"the run has ended: {self.ended}")
        given = spaces or config.environment.spaces or spaces_of_named(config.environment)
        self._environment: EnvironmentConfig = config.environment.model_copy(update={"spaces": given})
        self._common, self._watching = CommonPolicy(bundle), Policy(bundle)
        if difference := self._watching.spec.unlike(given_environment(self._environment)[0].spec):
            raise ConfigError(f"the loop does not fit the run: {difference}")

    @property
    def config(self) -> RunConfig:
        return self._member.config

    @property
    def ended(self) -> str | None:
        """Stop reason; None: the training goes on."""
        return (self._joined.launch_ended() or "gone") if self._stop.is_set() else None

    @property
    def version(self) -> int:
        """Version of the weights that act."""
        return self._common.policy.version

    @property
    def updates(self) -> int:
        """Updates of the learner behind the weights that act."""
        return max((actor.progress.updates for actor in self._member.actors), default=0)

    def check_learns(self, *, begins: bool) -> None:
        """Raise DistrlError if nothing can be learned from an episode that begins."""
        if begins and (ended := self.ended) is not None:
            raise DistrlError(f"act: the run has ended ({ended}); act(…, greedy=True) goes on, or close the agent")

    def learning(self) -> Episodes:
        """Make episodes that are learned from."""
        return Episodes(self._environment, self._learning_rows)

    def greedy(self) -> Episodes:
        """Make greedy episodes."""
        return Episodes(self._environment, lambda made: GreedyRows(made, self._watching, self._refresh))

    def _learning_rows(self, environment: VectorEnvironment) -> Rows:
        algorithm = self.config.algorithm
        if algorithm.max_staleness_updates is not None:
            if self._member.actors:
                raise DistrlError(
                    f"act: the run's staleness is bounded ({algorithm.name}): an update waits for every loop, so loops "
                    "of one agent wait for each other; give each an agent in its own process, or use serve --learn"
                )
            with self._member.until_gone():
                self._backend.tickets.reclaim(self._member.outbox.producer)  # of a loop that was forgotten
        actor = Actor(self.config, LoopPolicy(self._common), environment, self._member.outbox)
        self._member.actors.add(actor)
        loop, self._member.loops = self._member.loops, self._member.loops + 1
        return LearningRows(actor, lambda: actor.reset(0, loop), self._start, self._push)

    def _start(self, actor: Actor) -> None:
        """Begin an unroll as soon as it may."""
        outbox, admission = actor.outbox, None
        if not self._stop.is_set():
            with self._member.until_gone():
                admission = outbox.wait(outbox.admission())
        # After the end, an open episode goes on with the weights that it has.
        actor.begin(admission or Admission(True, actor.weights_version, False, False))

    def _push(self, actor: Actor) -> None:
        unroll = actor.close()
        if not self._stop.is_set():
            with self._member.until_gone():
                actor.outbox.push(unroll)

    def _refresh(self) -> None:
        if self._stop.is_set():
            return
        if (newest := self._backend.weights.version()) != self._watching.version:
            self._watching.follow(newest, lambda: self._member.outbox.fetch(1.0), 1.0)

    def update(self) -> None:
        """Refuse: the learner does."""
        raise DistrlError("update: the run's learner makes updates as unrolls come; there is nothing to call")

    def save(self) -> None:
        """Have the run's learner write a checkpoint.

        Raises:
            DistrlError: The run has ended.
        """
        steering, number = Steering(self._backend, "an agent"), None
        while self.ended is None:
            number = steering.checkpoint() if number is None else number
            if steering.is_done("checkpoint", number):
                return
            time.sleep(SAVE_POLL_S)
        raise DistrlError(f"save: the run has ended ({self.ended})")

    def close(self) -> None:
        """Leave the run, which goes on. Unrolls that are not full are abandoned."""
        self._member.left.set()
        self._thread.join()
