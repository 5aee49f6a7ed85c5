"""SAC (Haarnoja et al. 2018, arXiv:1812.05905): a stochastic policy for continuous actions, two critics, and a
temperature that holds the policy's entropy at a target."""

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from distrl.algorithms.algorithm import PRIORITIES, Algorithm, MemorySpec, Networks, Update, configured_heads
from distrl.algorithms.maths.returns import batch_discounts
from distrl.algorithms.maths.soft_losses import critic_targets, soft_value, temperature_loss, weighted_mean
from distrl.config import RunConfig
from distrl.config.algorithms import SacParameters
from distrl.config.environment_checks import check_memory
from distrl.config.heads import HeadParameters, PolicyHeadParameters, QValueHeadParameters
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor
from distrl.networks.actions.joint import JointDistribution
from distrl.networks.assembly import action_input
from distrl.networks.framework.differentiation import Objective
from distrl.networks.heads.losses import huber, squared_error
from distrl.networks.network import NetworkCopy
from distrl.networks.objective import regularization
from distrl.networks.parts.action_scales import ActionScale, action_scales
from distrl.networks.steps import Step, TrainedNumber, TrainStep, held
from distrl.networks.wrapper import NetworkWrapper
from distrl.types import Batch, Contributions, EnvSpec

Rows = Mapping[str, Tensor]
"""Name -> [N, ...]."""


class Sac(Algorithm):
    """Policy, critics and temperature learn from the same transitions, in one compiled step with three optimizers.

        critics      mean((y - Q_i(o, a))^2 / 2) of both, y = r + gamma^k (min Q'(o', a') - alpha log pi(a'|o'))
        policy       mean(alpha log pi(a|o) - min Q(o, a)), a ~ pi drawn so that gradients reach the policy through it
        temperature  mean(-alpha (log pi(a|o) + target entropy)), by the logarithm of alpha

    Each moves its own variables alone. "main" is the policy, which actors run; "critic" holds both critics, networks of
    their own with the structure of the section `network`, and their target copy Q'. Critics see actions scaled to
    [-1, 1], and densities are of actions so scaled: what is learned does not depend on the unit of the actions.
    """

    heads = (PolicyHeadParameters(distribution="squashed_gaussian"),)
    critics = (QValueHeadParameters(num_output_head_copies=2),)

    def __init__(self, config: RunConfig) -> None:
        assert isinstance(config.algorithm, SacParameters)  # it is what selects this class
        self.config = config
        self.parameters = config.algorithm
        self.memory = MemorySpec.of(config)
        self._step: TrainStep | None = None
        self._objective: Objective | None = None
        self._log_temperature: TrainedNumber | None = None

    def build(self, spec: EnvSpec) -> Networks:
        """The policy, and the critics with a target copy.

        Raises:
            ConfigError: An action is not continuous within bounds, or `network` does not fit the algorithm.
        """
        scales = action_scales(spec, "sac")
        network, seed, parameters = self.config.network, self.config.seed, self.parameters
        main = NetworkWrapper(network, spec, [self._head()], has_target=False, has_global=False, name="main", seed=seed)
        if main.online.assembly.recurrent_state:
            check_memory(self.config)
        rate = parameters.critic_learning_rate or network.learning_rate
        of_critics = network.model_copy(update={"use_separate_networks_per_head": True, "learning_rate": rate})
        critic = NetworkWrapper(
            of_critics, spec, self.critics, has_target=True, has_global=False, name="critic", seed=seed
        )
        rate = parameters.temperature_learning_rate or network.learning_rate
        log_temperature = TrainedNumber("log_temperature", math.log(parameters.initial_temperature), rate)
        self._log_temperature = log_temperature
        noise = keras.random.SeedGenerator(seed)
        main.beside = {"temperature": log_temperature.variables, "noise": {"state": noise.state}}
        objective = SacObjective(parameters, main, critic, log_temperature.variable, noise, scales)
        parts = [main.part(), critic.part(), log_temperature.part]
        others = [*main.online.state_variables, *critic.step_states, noise.state]
        self._step = Step(objective, parts, others, replicas=self.config.learner.replicas)
        self._objective = Objective(objective, [*others, log_temperature.variable])
        return {"main": main, "critic": critic}

    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """One compiled step of all that learns, and of the target copy before it: hops 7 to 9.

        Args:
            batch: Transitions of a replay memory, T = 1.
        """
        if self._step is None:
            raise RuntimeError("update was called before build")
        assert isinstance(batch, Batch)  # as `memory` says
        metrics = self._step(batch)
        priorities = metrics.pop(PRIORITIES)
        # After the step: it saw what the actors saw. The next version normalises by all rows up to here.
        if metrics["finite"]:
            for network in networks.values():
                network.observe(batch)
        return Update(metrics, priorities)

    def objective(self, networks: Networks) -> Objective | None:
        return self._objective

    def steer(self, networks: Networks, config: RunConfig) -> None:
        """The learning rate of whatever has none of its own."""
        rate, parameters = config.network.learning_rate, self.parameters
        networks["main"].set_learning_rate(rate)
        networks["critic"].set_learning_rate(parameters.critic_learning_rate or rate)
        assert self._log_temperature is not None  # `build` made it, as it did the networks
        self._log_temperature.set_learning_rate(parameters.temperature_learning_rate or rate)

    def _head(self) -> HeadParameters:
        """The policy's head; raises ConfigError where it is configured as something else than a squashed Gaussian."""
        (head,) = configured_heads(self.config, self.heads)
        assert isinstance(head, PolicyHeadParameters)
        if head.distribution not in ("auto", "squashed_gaussian"):
            what = f"algorithm sac needs squashed_gaussian, not {head.distribution}; leave it out"
            raise ConfigError(f"network.heads_parameters: policy: distribution: {what}")
        return head.model_copy(update={"distribution": "squashed_gaussian"})


