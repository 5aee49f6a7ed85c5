"""The courier: a thread between seats and the run's Redis. It pushes unrolls, fetches weights and asks for admission.

Acting goes on while Redis or the learner is away; then nothing is recorded.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from distrl.actors.shipping import UnrollShipper
from distrl.apps.agents.common_policy import CommonPolicy
from distrl.apps.agents.joined import check_takes_unrolls
from distrl.apps.serve.seats import Published, Run, Seat
from distrl.config import RunConfig
from distrl.environments.given import spaces_of_named
from distrl.errors import MemoryBackendError
from distrl.launch.run_to_join import RunToJoin
from distrl.memory_backend.records import AWAITS_CLIENT, Producer, RoleStatus
from distrl.roles.description import RunAddress
from distrl.roles.join import JoinedRole, await_bundle, await_weights
from distrl.roles.plan import Role
from distrl.types import PolicyBundle, Unroll

_LOG = logging.getLogger(__name__)
GIVE_UP_S = 5.0
ROUND_S = 0.02
"""Longest time between two looks at the run, while a client plays."""
IDLE_ROUND_S = 0.5
BEAT_S = 1.0
SPARE = 16
"""Registered producers without a seat: a new client's episode must not wait for Redis."""
MOST_SEATS = 256
MOST_QUEUED = 64
"""Most full unrolls that wait for Redis; beyond, nothing is recorded."""
TICKET_IDLE_S = 10.0
"""A seat without a step for that long gives its ticket back: the learner waits for it."""
RETIRE_S = 60.0
"""A seat without an episode is given up after that long."""


