"""A3C and A2C (Mnih et al. 2016, arXiv:1602.01783): workers differentiate their own unrolls and share one network.

a3c applies every gradient as it comes, a2c one gradient of every worker at a time. Both have the same loss.
"""

from collections.abc import Mapping

from distrl.algorithms.actor_critic import actor_critic_loss
from distrl.algorithms.algorithm import GradientAlgorithm, Loss
from distrl.algorithms.maths.returns import gae, step_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.config.algorithms.actor_critics import ActorCriticSection
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.types import Batch


class ActorCritic(GradientAlgorithm):
    """Policy gradient with generalised advantages, a value loss towards TD(lambda) targets, and an entropy bonus.

        loss = policy_loss + value_loss_weight * value_loss - entropy_weight * entropy

    (section 4 and algorithm S3, which is gae_lambda = 1). The paper sums over an unroll; here every term is a mean over
    its valid steps. There is no correction for age: every gradient is of the weights that acted.
    """

    Parameters = ActorCriticSection
    parameters: ActorCriticSection
    heads = (PolicyHeadParameters(), ValueHeadParameters())

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the loss of one unroll.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and "value" float32 [T+1, N].
            batch: The unroll, [T, N].

        Returns:
            The heads' losses and, over valid steps: policy_loss, value_loss, entropy (nats), mean_value and
            explained_variance of the critic.
        """
        parameters = self.parameters
        acting = {name: rows[:-1] for name, rows in outputs.items()}  # nothing was done at the last one; it bootstraps
        values = outputs["value"]
        returns = gae(
            values=values,
            rewards=learned_rewards(batch, parameters),
            discounts=step_discounts(batch.terminated, parameters.discount),
            valid=batch.valid,
            trace_lambda=parameters.gae_lambda,
        )
        return actor_critic_loss(
            returns,
            values[:-1],
            self.distribution.log_probability(acting, batch.actions),
            self.distribution.entropy(acting),
            batch.valid,
            value_loss_weight=parameters.value_loss_weight,
            entropy_weight=self.coefficient("entropy_weight"),
            huber=self.context.network.replace_mse_with_huber_loss,
        )
