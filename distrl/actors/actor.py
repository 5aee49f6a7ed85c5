"""The actor's loop: hops 1 to 5, in the order in which it calls their modules.

`actors/admission.py` decides when an unroll may start; `actors/extras/` has what unrolls carry beside their steps;
`actors/shipping.py` makes the payload of a full one.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from distrl.actors.acting import Acting
from distrl.actors.admission import ActorProgress, Gate
from distrl.actors.exploring import Exploration
from distrl.actors.exploring.explorers import ActorRows
from distrl.actors.extras import make_extras
from distrl.actors.shipping import Shipper, UnrollShipper
from distrl.actors.unroll import UnrollBuilder, restarted
from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import Producer
from distrl.memory_backend.stream import Admission
from distrl.metrics.counters import Waits


class Actor:
    """Steps environments under the newest policy and pushes unrolls, until `stop` returns True.

    Args:
        producer: (actor id, incarnation).
        shipper: Makes the payloads of the actor; None: unrolls are pushed as they are.
        progress: Shared with an `Acting` that may wait.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        policy: Acting,
        environment: VectorEnvironment,
        producer: Producer,
        stop: Callable[[], bool],
        shipper: Shipper | None = None,
        progress: ActorProgress | None = None,
    ) -> None:
        self._config = self._steered = config
        self._backend, self._policy, self._environment = backend, policy, environment
        self._producer, self._sequence = producer, 0
        rows = ActorRows(producer[0], max(config.actors.count, 1), environment.rows)
        self._exploration = Exploration(policy.exploration, policy.distributions, environment.spec.actions, rows)
        self._unroll = UnrollBuilder(
            environment.spec,
            config.actors.unroll_length_steps,
            environment.rows,
            config.state_rows,
            config.algorithm.discount,
            config.network.action_mask,
        )
        self._extras = make_extras(config, policy, environment)
        self._shipper = shipper or UnrollShipper(config)
        self.progress = progress or ActorProgress()
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
        self._take_settings()
        key = np.random.SeedSequence(self._config.seed, spawn_key=(1, *self._producer, update))
        environment_seed, sampling_seed, shipping_seed = key.spawn(3)
        self._shipper.reset(shipping_seed)
        self._policy.forget_weights()
        self._rng = np.random.default_rng(sampling_seed)
        self._exploration.reset()
        self._exploration.move_to(self._backend.weights.progress())
        for extra in self._extras:
            extra.reset(self._config, self._exploration.progress)
        observations = self._environment.reset(int(environment_seed.generate_state(1)[0]))
        self._unroll.begin(observations, self._policy.initial_state(self._environment.rows))

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
        self._exploration.perturb(self._policy, self._rng)
        for extra in self._extras:
            extra.begin(self._config, self._exploration.progress)
        # Before the state: a heartbeat in between would be of a hung actor.
        self.progress.last_step_at = time.monotonic()
        self.progress.state = "acting"
        while not self._unroll.full:
            output = self._policy.step(*self._unroll.newest)  # hop 2
            actions, log_probabilities = self._exploration.sample(output.outputs, self._rng)
            step = self._environment.step(actions)  # hop 1
            self._unroll.add(actions, log_probabilities, step, restarted(output.recurrent_state, step.valid))  # hop 3
            for extra in self._extras:
                extra.add(output, step)
            self._exploration.follow(step.valid)
            self.progress.last_step_at = time.monotonic()
        unroll = self._unroll.close(self._producer, self._sequence, self._policy.version)
        for extra in self._extras:
            unroll = extra.close(unroll)
        payload = self._shipper.payload(unroll, self.progress)  # hop 4
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
        self._shipper.steer(self._config)

    def _pull_weights(self, newest: int) -> None:
        """Act with the newest weights, at the mixing rate, unless they are in use."""
        rate = self._config.actors.weight_mixing_rate
        fetch = partial(self._shipper.fetch, self._backend.weights, rate)
        if newest != self._policy.version and (progress := self._policy.follow(newest, fetch, rate)) is not None:
            self._exploration.move_to(progress)
