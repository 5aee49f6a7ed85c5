"""The actor's loop: hops 2 to 5. Everything it does is in the modules it calls, in this order."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from distrl.actors.exploring.epsilon_greedy import Crowd
from distrl.actors.exploring.exploration import Exploration
from distrl.actors.policy import Policy
from distrl.actors.priorities import FirstPriorities
from distrl.actors.unroll import UnrollBuilder, restarted
from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.errors import MemoryBackendError
from distrl.memory_backend.backend import Admission, Backend
from distrl.memory_backend.codec import decode_weights, encode_unroll
from distrl.memory_backend.registry_interface import Producer
from distrl.metrics.counters import Waits
from distrl.types import Unroll, UnrollHeader, Weights

log = logging.getLogger(__name__)
POLL_S = 0.0005
LONGEST_POLL_S = 0.1
REMOVALS = ("waiting: room", "waiting: round")
"""Waits that end when the learner has removed entries from the stream, of which Redis tells an actor that waits."""
FOR_THE_LEARNER = ("waiting: room", "waiting: round", "waiting: ticket")
"""Waits that end when the learner has gone on."""
LOOKS = 0.1
"""From one look for a push that may be lost to the next, in `learner.sync_timeout_s`."""


@dataclass
class ActorProgress:
    """What the heartbeat reads while the actor works. Written by the actor's thread alone."""

    state: str = "starting"
    env_steps: int = 0
    last_step_at: float = 0.0  # monotonic seconds


class Shipper(Protocol):
    """Hop 4: what becomes of an unroll on its way to the stream. The default ships it as it is.

    Attributes:
        state: What the actor does meanwhile, for `ActorProgress.state`.
    """

    state: str

    def reset(self, seeds: np.random.SeedSequence) -> None:
        """Starts what is random anew from `seeds`; the next weights are taken whole."""

    def take_weights(self, weights: Weights, rate: float) -> Weights:
        """Takes note of newly published weights, at the mixing rate; returns those that the policy acts with."""

    def steer(self, config: RunConfig) -> None:
        """Takes over what operators have changed, between two unrolls."""

    def payload(self, unroll: Unroll) -> bytes:
        """The bytes that travel under the unroll's header."""


class UnrollShipper:
    """Ships unrolls."""

    state = "acting"  # it takes no time to speak of

    def reset(self, seeds: np.random.SeedSequence) -> None:
        """Nothing is random, and weights are the policy's."""

    def take_weights(self, weights: Weights, rate: float) -> Weights:
        """All are the policy's."""
        return weights

    def steer(self, config: RunConfig) -> None:
        """Nothing of it is for who ships unrolls as they are."""

    def payload(self, unroll: Unroll) -> bytes:
        """The encoded unroll."""
        return encode_unroll(unroll)