class SacObjective:
    """The sum of all losses, each of its own variables: what `Step` differentiates.

    Args:
        log_temperature: float32 [], a variable.
        noise: What actions are drawn from.
        scales: Of every action.
    """

    def __init__(
        self,
        parameters: SacParameters,
        main: NetworkWrapper,
        critic: NetworkWrapper,
        log_temperature: Any,
        noise: keras.random.SeedGenerator,
        scales: Mapping[str, ActionScale],
    ) -> None:
        assert critic.target is not None
        self._parameters = parameters
        self._regression = huber if critic.parameters.replace_mse_with_huber_loss else squared_error
        self._main, self._critic, self._target = main, critic, critic.target
        self._log_temperature, self._noise, self._scales = log_temperature, noise, scales
        self._distribution = JointDistribution(main.online.assembly.actions)
        # Densities of actions scaled to [-1, 1] are higher by the logarithm of their scale.
        self._log_scale = float(sum(np.log(scale.half_width).sum() for scale in scales.values()))
        target, numbers = parameters.target_entropy, sum(len(scale.half_width) for scale in scales.values())
        self._target_entropy = -float(numbers) if target is None else target

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum, and policy_loss, critic_loss, temperature, entropy (nats), mean_value and the priorities |y - Q|."""
        parameters, weights = self._parameters, batch.importance_weights
        # Before the update, by what the last one made of the critics: the same as right after that one, and compiled.
        self._critic.follow(parameters.target_update_rate)
        before, after = ({name: rows[row] for name, rows in batch.observations.items()} for row in (0, 1))
        temperature = ops.exp(self._log_temperature.value)
        alpha = ops.stop_gradient(temperature)

        actions, log_probabilities = self._draw(before)
        with held(self._critic.online):
            worth = soft_value(*self._values(self._critic.online, before, actions), log_probabilities, alpha)
        next_actions, next_log_probabilities = self._draw(after)
        following = self._values(self._target, after, next_actions, training=False)
        targets = critic_targets(
            parameters.reward_scale * batch.rewards[0],
            batch_discounts(batch, parameters.discount)[0],
            soft_value(*following, next_log_probabilities, alpha),
        )
        taken = {name: rows[0] for name, rows in batch.actions.items()}
        values = self._values(self._critic.online, before, taken)
        errors = [targets - value for value in values]

        policy_loss = -weighted_mean(worth, weights)
        critic_loss = sum(weighted_mean(self._regression(error), weights) for error in errors)
        total = self._main.online.assembly.heads[0].parameters.loss_weight * policy_loss + critic_loss
        total = total + weighted_mean(temperature_loss(temperature, log_probabilities, self._target_entropy), weights)
        for network in (self._main, self._critic):
            total = sum(regularization(network.online.assembly, network.parameters), total)
        return total, {
            "policy_loss": policy_loss,
            "critic_loss": critic_loss,
            "temperature": temperature,
            "entropy": -ops.mean(log_probabilities),
            "mean_value": ops.mean(values[0]),
            PRIORITIES: 0.5 * (ops.abs(errors[0]) + ops.abs(errors[1])),
        }

    def _draw(self, observations: Rows) -> tuple[dict[str, Tensor], Tensor]:
        """Actions [N, n] by name, in the environment's scale, and log-densities [N] of them scaled to [-1, 1]."""
        outputs = self._main.online.model(dict(observations), training=True)
        actions, log_probabilities = self._distribution.sample_with_log_probability(outputs, self._noise)
        return actions, log_probabilities + self._log_scale

    def _values(
        self, critics: NetworkCopy, observations: Rows, actions: Rows, training: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Q1 and Q2, float32 [N] each, of actions [N, n] in the environment's scale."""
        scaled = {action_input(name): scale(actions[name]) for name, scale in self._scales.items()}
        outputs = critics.model({**observations, **scaled}, training=training)
        return outputs["q_value_0"], outputs["q_value_1"]