class Tally:
    """How much clients have taught a run since the server began; any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.unrolls = self.dropped_steps = 0

    def push(self) -> None:
        """Count an unroll that has gone to the learner."""
        with self._lock:
            self.unrolls += 1

    def drop(self, env_steps: int) -> None:
        """Count environment steps of which nothing is learned."""
        with self._lock:
            self.dropped_steps += env_steps


class Courier(JoinedRole):
    """The server's end of one launch of a run.

    Args:
        closing_down: Set when the server ends.

    Attributes:
        is_ready: Set once there are weights; from then on there are `bundle`, `published` and seats.
    """

    give_up_s = GIVE_UP_S  # acting goes on meanwhile, and a launch that comes after is joined the sooner
    bundle: PolicyBundle
    published: Published

    def __init__(self, to_join: RunToJoin, closing_down: threading.Event, tally: Tally) -> None:
        self._closing, self._tally = closing_down, tally
        redis_url, run_id = to_join.address()
        super().__init__(Role("actor", 0), RunAddress(redis_url, run_id, to_join.trust()), threading.Event())
        config, registry = self._run.config, self._backend.registry
        with ExitStack() as cleanup:
            cleanup.callback(self._backend.close)
            check_takes_unrolls(config, run_id)
            self._role = Role("actor", registry.claim_actor())
            self._incarnation = registry.register_actor(self._role.id)
            cleanup.pop_all()
        self._needs_tickets = config.algorithm.max_staleness_updates is not None
        # Producers without a seat, and the numbers of their next unrolls.
        self._spare: deque[tuple[Producer, int]] = deque([((self._role.id, self._incarnation), 0)])
        self._wake, self._pool = threading.Event(), threading.Lock()
        self._seats: set[Seat] = set()
        self._free: list[Seat] = []
        self._lost: deque[Seat] = deque()
        self._full: deque[tuple[Seat, Unroll]] = deque()
        self._shipper = UnrollShipper(config)
        self.is_ready = threading.Event()
        self._beats, self._beat_at = 0, 0.0

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self._run.config

    # On the courier's thread.

    def _work(self, cleanup: ExitStack) -> None:
        with self._until_gone():
            if not self._sit_down():
                return
        cleanup.callback(self._leave)
        while not (self._closing.is_set() or self._stop.is_set()):
            busy = len(self._seats) > len(self._free)
            self._wake.wait(ROUND_S if busy else IDLE_ROUND_S)
            self._wake.clear()
            with self._until_gone():
                self._round()

    def _sit_down(self) -> bool:
        """Wait for the learner's first weights; return False if the run has ended."""
        bundle = await_bundle(self._backend, self._stop)
        if bundle is None or not await_weights(self._backend, self._stop):
            return False
        self._admission = self._backend.unrolls.admission()
        self._fetch()
        environment = self.config.environment
        spaces = environment.spaces or spaces_of_named(environment)
        self._run_of_seats = Run(
            self.config,
            environment.model_copy(update={"spaces": spaces}),
            self._run.description.start.update,
            self._backend,
            CommonPolicy(bundle),
            self._stop,
            lambda: self.published,
            self._admits,
            self._take,
            self._tally.drop,
        )
        self._register()
        self.bundle = bundle
        self._enter(AWAITS_CLIENT)
        self.is_ready.set()
        _LOG.info("its learner learns from the episodes that begin now")
        return True

    def _round(self) -> None:
        """Do what seats wait for, and once a second what the run expects of its actors."""
        self._push_all()
        self._admission = self._backend.unrolls.admission()
        if self._admission.weights_version not in (0, self.published.weights.version):
            self._fetch()
        for seat in [*self._seats]:
            if seat.wants:
                self._grant(seat)
        self._register()
        if time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + BEAT_S
            self._attend()

    def _grant(self, seat: Seat) -> None:
        """Take a ticket for a seat, which has none: the push of its earlier unroll has released that."""
        self._push_all()
        if not seat.outbox.opens(self._admission):
            return
        if self._backend.weights.version() != self.published.weights.version:
            self._fetch()  # a ticket promises the newest weights
        seat.granted = True
        seat.wants = False  # in this order: a step in between finds one of them, and asks for no second ticket

    def _push_all(self) -> None:
        while self._full:
            seat, unroll = self._full[0]
            # Its number is that of the push: an earlier unroll may have waited here when it was made.
            header = replace(unroll.header, sequence=seat.outbox.sequence)
            seat.outbox.push(replace(unroll, header=header))
            self._full.popleft()
            self._tally.push()

    def _fetch(self) -> None:
        if (found := self._shipper.fetch(self._backend.weights, 1.0)) is not None:
            self.published = Published(*found)

    def _register(self) -> None:
        while len(self._spare) < SPARE and len(self._seats) + len(self._spare) < MOST_SEATS:
            actor = self._backend.registry.claim_actor()
            self._spare.append(((actor, self._backend.registry.register_actor(actor)), 0))

    def _attend(self) -> None:
        """Tell that the seats are alive, and look after those that are not stepped."""
        self._backend.check_launch()
        now = time.monotonic()
        with self._pool:  # no call of Redis here: clients wait for this lock
            retired = [seat for seat in self._free if now - seat.since > RETIRE_S]
            self._free = [seat for seat in self._free if seat not in retired]
        for seat in retired:
            self._let_go(seat)
            self._seats.discard(seat)
            self._spare.append((seat.producer, seat.outbox.sequence))  # else actors' numbers would grow for ever
        while self._lost:
            self._let_go(self._lost.popleft())
        self._beats += 1
        for seat in [*self._seats]:
            if self._needs_tickets and seat.give_up(now - TICKET_IDLE_S):
                self._backend.tickets.reclaim(seat.producer)
            if seat.producer[0] != self._role.id:  # that one has the heartbeat of this role
                self._backend.registry.beat(replace(seat.status(), beat=self._beats))

    def _let_go(self, seat: Seat) -> None:
        """Give back the ticket of an actor that has ended, and remove its heartbeat."""
        seat.give_up()
        self._backend.tickets.reclaim(seat.producer)
        self._backend.registry.forget(seat.status().key)

    def _leave(self) -> None:
        """Push what is full, and give back all tickets."""
        self._stop.set()  # seats begin no unroll any more
        seats = *self._seats, *self._lost
        for seat in seats:
            seat.give_up()
        with suppress(MemoryBackendError):  # the supervisor reclaims them, once it misses the heartbeats
            self._push_all()
            for seat in seats:
                self._let_go(seat)
        for _, unroll in self._full:
            self._tally.drop(unroll.header.env_steps)

    def status(self) -> RoleStatus:
        """The heartbeat, of the seat with this role's number."""
        own = next((seat for seat in [*self._seats] if seat.producer[0] == self._role.id), None)
        return self._identity() if own is None else own.status()

    def _steer(self, config: RunConfig) -> None:
        super()._steer(config)
        for seat in [*self._seats]:
            seat.steer(config)

    @contextmanager
    def _until_gone(self) -> Iterator[None]:
        """End this courier when the run is gone, was launched again, or its Redis is gone for good."""
        try:
            yield
        except MemoryBackendError as error:
            _LOG.info("nothing is learned for now: %s", error)
            self._stop.set()

    # Where actions are chosen.

    def seat(self) -> Seat | None:
        """Return a free seat; None: there is none, or the run is away."""
        if not self.is_ready.is_set() or self._stop.is_set():
            return None
        with self._pool:
            if self._free:
                return self._free.pop()  # the newest one: its open unroll is the freshest
        if not self._spare:
            self._wake.set()
            return None
        seat = Seat(self._run_of_seats, *self._spare.popleft())
        self._seats.add(seat)
        config = None
        while config is not self._steered:  # a change in between reaches it too
            config = self._steered
            seat.steer(config)
        self._wake.set()
        return seat

    @property
    def learns(self) -> bool:
        """Whether episodes in its seats can be learned from."""
        return not self._stop.is_set()

    @property
    def episodes(self) -> int:
        """Number of episodes that are open in its seats."""
        return len(self._seats) - len(self._free)

    def free(self, seat: Seat) -> None:
        """Take a seat back whose episode is over."""
        seat.wants = False
        seat.since = time.monotonic()
        with self._pool:
            self._free.append(seat)

    def lose(self, seat: Seat) -> None:
        """Give up a seat whose unroll cannot be learned from."""
        self._seats.discard(seat)
        self._lost.append(seat)

    def _admits(self, seat: Seat) -> bool:
        if self._stop.is_set() or len(self._full) >= MOST_QUEUED:
            return False
        if not self._needs_tickets:
            return seat.outbox.opens(self._admission)
        if seat.granted:
            seat.granted = False
            return True
        if not seat.wants:
            seat.wants = True
            self._wake.set()
        return False

    def _take(self, seat: Seat, unroll: Unroll) -> None:
        self._full.append((seat, unroll))
        self._wake.set()
