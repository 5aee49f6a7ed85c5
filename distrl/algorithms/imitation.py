"""Imitation of recorded actions: behavioural cloning, and MARWIL, which weighs them by their advantages.

Both take every kind of action, several at once, and with sequences of a replay memory also networks with memory.
"""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.actor_critic import advantage_metrics
from distrl.algorithms.algorithm import GradientAlgorithm, Loss
from distrl.algorithms.maths import losses
from distrl.algorithms.maths.offline import advantage_weights
from distrl.algorithms.maths.returns import Returns, batch_discounts, gae
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.config.algorithms.offline import BcParameters, MarwilParameters
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.steps import TrainStep
from distrl.types import Batch


class Bc(GradientAlgorithm):
    """Maximum likelihood: loss = -mean(log pi(a|o)) over recorded steps, all actions of a step together."""

    Parameters = BcParameters
    parameters: BcParameters
    heads = (PolicyHeadParameters(),)

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the loss of transitions, T = 1, or of sequences.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P].
            batch: [T, N].

        Returns:
            The head's loss; policy_loss (the same) and entropy (nats).
        """
        acting = {name: rows[:-1] for name, rows in outputs.items()}
        policy_loss = -losses.masked_mean(self.distribution.log_probability(acting, batch.actions), batch.valid)
        entropy = losses.masked_mean(self.distribution.entropy(acting), batch.valid)
        return Loss({"policy": policy_loss}, {"policy_loss": policy_loss, "entropy": entropy})


class Marwil(GradientAlgorithm):
    """Imitation weighted by exponentials of normalised advantages (Wang et al. 2018, algorithm 1):

        A_t = R_t - V(o_t),   c^2 <- c^2 + rate (mean A^2 - c^2)
        policy  -mean(exp(beta A / c) log pi(a|o))
        value   mean(A^2) / 2

    R_t are discounted rewards to the end of the episode, or to the end of the sequence and V there. A truncated episode
    goes on with V of its last observation.
    """

    Parameters = MarwilParameters
    parameters: MarwilParameters
    heads = (PolicyHeadParameters(), ValueHeadParameters())

    def train_step(self, network: Copies) -> TrainStep:
        """Return a step that also moves c^2, which checkpoints hold beside the network."""
        self._square = network.online.add_coefficient("squared_advantage", self.parameters.initial_advantage_norm**2)
        network.beside = {"advantages": {self._square.path: self._square}}
        return super().train_step(network)

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the loss of sequences, or of transitions, T = 1.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and "value" float32 [T+1, N].
            batch: [T, N].

        Returns:
            The heads' losses; policy_loss, value_loss, entropy (nats), mean_value, explained_variance of the value,
            mean_advantage and std_advantage, advantage_norm (c) and mean_weight.
        """
        parameters = self.parameters
        acting = {name: rows[:-1] for name, rows in outputs.items()}
        values, returns = outputs["value"][:-1], self._returns(outputs["value"], batch)
        mean_square = losses.masked_mean(ops.square(returns.advantages), batch.valid)
        square = self._square.value + parameters.advantage_norm_rate * (mean_square - self._square.value)
        self._square.assign(square)
        norm = ops.sqrt(square) + 1e-8
        weights = advantage_weights(returns.advantages / norm, parameters.beta, parameters.max_weight)
        policy_loss = losses.policy_gradient(
            self.distribution.log_probability(acting, batch.actions), weights, batch.valid
        )
        value_loss = losses.value_loss(
            values, returns.value_targets, batch.valid, huber=self.context.network.replace_mse_with_huber_loss
        )
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": losses.masked_mean(self.distribution.entropy(acting), batch.valid),
            "mean_value": losses.masked_mean(values, batch.valid),
            "explained_variance": losses.explained_variance(values, returns.value_targets, batch.valid),
            **advantage_metrics(returns.advantages, batch.valid),
            "advantage_norm": norm,
            "mean_weight": losses.masked_mean(weights, batch.valid),
        }
        return Loss({"policy": policy_loss, "value": parameters.value_loss_weight * value_loss}, metrics)

    def _returns(self, values: Tensor, batch: Batch) -> Returns:
        return gae(
            values=values,
            rewards=learned_rewards(batch, self.parameters),
            discounts=batch_discounts(batch, self.parameters.discount),
            valid=batch.valid,
            trace_lambda=1.0,
        )
