"""DQN (Mnih et al. 2015) with its extensions: double, dueling, n steps, prioritised replay; Ape-X, and R2D2.

The name apex selects Horgan et al. 2018, arXiv:1803.00933: the same loss with all extensions, and many actors that
explore differently and compute first priorities. The name r2d2 selects Kapturowski et al. 2019: the same of a recurrent
network and sequences, with rescaled values.
"""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.hooks import stated
from distrl.algorithms.maths.returns import batch_discounts, n_step
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.maths.td_targets import (
    action_gaps,
    chosen_values,
    greedy_values,
    mean_over_choices,
    repeated_gaps,
    rescaled,
    unscaled,
)
from distrl.algorithms.q_learning import QLearning, TemporalDifferences
from distrl.config.algorithms.q_learning import DqnSection
from distrl.config.heads import DuelingQHeadParameters, HeadParameters, QHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.actions.values import choices_made, values_of_choices
from distrl.networks.heads.losses import huber
from distrl.networks.objective import TARGET
from distrl.types import Batch


class Dqn(QLearning):
    """Q-learning from replay with a target network:

        y = sum_{i<n} gamma^i r_{t+i} + gamma^n (1 - terminated) Q_target(o_{t+n}, argmax_a Q(o_{t+n}, a))
        loss = mean of w (y - Q(o_t, a_t))^2

    With `double`, Q in the argmax is the online network's, else the target network's. With
    `network.replace_mse_with_huber_loss` the square is Huber's loss. With `value_rescaling` the network's values are
    h(Q), and the target is h(y) (Pohlen et al. 2018, arXiv:1805.11593, section 3.2). `monte_carlo_share` mixes y with
    the return of the sequence, and `advantage_learning` lowers it by the gap of the choice made.
    """

    Parameters = DqnSection
    parameters: DqnSection

    @property
    def heads(self) -> tuple[HeadParameters, ...]:
        return (DuelingQHeadParameters() if self.parameters.dueling else QHeadParameters(),)

    def temporal_differences(self, outputs: Mapping[str, Tensor], batch: Batch) -> TemporalDifferences:
        """Return the differences of the values of all choices, "<head>/q…", float32 [T+1, N, A]."""
        return self._differences(outputs, batch, self.parameters.replay.item.n_step)

    def _differences(self, outputs: Mapping[str, Tensor], batch: Batch, n_step: int) -> TemporalDifferences:
        """Return `temporal_differences`, of sequences with so many rewards before the bootstrap."""
        online, slow = self.choice_values(outputs), self.choice_values(outputs, target=True)
        steps, rescaling = batch.valid.shape, self.parameters.value_rescaling
        best = stated(self, "next_values", self.next_values(outputs), (steps[0] + 1, *steps[1:]))
        rewards = stated(self, "rewards", self.rewards(outputs, batch), steps)
        targets = self._returns(unscaled(best) if rescaling else best, rewards, batch, n_step)
        targets = rescaled(targets) if rescaling else targets
        made = self.choices_made(batch)
        taken = [chosen_values(values[:-1], choices) for values, choices in zip(online, made, strict=True)]
        lowered = [self._lowered(targets, *each, batch) for each in zip(slow, made, strict=True)]
        errors = [target - values for target, values in zip(lowered, taken, strict=True)]
        sizes = mean_over_choices([ops.abs(error) for error in errors])
        return TemporalDifferences(
            mean_over_choices([stated(self, "error_loss", self.error_loss(error), steps) for error in errors]),
            mean_over_choices(taken),
            sizes,
            sizes,
            mean_over_choices(lowered),
        )

    def next_values(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """Return V of every observation, float32 [T+1, N], from which targets go on; it gets no gradient.

        Here the target network's value of the best choice, of several choices their mean.
        """
        slow = self.choice_values(outputs, target=True)
        choosing = self.choice_values(outputs) if self.parameters.double else slow
        return mean_over_choices([greedy_values(values, by) for values, by in zip(slow, choosing, strict=True)])

    def rewards(self, outputs: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Return the rewards of the targets, float32 [T, N], any number where not valid; they get no gradient.

        Of a transition over n steps it is the discounted sum over these.
        """
        del outputs
        return learned_rewards(batch, self.parameters)

    def error_loss(self, errors: Tensor) -> Tensor:
        """Return the loss of each error y - Q, float32 [T, N]: the paper's square, without ½, or Huber's, with ½."""
        regression = huber if self.context.network.replace_mse_with_huber_loss else ops.square
        return regression(errors)

    def choice_values(self, outputs: Mapping[str, Tensor], *, target: bool = False) -> list[Tensor]:
        """Return the values of all choices, by the online or the target network.

        Returns:
            float32 [T+1, N, A] of an action that is one choice; one such array for each choice of several.
        """
        return values_of_choices(outputs, self.choices, TARGET if target else "")

    def choices_made(self, batch: Batch) -> list[Tensor]:
        """Return the choices made, int32 [T, N] each, in the order of `choice_values`."""
        return choices_made(batch.actions, self.choices)

    def _returns(self, best: Tensor, rewards: Tensor, batch: Batch, n_step_rewards: int) -> Tensor:
        """Return targets of all steps from the values of the best choices, float32 [T+1, N] -> [T, N]."""
        parameters = self.parameters

        def over(steps: int) -> Tensor:
            returns = n_step(  # of a transition, whose reward holds n of them already, the one step that it is
                values=best,
                rewards=rewards,
                discounts=batch_discounts(batch, parameters.discount),
                valid=batch.valid,
                steps=steps,
            )
            return returns.value_targets

        targets, share = over(n_step_rewards), parameters.monte_carlo_share
        return (1.0 - share) * targets + share * over(batch.rewards.shape[0]) if share else targets

    def _lowered(self, targets: Tensor, slow: Tensor, choices: Tensor, batch: Batch) -> Tensor:
        """Return a choice's targets by (persistent) advantage learning; as they are without it.

        Args:
            targets: float32 [T, N].
            slow: float32 [T+1, N, A]. The target network's values of this choice.
            choices: int32 [T, N].
        """
        learning = self.parameters.advantage_learning
        if learning is None:
            return targets
        if learning.persistent:
            return ops.stop_gradient(targets - learning.alpha * repeated_gaps(slow, choices, batch.terminated))
        return ops.stop_gradient(targets - learning.alpha * action_gaps(slow[:-1], choices))