class Actor:
    """Steps environments under the newest policy and pushes unrolls, until `stop` says so.

    Args:
        backend: The memory backend; used by this thread alone.
        producer: (actor id, incarnation).
        stop: Asked between unrolls and while waiting.
        shipper: What is pushed of an unroll; None: all of it.

    Attributes:
        progress: What the actor does.
        waits: Where its time goes that it does not act in, by the states of `progress`.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        policy: Policy,
        environment: VectorEnvironment,
        producer: Producer,
        stop: Callable[[], bool],
        shipper: Shipper | None = None,
    ) -> None:
        self._shipper: Shipper = shipper or UnrollShipper()
        self._backend = backend
        self._policy = policy
        crowd = Crowd(producer[0], max(config.actors.count, 1), environment.rows)
        self._exploration = Exploration(policy.exploration, policy.distributions, environment.spec.actions, crowd)
        self._environment = environment
        self._producer = producer
        self._stop = stop
        self._rate = config.actors.weight_mixing_rate
        self._needs_ticket = config.algorithm.max_staleness_updates is not None
        self._in_rounds = config.in_rounds
        self._sync_timeout_s = config.learner.sync_timeout_s
        self._config = self._steered = config
        self._newest: UnrollHeader | None = None  # of the newest push
        self._look_at = 0.0  # monotonic seconds from when on to ask whether it was lost
        self._seed = config.seed
        self._sequence = 0
        self._unroll = UnrollBuilder(
            environment.spec,
            config.actors.unroll_length_steps,
            environment.rows,
            config.algorithm.reward_moments_discount,
        )
        self._priorities: FirstPriorities | None = None
        if config.algorithm.tells_priorities:
            self._priorities = FirstPriorities(config.algorithm, policy.distributions)
        self.progress = ActorProgress()
        self.waits = Waits()

    @property
    def weights_version(self) -> int:
        """Version in use; 0 before the first."""
        return self._policy.version

    def reset(self, update: int) -> None:
        """Abandons open episodes and seeds environments and sampling from (seed, actor, incarnation, update).

        The next weights are taken whole: what earlier ones have been mixed to is known to nobody who begins here.
        """
        key = np.random.SeedSequence(self._seed, spawn_key=(1, *self._producer, update))
        environment_seed, sampling_seed, shipping_seed = key.spawn(3)
        self._shipper.reset(shipping_seed)
        self._policy.forget_weights()
        self._rng = np.random.default_rng(sampling_seed)
        self._exploration.reset()
        self._observations = self._environment.reset(int(environment_seed.generate_state(1)[0]))
        self._recurrent_state = self._policy.initial_state(self._environment.rows)
        self._unroll.begin(self._observations, self._recurrent_state)
        if self._priorities is not None:
            self._priorities.begin()

    def steer(self, config: RunConfig) -> None:
        """Goes by this configuration from the next unroll on, as far as it may change; called by any thread."""
        self._steered = config

    def run(self) -> None:
        """Unrolls until stopped; every wait is named in `progress.state`."""
        admission = self._await_start(self._backend.unrolls.admission())
        while admission is not None:
            admission = self._await_start(self.step(admission))
        self.progress.state = "stopping"

    def step(self, admission: Admission) -> Admission:
        """One unroll, from pulling the weights to the push; returns what the push's round trip says."""
        if self._config is not self._steered:
            self._config = self._steered
            self._exploration.change(self._config.exploring)
            self._shipper.steer(self._config)
        self._pull_weights(admission.weights_version)
        self._exploration.perturb(self._policy, self._rng)
        self.progress.state = "acting"
        self.progress.last_step_at = time.monotonic()
        while not self._unroll.full:
            output = self._policy.step(self._observations, self._recurrent_state)  # hop 2
            actions, log_probabilities = self._exploration.sample(output.outputs, self._rng)
            if self._priorities is not None:
                self._priorities.add(output.outputs)
            step = self._environment.step(actions)  # hop 1
            self._unroll.add(actions, log_probabilities, step)  # hop 3
            self._exploration.follow(step.valid)
            self._observations = step.observations
            self._recurrent_state = restarted(output.recurrent_state, step.valid)
            self.progress.last_step_at = time.monotonic()
        unroll = self._unroll.close(self._producer, self._sequence, self._policy.version, self._recurrent_state)
        if self._priorities is not None:
            last = self._policy.step(self._observations, self._recurrent_state)
            unroll = self._priorities.told(unroll, last.outputs)
        self.progress.state = self._shipper.state
        payload = self._shipper.payload(unroll)  # hop 4
        admission = self._backend.unrolls.push(unroll.header, payload)  # hop 5
        self._sequence += 1
        self._newest = unroll.header
        self._look_at = time.monotonic() + self._sync_timeout_s
        self.progress.env_steps += unroll.header.env_steps
        return admission

    def _await_start(self, admission: Admission) -> Admission | None:
        """Waits for room in the stream, weights, a new round and, where there are tickets, one of those; None: stop."""
        pause_s = POLL_S
        while not (self._stop() or admission.stop):
            obstacle = self._obstacle(admission)
            if obstacle is None and not self._needs_ticket:
                return admission
            self.progress.state = obstacle or "waiting: ticket"
            with self.waits.measure(self.progress.state):
                told = obstacle in REMOVALS
                if obstacle is not None and not told:
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_POLL_S)
                taken = obstacle is None and self._backend.tickets.take(self._producer, block_s=1.0)
                # After a ticket as well: the version may have moved, and the ticket promises the newest one.
                admission = self._backend.unrolls.admission(LONGEST_POLL_S if told else 0.0)
            if taken:
                return admission
        return None

    def _pull_weights(self, newest: int) -> None:
        """Applies the newest weights at the mixing rate, if they are not the ones in use."""
        if newest == self._policy.version:
            return
        fetched = self._backend.weights.fetch()
        if fetched is None:
            return
        weights = self._shipper.take_weights(decode_weights(fetched.blob), self._rate)
        self._policy.set_weights(weights, self._rate)  # the first ones are taken whole
        self._exploration.move_to(fetched.env_steps)

    def _obstacle(self, admission: Admission) -> str | None:
        """Why no unroll may start now, as the state to show; None if nothing is in the way.

        Raises:
            MemoryBackendError: The run is gone.
        """
        if admission.paused:
            return "paused"
        if admission.weights_version == 0:
            if self._policy.version > 0:  # versions never go back
                raise MemoryBackendError("the run is gone: it has ended, or Redis has lost its data")
            return "waiting: weights"
        if self._in_rounds and admission.weights_version == self._shipped_version and not self._was_lost():
            return "waiting: round"
        if not admission.has_room:
            return "waiting: room"
        return None

    @property
    def _shipped_version(self) -> int:
        """Of the weights behind the newest push; 0 before the first."""
        return 0 if self._newest is None else self._newest.weights_version

    def _was_lost(self) -> bool:
        """Whether the newest push is gone and nothing has come of it, so that its round needs another one.

        First asked `learner.sync_timeout_s` after the push. The learner acknowledges a round after it has published
        what came of it: what is no longer in the stream while the version is the same was refused, or Redis lost it.
        """
        now = time.monotonic()
        if self._newest is None or now < self._look_at:
            return False
        self._look_at = now + LOOKS * self._sync_timeout_s
        # The version after the stream: it may have moved since admission.
        if self._backend.unrolls.holds_newest_push() or self._backend.weights.version() != self._shipped_version:
            return False
        log.warning(
            "the gradient of version %d is gone or was refused, and no newer version came within %g s "
            "(learner.sync_timeout_s): contributing again",
            self._shipped_version,
            self._sync_timeout_s,
        )
        return True
