"""Bootstrapped DQN (Osband et al. 2016, arXiv:1602.04621): an ensemble of values over one trunk.

The actors follow one member for a whole episode, so that an episode explores consistently. With `exploration.kind: ucb`
they are optimistic where the members disagree instead (Chen et al. 2017, arXiv:1706.01502).
"""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.algorithm import Bootstrap, Networks
from distrl.algorithms.maths.critic_losses import critic_targets
from distrl.algorithms.maths.returns import batch_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.maths.td_targets import chosen_values, greedy_values
from distrl.algorithms.q_learning import QLearning, TemporalDifferences
from distrl.config.algorithms.q_learning import BootstrappedDqnParameters
from distrl.config.heads import EnsembleQHeadParameters
from distrl.networks.actions.ensemble import EnsembleSpec
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.losses import huber
from distrl.networks.objective import TARGET
from distrl.types import BOOTSTRAP_MASKS, Batch, EnvSpec


class BootstrappedDqn(QLearning):
    """Q-learning of every member from the target network's same member:

        y_k = r + gamma^n (1 - terminated) Q_target,k(o', argmax_a Q_k(o', a))
        loss = mean of w sum_k m_k (y_k - Q_k(o, a))^2,  m_k ~ Bernoulli(p)

    Without `double`, the argmax is of Q_target,k. A transition has the same mask m whenever it is sampled; p is
    `bootstrap_probability` (section 3). With p = 1, as in the paper's section 6.1, there are no masks: members differ
    in their first weights and in their targets.

    Attributes:
        action, ensemble: The action and where its values are; known after `build`.
    """

    Parameters = BootstrappedDqnParameters
    parameters: BootstrappedDqnParameters
    heads = (EnsembleQHeadParameters(),)
    action: str
    ensemble: EnsembleSpec

    def build(self, spec: EnvSpec) -> Networks:
        networks = super().build(spec)
        ((self.action, ensemble),) = networks["main"].online.actions.items()
        assert isinstance(ensemble, EnsembleSpec)
        self.ensemble = ensemble
        return networks

    @property
    def bootstrap(self) -> Bootstrap | None:
        probability = self.parameters.bootstrap_probability
        return Bootstrap(self.ensemble.members, probability) if probability < 1.0 else None

    def temporal_differences(self, outputs: Mapping[str, Tensor], batch: Batch) -> TemporalDifferences:
        """Return the losses of all members' values, "<head>/q", float32 [T+1, N, K A].

        Values, targets, errors and priorities are means of all members, masked or not: an item that teaches none would
        have priority 0, and the greatest importance weight, by which all others are divided.
        """
        online, slow = (self._of_members(outputs[prefix + self.ensemble.output]) for prefix in ("", TARGET))
        best = greedy_values(slow[1:], online[1:] if self.parameters.double else None)
        rewards = learned_rewards(batch, self.parameters)
        discounts = batch_discounts(batch, self.parameters.discount)
        targets = critic_targets(rewards, discounts, best)
        taken = chosen_values(online[:-1], ops.expand_dims(batch.actions[self.action], -1))
        errors = targets - taken  # [T, N, K]
        regression = huber if self.context.network.replace_mse_with_huber_loss else ops.square
        losses, sizes = regression(errors), ops.abs(errors)
        if self.bootstrap is not None:
            losses = batch.extras[BOOTSTRAP_MASKS] * losses
        values, wanted, mean_error = (ops.mean(numbers, axis=-1) for numbers in (taken, targets, sizes))
        return TemporalDifferences(ops.sum(losses, axis=-1), values, mean_error, mean_error, wanted)

    def _of_members(self, values: Tensor) -> Tensor:
        """[T+1, N, K A] -> [T+1, N, K, A]."""
        return ops.reshape(values, (values.shape[0], -1, self.ensemble.members, self.ensemble.n))
