"""Q-learning with distributions of returns: C51 (Bellemare et al. 2017), Rainbow (Hessel et al. 2018) and QR-DQN.

The name rainbow selects C51 with double Q-learning, dueling logits, three steps, prioritised replay and noisy layers.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from keras import ops

from distrl.algorithms.maths.returns import batch_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.maths.td_targets import chosen_distributions, chosen_values, greedy_distributions, projected
from distrl.algorithms.q_learning import QLearning, TemporalDifferences
from distrl.config.algorithms.distributional import C51Section, DistributionalSection, QrDqnParameters
from distrl.config.heads import (
    AtomsSection,
    CategoricalQHeadParameters,
    HeadParameters,
    QuantileQHeadParameters,
    RainbowQHeadParameters,
)
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.losses import categorical_cross_entropy, quantile_regression
from distrl.networks.objective import TARGET
from distrl.types import Batch


class _Made(NamedTuple):
    """The choices made and what followed them, of T steps of N transitions.

    Attributes:
        distributions: float32 [T, N, K]. The head's numbers of the choices made.
        following: float32 [T, N, K]. The target network's, of the best choices after them.
        values: float32 [T, N]. Expected returns of the choices made.
        rewards, discounts: float32 [T, N].
    """

    distributions: Tensor
    following: Tensor
    values: Tensor
    rewards: Tensor
    discounts: Tensor


class _Distributional(QLearning):
    """Parent of both: selects distributions by expected returns, as Q-learning selects values."""

    parameters: DistributionalSection

    def _made(self, outputs: Mapping[str, Tensor], batch: Batch) -> _Made:
        ((action, spec),) = self.choices.items()  # as the section's `check_actions` says
        head, q = self.heads[0].kind, outputs[spec.output]
        choosing = q if self.parameters.double else outputs[TARGET + spec.output]
        choices = batch.actions[action]
        return _Made(
            distributions=chosen_distributions(outputs[head][:-1], choices),
            following=greedy_distributions(outputs[TARGET + head][1:], choosing[1:]),
            values=chosen_values(q[:-1], choices),
            rewards=learned_rewards(batch, self.parameters),
            discounts=batch_discounts(batch, self.parameters.discount),
        )


class C51(_Distributional):
    """Probabilities of returns on fixed atoms:

        m = projection of r + gamma^k Z_target(o', argmax_a E Z(o', a))
        loss = mean of w (-sum_j m_j log p_j(o, a))

    With `double`, Z in the argmax is the online network's, else the target network's. Priorities are KL(m || p)
    (Hessel et al. 2018, "the integrated agent").
    """

    Parameters = C51Section
    parameters: C51Section

    @property
    def heads(self) -> tuple[HeadParameters, ...]:
        if not self.parameters.dueling:
            return (CategoricalQHeadParameters(dense_layer=self.parameters.dense_layer),)
        return (RainbowQHeadParameters(dense_layer=self.parameters.dense_layer),)

    def temporal_differences(self, outputs: Mapping[str, Tensor], batch: Batch) -> TemporalDifferences:
        """Return the cross-entropies of logits, "<head>", float32 [T+1, N, A, atoms]."""
        (head,) = self.configured_heads()
        assert isinstance(head, AtomsSection)
        support = np.linspace(head.v_min, head.v_max, head.atoms, dtype=np.float32)
        made = self._made(outputs, batch)
        targets = projected(ops.softmax(made.following, axis=-1), support, made.rewards, made.discounts)
        losses = categorical_cross_entropy(made.distributions, targets)
        entropies = -ops.sum(targets * ops.log(ops.maximum(targets, 1e-30)), axis=-1)
        means = ops.sum(targets * support, axis=-1)
        errors, divergences = ops.abs(means - made.values), ops.maximum(losses - entropies, 0.0)
        return TemporalDifferences(losses, made.values, errors, divergences, means)


class QrDqn(_Distributional):
    """Quantiles of returns (Dabney et al. 2018, algorithm 1):

        y_j = r + gamma^k theta_target,j(o', argmax_a mean_i theta_i(o', a))
        loss = mean of w sum_i mean_j rho_{tau_i}(y_j - theta_i(o, a)), rho Huber's quantile loss

    Priorities are the absolute differences of the means.
    """

    Parameters = QrDqnParameters
    parameters: QrDqnParameters
    heads = (QuantileQHeadParameters(),)

    def temporal_differences(self, outputs: Mapping[str, Tensor], batch: Batch) -> TemporalDifferences:
        """Return the losses of quantiles, "<head>", float32 [T+1, N, A, quantiles]."""
        made = self._made(outputs, batch)
        discounts = ops.expand_dims(made.discounts, -1)
        targets = ops.stop_gradient(ops.expand_dims(made.rewards, -1) + discounts * made.following)
        losses = quantile_regression(made.distributions, targets, self.parameters.huber_kappa)
        means = ops.mean(targets, axis=-1)
        errors = ops.abs(means - made.values)
        return TemporalDifferences(losses, made.values, errors, errors, means)
