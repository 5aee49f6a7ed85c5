"""CQL (Kumar et al. 2020, arXiv:2006.04779): values are lowered where no action was recorded.

With continuous actions it is SAC's critics that learn so, with choices DQN's values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from keras import ops, random

from distrl.algorithms.dqn import Dqn
from distrl.algorithms.maths.critic_losses import smallest, soft_value
from distrl.algorithms.maths.offline import conservative_gap
from distrl.algorithms.maths.td_targets import mean_over_choices
from distrl.algorithms.off_policy import CriticTerms
from distrl.algorithms.sac import Sac
from distrl.algorithms.views import Rows, RowView, StepView
from distrl.config.algorithms.offline import CqlParameters, DiscreteCqlParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.framework.differentiation import Part
from distrl.networks.steps import TrainedNumber
from distrl.types import Batch

LARGEST_MULTIPLIER = 1e6
"""Bound of the Lagrangian's multiplier, as in the authors' code."""


class Cql(Sac):
    """SAC with the penalty CQL(H) on both critics (equation 4, appendix F):

        critics  sum_i mean(½ (y - Q_i(o, a))^2 + alpha (log sum_a exp Q_i(o, a) - Q_i(o, a)))
        y        r + gamma^k min Q'(o', a'), a' ~ pi; with `soft_targets` less alpha_SAC log pi(a'|o')

    The sum over actions is one of sampled ones, n each from the uniform distribution and from the policy at o and at
    o', of exp(Q(o, a)) / density(a). With `gap_target` tau, alpha is multiplied by a number lambda that is trained, and
    the gap is less tau (appendix F): lambda descends -lambda alpha (gap - tau), by its logarithm.
    """

    Parameters = CqlParameters
    parameters: CqlParameters
    _log_multiplier: TrainedNumber | None = None

    def further_parts(self) -> list[Part]:
        """Return the temperature, and in the Lagrangian form the multiplier, which learns at the critics' rate."""
        parts = super().further_parts()
        if self.parameters.gap_target is None:
            return parts
        rate = self.parameters.critic_learning_rate or self.context.network.learning_rate
        self._log_multiplier = TrainedNumber("log_multiplier", 0.0, rate)
        self.main.beside = {"multiplier": self._log_multiplier.variables} | self.main.beside
        return [*parts, replace(self._log_multiplier.part, every=1)]

    def next_values(self, view: StepView) -> Tensor:
        """Return the values of actions drawn from the policy, with `soft_targets` including their entropy."""
        actions, log_probabilities = self.draw(view)
        values = smallest(self.target_values(view, actions))
        return soft_value(values, log_probabilities, self.temperature) if self.parameters.soft_targets else values

    def critic_terms(self, before: StepView, taken: Rows, after: StepView, values: Sequence[Tensor]) -> CriticTerms:
        """Return the weighted gaps of both critics, and metrics: conservative_gap, the mean over them, multiplier."""
        weight, target = self.parameters.conservative_weight, self.parameters.gap_target
        gaps = [
            soft_maximum - value for soft_maximum, value in zip(self.soft_maxima(before, after), values, strict=True)
        ]
        metrics = {"conservative_gap": sum(gaps) / len(gaps)}
        if target is None or self._log_multiplier is None:
            return CriticTerms(weight * sum(gaps), metrics=metrics)
        multiplier = ops.minimum(ops.exp(self._log_multiplier.variable.value), LARGEST_MULTIPLIER)
        excess = weight * sum(gap - target for gap in gaps)
        return CriticTerms(
            ops.stop_gradient(multiplier) * excess,
            -multiplier * ops.stop_gradient(excess),
            metrics | {"multiplier": multiplier},
        )

    def soft_maxima(self, before: StepView, after: StepView) -> list[Tensor]:
        """Return ``log sum_a exp(Q_i(o, a)) / density(a)`` over sampled actions of each critic, float32 [N]."""
        assert isinstance(before, RowView)  # as `takes_sequences` says
        count = self.parameters.sampled_actions
        samples = [self._uniform(before, count), self._drawn(before, count), self._drawn(after, count)]
        actions = {name: ops.concatenate([drawn[name] for drawn, _ in samples]) for name in self.scales}
        log_densities = ops.concatenate([densities for _, densities in samples])
        rows = 3 * count

        def repeated(array: Tensor) -> Tensor:
            return ops.tile(array, (rows, *(1 for _ in array.shape[1:])))  # [N, ...] -> [3 n N, ...], sample by sample

        wide = RowView(repeated(before.valid), {name: repeated(array) for name, array in before.observations.items()})
        values = self.values(self.critic.online, wide, actions, training=True)
        return [ops.logsumexp(ops.reshape(each - log_densities, (rows, -1)), axis=0) for each in values]

    def _uniform(self, view: StepView, count: int) -> tuple[dict[str, Tensor], Tensor]:
        """Return actions [n N, ...] by name, uniform in [-1, 1], and their log-densities."""
        rows = count * view.valid.shape[0]
        drawn = {
            name: random.uniform((rows, len(scale.half_width)), -1.0, 1.0, seed=self.noise)
            for name, scale in self.scales.items()
        }
        numbers = sum(len(scale.half_width) for scale in self.scales.values())
        return drawn, ops.full((rows,), -numbers * math.log(2.0), dtype="float32")

    def _drawn(self, view: StepView, count: int) -> tuple[dict[str, Tensor], Tensor]:
        """Return actions [n N, ...] by name, drawn from the policy, and their log-densities; constants."""
        outputs = view.outputs(self.main.online, {}, training=True)
        repeated = {name: ops.tile(ops.stop_gradient(rows), (count, 1)) for name, rows in outputs.items()}
        actions, log_densities = self._distribution.sample_with_log_probability(repeated, self.noise)
        return self.scaled(actions), log_densities + self._log_scale


class DiscreteCql(Dqn):
    """DQN with the penalty CQL(H) (equation 4), an exact sum over choices:

        loss = mean of w ((y - Q(o, a))^2 + alpha (log sum_a' exp Q(o, a') - Q(o, a)))

    Of several choices at once, the mean of their gaps.
    """

    Parameters = DiscreteCqlParameters
    parameters: DiscreteCqlParameters

    def further_losses(self, outputs: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return the weighted gaps, conservative_loss."""
        values, made = self.choice_values(outputs), self.choices_made(batch)
        gaps = [conservative_gap(rows[:-1], choices) for rows, choices in zip(values, made, strict=True)]
        return {"conservative_loss": self.parameters.conservative_weight * mean_over_choices(gaps)}
