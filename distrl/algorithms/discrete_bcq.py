"""Discrete BCQ (Fujimoto et al. 2019, arXiv:1910.01708): Q-learning among the choices that data makes likely."""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.maths.returns import batch_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.maths.td_targets import chosen_values, greedy_values
from distrl.algorithms.q_learning import QLearning, TemporalDifferences
from distrl.config.algorithms.offline import DiscreteBcqParameters
from distrl.config.heads import ConstrainedQHeadParameters
from distrl.networks.actions.family import MASKED, Tensor
from distrl.networks.heads.losses import categorical_cross_entropy, huber
from distrl.networks.objective import TARGET
from distrl.types import Batch


class DiscreteBcq(QLearning):
    """Double DQN whose best choice is one of the likely ones (algorithm 1):

        y = r + gamma^n (1 - terminated) Q_target(o', argmax over {a: G(a|o') / max G > tau} of Q(o', a))
        loss = mean of w ((y - Q(o, a))^2 - log G(a|o) + logit_penalty mean_a logit(a|o)^2)

    G is the imitation of recorded choices, and tau the head's `threshold`. Without `double`, the argmax is of the
    target network's values and imitation. The head's output q holds the constraint, so that actors keep to it.
    """

    Parameters = DiscreteBcqParameters
    parameters: DiscreteBcqParameters
    heads = (ConstrainedQHeadParameters(),)

    def temporal_differences(self, outputs: Mapping[str, Tensor], batch: Batch) -> TemporalDifferences:
        """Return the differences of all values, "constrained_q/values", float32 [T+1, N, A]."""
        choosing = outputs["constrained_q/q" if self.parameters.double else f"{TARGET}constrained_q/q"]
        best = greedy_values(outputs[f"{TARGET}constrained_q/values"][1:], choosing[1:])
        rewards, discounts = learned_rewards(batch, self.parameters), batch_discounts(batch, self.parameters.discount)
        targets = ops.stop_gradient(rewards + discounts * best)
        values = chosen_values(outputs["constrained_q/values"][:-1], self._made(batch))
        regression = huber if self.context.network.replace_mse_with_huber_loss else ops.square
        errors = targets - values
        return TemporalDifferences(regression(errors), values, ops.abs(errors), ops.abs(errors), targets)

    def further_losses(self, outputs: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return imitation_loss, the cross-entropy in nats, and logit_loss, which keeps logits small."""
        logits = outputs["constrained_q/imitation"][:-1]
        labels = ops.one_hot(self._made(batch), logits.shape[-1], dtype="float32")
        allowed = ops.where(logits > -0.5 * MASKED, logits, 0.0)
        return {
            "imitation_loss": categorical_cross_entropy(logits, labels),
            "logit_loss": self.parameters.logit_penalty * ops.mean(ops.square(allowed), axis=-1),
        }

    def _made(self, batch: Batch) -> Tensor:
        """Return the choices made, int32 [T, N]."""
        (action,) = self.choices
        return batch.actions[action]
