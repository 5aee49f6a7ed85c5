"""IMPALA (Espeholt et al. 2018, arXiv:1802.01561): an actor-critic that learns from slightly old unrolls by V-trace."""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.actor_critic import actor_critic_loss
from distrl.algorithms.algorithm import GradientAlgorithm, Loss
from distrl.algorithms.maths import losses
from distrl.algorithms.maths.returns import step_discounts, vtrace
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.config.algorithms.actor_critics import ImpalaParameters
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.steps import TrainStep
from distrl.types import Batch


class Impala(GradientAlgorithm):
    """Policy gradient with V-trace advantages, a value loss towards V-trace targets, and an entropy bonus.

        loss = policy_loss + value_loss_weight * value_loss - entropy_weight * entropy

    (section 4.2). The paper sums over an unroll; here every term is a mean over the valid steps of the batch, so that
    weights and learning rate do not depend on the unroll's length or on how many episodes ended in it.
    """

    Parameters = ImpalaParameters
    parameters: ImpalaParameters
    heads = (PolicyHeadParameters(), ValueHeadParameters())

    def train_step(self, network: Copies) -> TrainStep:
        """Return a step by the gradient of `loss` on each minibatch."""
        return network.train_step(self.loss, self.context.replicas, self.parameters.minibatches)

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return IMPALA's loss.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and "value" float32 [T+1, N].
            batch: The unrolls, [T, N].

        Returns:
            The heads' losses, and metrics over valid steps: policy_loss, value_loss, entropy (nats), mean_value,
            mean_rho (mean importance weight, truncated at 1: the lower, the further the policy has moved since the
            unrolls were made), kl (estimate of KL(behaviour || policy) from the actions, nats), and explained_variance
            of the critic.
        """
        parameters = self.parameters
        # No action follows the last observation; it only bootstraps.
        acting = {name: rows[:-1] for name, rows in outputs.items()}
        values = outputs["value"]
        log_probabilities = self.distribution.log_probability(acting, batch.actions)
        log_rhos = log_probabilities - batch.behaviour_log_probabilities
        returns = vtrace(
            values=values,
            rewards=learned_rewards(batch, parameters),
            discounts=step_discounts(batch.terminated, parameters.discount),
            valid=batch.valid,
            log_rhos=log_rhos,
            rho_bar=parameters.rho_bar,
            c_bar=parameters.c_bar,
            rho_bar_policy_gradient=parameters.rho_bar_policy_gradient,
            trace_lambda=parameters.trace_lambda,
        )
        loss = actor_critic_loss(
            returns,
            values[:-1],
            log_probabilities,
            self.distribution.entropy(acting),
            batch.valid,
            value_loss_weight=parameters.value_loss_weight,
            entropy_weight=self.coefficient("entropy_weight"),
            huber=self.context.network.replace_mse_with_huber_loss,
        )
        mean_rho = losses.masked_mean(ops.exp(ops.minimum(log_rhos, 0.0)), batch.valid)
        kl = -losses.masked_mean(log_rhos, batch.valid)
        return loss._replace(metrics={**loss.metrics, "mean_rho": mean_rho, "kl": kl})
