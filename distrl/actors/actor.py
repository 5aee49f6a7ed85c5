"""The actor's loop: hops 1 to 5, in the order in which it calls their modules.

`actors/outbox.py` decides when an unroll may start, and pushes it; `actors/extras/` has what it carries beside steps.
"""

import time
from functools import partial

from distrl.actors.acting import Acting, Chosen
from distrl.actors.exploring import Exploration
from distrl.actors.exploring.explorers import ActorRows
from distrl.actors.extras import make_extras
from distrl.actors.outbox import Outbox
from distrl.actors.unroll import UnrollBuilder, restarted
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import EnvironmentStep, VectorEnvironment
from distrl.memory_backend.stream import Admission
from distrl.types import Array, Unroll


class Actor:
    """Steps environments under the newest policy and pushes unrolls, until it is stopped.

    `step` is the loop; code that owns a loop calls the methods of which it is made.
    """

    def __init__(self, config: RunConfig, policy: Acting, environment: VectorEnvironment, outbox: Outbox) -> None:
        self._config = self._steered = config
        self._policy, self._environment, self._outbox = policy, environment, outbox
        rows = ActorRows(outbox.producer[0], max(config.actors.count, 1), environment.rows)
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

    @property
    def outbox(self) -> Outbox:
        """Where its unrolls go."""
        return self._outbox

    @property
    def weights_version(self) -> int:
        """Version of the weights in use; 0 before the first."""
        return self._policy.version

    @property
    def progress(self) -> Progress:
        """How far the training is, as the newest weights say."""
        return self._exploration.progress

    @property
    def newest(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Observations and recurrent state of the newest row, name -> [B, ...] each."""
        return self._unroll.newest

    @property
    def full(self) -> bool:
        """Whether the unroll has all of its rows."""
        return self._unroll.full

    def reset(self, update: int, loop: int = 0) -> None:
        """Abandon open episodes; seed environments and sampling from (seed, actor, incarnation, update, loop).

        The next weights are taken whole, not mixed: a run that begins here does not have the earlier ones. The first
        episodes have the parameters of `steer` and of the published progress.
        """
        self._take_settings()
        environment_seed, self._rng, progress = self._outbox.reset(self._config.seed, update, loop)
        self._policy.forget_weights()
        self._exploration.reset()
        self._exploration.move_to(progress)
        for extra in self._extras:
            extra.reset(self._config, progress)
        self._unroll.begin(
            self._environment.reset(environment_seed), self._policy.initial_state(self._environment.rows)
        )

    def steer(self, config: RunConfig) -> None:
        """Use this configuration's steerable settings from the next unroll on; any thread may call this."""
        self._steered = config

    def run(self) -> None:
        """Push unrolls until stopped; `progress.state` names every wait."""
        outbox = self._outbox
        admission = outbox.wait(outbox.admission())
        while admission is not None:
            admission = outbox.wait(self.step(admission))
        outbox.progress.state = "stopping"

    def step(self, admission: Admission) -> Admission:
        """Make one unroll, from pulling the weights to the push; return the push's admission."""
        self.begin(admission)
        while not self.full:
            chosen = self.choose()
            self.add(chosen, self._environment.step(chosen.actions))  # hop 1
        return self._outbox.push(self.close())  # hops 4 and 5

    def begin(self, admission: Admission) -> None:
        """Begin an unroll: pull the newest weights, and let the extras begin. Rows of an open one are forgotten."""
        self._take_settings()
        self._unroll.skip()
        self._pull_weights(admission.weights_version)
        self._version = self._policy.version  # the oldest in this unroll, where several loops share a policy
        self._exploration.perturb(self._policy, self._rng)
        for extra in self._extras:
            extra.begin(self._config, self._exploration.progress)
        self._outbox.progress.acts()

    def choose(self) -> Chosen:
        """Choose the actions of the next row."""
        output = self._policy.step(*self.newest)  # hop 2
        return Chosen(*self._exploration.sample(output.outputs, self._rng), output)

    def add(self, chosen: Chosen, step: EnvironmentStep) -> None:
        """Add the row of a step that these actions made."""
        actions, log_probabilities, output = chosen
        self._unroll.add(actions, log_probabilities, step, restarted(output.recurrent_state, step.valid))  # hop 3
        for extra in self._extras:
            extra.add(output, step)
        self._exploration.follow(step.valid)
        self._outbox.progress.last_step_at = time.monotonic()

    def close(self) -> Unroll:
        """Return the full unroll."""
        unroll = self._unroll.close(self._outbox.producer, self._outbox.sequence, self._version)
        for extra in self._extras:
            unroll = extra.close(unroll)
        return unroll

    def _take_settings(self) -> None:
        """Use the newest configuration of `steer`."""
        if self._config is self._steered:
            return
        self._config = self._steered
        self._exploration.change(self._config.exploring)
        self._outbox.steer(self._config)

    def _pull_weights(self, newest: int) -> None:
        """Act with the newest weights, at the mixing rate, unless they are in use."""
        rate = self._config.actors.weight_mixing_rate
        fetch = partial(self._outbox.fetch, rate)
        if newest != self._policy.version and (progress := self._policy.follow(newest, fetch, rate)) is not None:
            self._exploration.move_to(progress)
