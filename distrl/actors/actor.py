"""The actor's loop: hops 1 to 5, in the order in which it calls their modules.

`actors/admission.py` decides when an unroll may start; `actors/gradient_actor.py` ships gradients in place of unrolls.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from distrl.actors.admission import ActorProgress, Gate
from distrl.actors.choice_probabilities import ChoiceProbabilities
from distrl.actors.curriculum import Curriculum
from distrl.actors.exploring import Exploration
from distrl.actors.exploring.explorers import Rows
from distrl.actors.policy import Policy
from distrl.actors.priorities import FirstPriorities
from distrl.actors.unroll import UnrollBuilder, restarted
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.environments.random_actions import require_a_choice
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import decode_weights, encode_unroll
from distrl.memory_backend.compression import compressor
from distrl.memory_backend.records import Producer
from distrl.memory_backend.stream import Admission
from distrl.metrics.counters import Waits

if TYPE_CHECKING:  # it brings the numeric framework
    from distrl.actors.gradient_actor import GradientShipper


class Actor:
    """Steps environments under the newest policy and pushes unrolls, until `stop` returns True.

    Args:
        producer: (actor id, incarnation).
        gradients: Makes the payload of a gradient actor; None: unrolls are pushed as they are.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        policy: Policy,
        environment: VectorEnvironment,
        producer: Producer,
        stop: Callable[[], bool],
        gradients: "GradientShipper | None" = None,
    ) -> None:
        self._gradients = gradients
        self._backend = backend
        self._policy = policy
        rows = Rows(producer[0], max(config.actors.count, 1), environment.rows)
        self._exploration = Exploration(policy.exploration, policy.distributions, environment.spec.actions, rows)
        self._environment = environment
        self._producer = producer
        self._rate = config.actors.weight_mixing_rate
        self._config = self._steered = config
        self._seed = config.seed
        self._sequence = 0
        self._training = Progress()  # behind the newest weights
        self._curriculum = Curriculum(config.environment, environment) if environment.spec.adjustable else None
        self._unroll = UnrollBuilder(
            environment.spec,
            config.actors.unroll_length_steps,
            environment.rows,
            config.algorithm.reward_moments_discount,
            config.state_rows,
            config.algorithm.discount,
            len(environment.metrics) if self._curriculum is None else self._curriculum.columns,
        )
        self._priorities: FirstPriorities | None = None
        if config.algorithm.tells_priorities:
            self._priorities = FirstPriorities(config.algorithm, policy.distributions)
        self._probabilities: ChoiceProbabilities | None = None
        if config.algorithm.tells_choice_probabilities:
            self._probabilities = ChoiceProbabilities(config.algorithm.name, policy.distributions)
        self._mask = config.network.action_mask
        self._compress = compressor(config.memory.compression)
        self.progress = ActorProgress()
        self._gate = Gate(config, backend, producer, stop, self.progress)

    @property
    def waits(self) -> Waits:
        """Time in which the actor does not act, by the states of `progress`."""
        return self._gate.waits

    @property
    def weights_version(self) -> int:
        """Version of the weights in use; 0 before the first."""
        return self._policy.version

    def reset(self, update: int) -> None:
        """Abandon open episodes; seed environments and sampling from (seed, actor, incarnation, update).

        The next weights are taken whole, not mixed: a run that begins here does not have the earlier ones. The first
        episodes have the parameters of `steer` and of the published progress.
        """
        key = np.random.SeedSequence(self._seed, spawn_key=(1, *self._producer, update))
        environment_seed, sampling_seed, gradient_seed = key.spawn(3)
        if self._gradients is not None:
            self._gradients.reset(gradient_seed)
        self._policy.forget_weights()
        self._rng = np.random.default_rng(sampling_seed)
        self._exploration.reset()
        if self._curriculum is not None:
            self._training = self._backend.weights.progress()
            self._curriculum.follow(self._steered.environment, self._training)
            self._curriculum.begin()
        self._observations = self._environment.reset(int(environment_seed.generate_state(1)[0]))
        self._recurrent_state = self._policy.initial_state(self._environment.rows)
        self._unroll.begin(self._observations, self._recurrent_state)
        if self._priorities is not None:
            self._priorities.begin()
        if self._probabilities is not None:
            self._probabilities.begin()

    def steer(self, config: RunConfig) -> None:
        """Use this configuration's steerable settings from the next unroll on; any thread may call this."""
        self._steered = config

    def run(self) -> None:
        """Push unrolls until stopped; `progress.state` names every wait."""
        admission = self._gate.wait(self._backend.unrolls.admission())
        while admission is not None:
            admission = self._gate.wait(self.step(admission))
        self.progress.state = "stopping"

    def step(self, admission: Admission) -> Admission:
        """Make one unroll, from pulling the weights to the push; return the push's admission."""
        self._take_settings()
        self._pull_weights(admission.weights_version)
        if self._curriculum is not None:
            self._curriculum.follow(self._config.environment, self._training)
        self._exploration.perturb(self._policy, self._rng)
        # Before the state: a heartbeat in between would be of a hung actor.
        self.progress.last_step_at = time.monotonic()
        self.progress.state = "acting"
        while not self._unroll.full:
            output = self._policy.step(self._observations, self._recurrent_state)  # hop 2
            actions, log_probabilities = self._exploration.sample(output.outputs, self._rng)
            if self._priorities is not None:
                self._priorities.add(output.outputs)
            if self._probabilities is not None:
                self._probabilities.add(output.outputs)
            step = self._environment.step(actions)  # hop 1
            self._observations = step.observations
            self._recurrent_state = restarted(output.recurrent_state, step.valid)
            metrics = self._environment.episode_metrics
            if self._curriculum is not None:
                metrics = self._curriculum.add_to(metrics, step)
            told = self._environment.succeeded, metrics
            self._unroll.add(actions, log_probabilities, step, self._recurrent_state, *told)  # hop 3
            self._exploration.follow(step.valid)
            self.progress.last_step_at = time.monotonic()
        unroll = self._unroll.close(self._producer, self._sequence, self._policy.version)
        if self._mask is not None:
            taken = {self._mask: unroll.observations[self._mask][:-1][unroll.valid]}  # [T, B, A] -> [N, A]
            require_a_choice(self._environment.spec, self._mask, taken)
        if self._priorities is not None:
            last = self._policy.step(self._observations, self._recurrent_state)
            unroll = self._priorities.added_to(unroll, last.outputs)
        if self._probabilities is not None:
            unroll = self._probabilities.added_to(unroll)
        if self._gradients is None:
            payload = self._compress(encode_unroll(unroll))  # hop 4
        else:
            self.progress.state = "differentiating"
            payload = self._gradients.payload(unroll)
        admission = self._backend.unrolls.push(unroll.header, payload)  # hop 5
        self._sequence += 1
        self._gate.pushed(unroll.header)
        self.progress.env_steps += unroll.header.env_steps
        return admission

    def _take_settings(self) -> None:
        """Use the newest configuration of `steer`."""
        if self._config is self._steered:
            return
        self._config = self._steered
        self._exploration.change(self._config.exploring)
        if self._gradients is not None:
            self._gradients.steer(self._config)

    def _pull_weights(self, newest: int) -> None:
        """Apply the newest weights at the mixing rate, unless they are in use."""
        if newest == self._policy.version:
            return
        fetched = self._backend.weights.fetch()
        if fetched is None:
            return
        weights = decode_weights(fetched.blob)
        if self._gradients is not None:
            weights = self._gradients.take_weights(weights, self._rate)
        self._policy.set_weights(weights, self._rate)  # the first ones are taken whole
        self._training = fetched.progress
        self._exploration.move_to(fetched.progress)
