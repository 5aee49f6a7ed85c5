"""SAC (Haarnoja et al. 2018, arXiv:1812.05905): soft actor-critic for continuous actions.

A stochastic policy, two critics, and a temperature that holds the policy's entropy at a target.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from keras import ops

from distrl.algorithms.algorithm import Networks
from distrl.algorithms.maths.critic_losses import smallest, soft_value, temperature_loss
from distrl.algorithms.off_policy import OffPolicyActorCritic, PolicyTerms, TargetedActorCritic
from distrl.algorithms.views import Rows, StepView
from distrl.config.algorithms import AlgorithmContext
from distrl.config.algorithms.off_policy import EntropySection, SacParameters
from distrl.config.heads import HeadParameters, PolicyHeadParameters
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor
from distrl.networks.actions.joint import JointDistribution
from distrl.networks.framework.differentiation import Part
from distrl.networks.steps import TrainedNumber


class EntropyActorCritic(OffPolicyActorCritic):
    """Base of actor-critics whose return includes the policy's entropy, weighted by a trained temperature alpha."""

    parameters: EntropySection
    _log_temperature: TrainedNumber

    def further_parts(self) -> list[Part]:
        """Return the temperature, which moves when the policy does."""
        parameters = self.parameters
        initial, rate = math.log(parameters.initial_temperature), self._temperature_rate(self.context)
        self._log_temperature = TrainedNumber("log_temperature", initial, rate)
        self.main.beside = {"temperature": self._log_temperature.variables} | self.main.beside
        return [replace(self._log_temperature.part, every=self.policy_period)]

    @property
    def temperature(self) -> Tensor:
        """alpha, float32 []."""
        return ops.exp(self._log_temperature.variable.value)

    def steer(self, networks: Networks, context: AlgorithmContext) -> None:
        super().steer(networks, context)
        self._log_temperature.set_learning_rate(self._temperature_rate(context))

    def _temperature_rate(self, context: AlgorithmContext) -> float:
        own = self.parameters.temperature_learning_rate
        return context.network.learning_rate if own is None else own


class SoftActorCritic(EntropyActorCritic):
    """Base of soft actor-critics for continuous actions.

        policy       mean(alpha log pi(a|o) - `worth`(Q(o, a))), a ~ pi drawn so that gradients reach the policy by it
        temperature  mean(-alpha (log pi(a|o) + target entropy)), by the logarithm of alpha

    Densities are those of actions scaled to [-1, 1], as the critics get them.
    """

    heads = (PolicyHeadParameters(distribution="squashed_gaussian"),)
    _distribution: JointDistribution

    def further_parts(self) -> list[Part]:
        self._distribution = JointDistribution(self.main.online.actions)
        # Log-densities of actions scaled to [-1, 1] are higher by the logarithm of their scale.
        self._log_scale = float(sum(np.log(scale.half_width).sum() for scale in self.scales.values()))
        numbers = sum(len(scale.half_width) for scale in self.scales.values())
        target = self.parameters.target_entropy
        self._target_entropy = -float(numbers) if target is None else target
        return super().further_parts()

    def policy_terms(self, view: StepView, taken: Rows) -> PolicyTerms:
        """Return soft values of drawn actions, the temperature's loss, and metrics: temperature, entropy (nats)."""
        del taken
        temperature = self.temperature
        actions, log_probabilities = self.draw(view)
        values = self.held_values(view, actions)
        return PolicyTerms(
            soft_value(self.worth(values), log_probabilities, ops.stop_gradient(temperature)),
            temperature_loss(temperature, log_probabilities, self._target_entropy),
            {"temperature": temperature, "entropy": -log_probabilities},
        )

    def worth(self, values: Sequence[Tensor]) -> Tensor:
        """Return what the policy climbs, float32 [N]: the smallest of the critics' values."""
        return smallest(values)

    def configured_heads(self) -> list[HeadParameters]:
        """Return the policy's head; raise ConfigError unless it is a squashed Gaussian."""
        (head,) = super().configured_heads()
        assert isinstance(head, PolicyHeadParameters)
        if head.distribution not in ("auto", "squashed_gaussian"):
            what = f"algorithm {self.parameters.name} needs squashed_gaussian, not {head.distribution}; leave it out"
            raise ConfigError(f"network.heads_parameters: policy: distribution: {what}")
        return [head.model_copy(update={"distribution": "squashed_gaussian"})]

    def draw(self, view: StepView, *, training: bool = True) -> tuple[dict[str, Tensor], Tensor]:
        """Draw actions [N, n] by name, scaled to [-1, 1]; return them and their log-densities [N] in that scale."""
        outputs = view.outputs(self.main.online, {}, training=training)
        actions, log_probabilities = self._distribution.sample_with_log_probability(outputs, self.noise)
        return self.scaled(actions), log_probabilities + self._log_scale


class Sac(TargetedActorCritic, SoftActorCritic):
    """Two critics, of which the smaller counts: y = r + gamma^k (min Q'(o', a') - alpha log pi(a'|o'))."""

    Parameters: ClassVar[type[EntropySection]] = SacParameters
    parameters: EntropySection

    def next_values(self, view: StepView) -> Tensor:
        """Return soft values, each of one action drawn from the policy."""
        actions, log_probabilities = self.draw(view)
        values = self.target_values(view, actions)
        return soft_value(smallest(values), log_probabilities, self.temperature)
