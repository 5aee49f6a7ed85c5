"""ACER (Wang et al. 2017, arXiv:1611.01224): an actor-critic that learns from replayed unrolls, for one choice."""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.algorithm import GradientAlgorithm, Loss, Networks, Update
from distrl.algorithms.maths import losses
from distrl.algorithms.maths.returns import retrace, step_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.maths.td_targets import chosen_values
from distrl.config.algorithms.acer import AcerParameters
from distrl.config.heads import ACERPolicyHeadParameters, HeadParameters, QHeadParameters
from distrl.networks.actions.family import Tensor, policy_output
from distrl.networks.heads.acer import ACERPolicyHead
from distrl.networks.objective import TARGET
from distrl.types import CHOICE_PROBABILITIES, Batch, Contributions, EnvSpec


class Acer(GradientAlgorithm):
    """A truncated off-policy policy gradient with bias correction in a trust region, and Retrace targets of Q.

        loss = policy_loss + q_loss_weight * critic_loss,   critic_loss = mean of 1/2 (Q_ret - Q(o_t, a_t))^2

    (section 3). `ACERPolicyHead` states the policy's loss, entropy included. V(o) is the expectation of Q under the
    policy. The target copy is the average policy network: it follows the policy by `average_policy_rate` with every
    update (section 3.3). Every term is a mean over the valid steps of the batch.

    Batches are sequences of a replay memory, with the probabilities of all choices under the policies that acted.
    """

    Parameters = AcerParameters
    parameters: AcerParameters
    heads = (ACERPolicyHeadParameters(), QHeadParameters())
    has_target = True
    _policy_head: ACERPolicyHead

    def build(self, spec: EnvSpec) -> Networks:
        """Build the network "main", with the average policy network as its target copy."""
        networks = super().build(spec)
        head = networks["main"].online.heads[0]
        assert isinstance(head, ACERPolicyHead)
        self._policy_head = head
        return networks

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return ACER's loss.

        Args:
            outputs: Logits "policy/<action>" and values "q/q", float32 [T+1, N, A], also of the average policy network,
                as "target/…".
            batch: Sequences, [T, N], with the extra `CHOICE_PROBABILITIES`, float32 [T, N, A].

        Returns:
            The heads' losses, and metrics over valid steps: policy_loss (entropy included), critic_loss,
            bias_correction_loss, entropy (nats), kl (KL(average || policy) if there is a trust region, nats),
            mean_value (of the state), mean_q (of the action taken) and mean_rho (mean importance weight, truncated at
            1: the lower, the further the policy has moved since the sequences were made).
        """
        parameters, valid, ((action, choices),) = self.parameters, batch.valid, batch.actions.items()
        output, q_values = policy_output(action), outputs["q/q"]
        acting = {name: rows[:-1] for name, rows in outputs.items()}  # nothing was done at the last one; it bootstraps
        log_rhos = self.distribution.log_probability(acting, batch.actions) - batch.behaviour_log_probabilities
        values = ops.sum(ops.softmax(outputs[output], axis=-1) * q_values, axis=-1)
        taken = chosen_values(q_values[:-1], choices)
        targets = retrace(
            values=values,
            action_values=taken,
            rewards=learned_rewards(batch, parameters),
            discounts=step_discounts(batch.terminated, parameters.discount),
            valid=valid,
            log_rhos=log_rhos,
            trace_lambda=parameters.trace_lambda,
        )
        given = {
            "actions": {action: choices},
            "behaviour_probabilities": batch.extras[CHOICE_PROBABILITIES],
            "q_values": q_values[:-1],
            "retrace": targets,
        }
        if parameters.trust_region_delta is not None:
            given["average_probabilities"] = ops.softmax(acting[TARGET + output], axis=-1)
        terms = self._policy_head.terms(acting, given)
        policy_loss = losses.masked_mean(self._policy_head.loss_of(terms, acting, given), valid)
        huber = self.context.network.replace_mse_with_huber_loss
        critic_loss = losses.value_loss(taken, targets, valid, huber=huber)
        metrics = {
            "policy_loss": policy_loss,
            "critic_loss": critic_loss,
            "bias_correction_loss": -losses.masked_mean(terms.bias_correction, valid),
            "entropy": losses.masked_mean(terms.entropy, valid),
            "mean_value": losses.masked_mean(values[:-1], valid),
            "mean_q": losses.masked_mean(taken, valid),
            "mean_target": losses.masked_mean(targets, valid),
            "mean_rho": losses.masked_mean(ops.exp(ops.minimum(log_rhos, 0.0)), valid),
        }
        if terms.kl is not None:
            metrics["kl"] = losses.masked_mean(terms.kl, valid)
        return Loss({"policy": policy_loss, "q": parameters.q_loss_weight * critic_loss}, metrics)

    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """Make one gradient step, and move the average policy network after it."""
        update = super().update(networks, batch)
        if update.metrics["finite"]:
            networks["main"].update_target_network(self.parameters.average_policy_rate)
        return update

    def configured_heads(self) -> list[HeadParameters]:
        """Return the heads, with the loss of the algorithm's parameters."""
        parameters = self.parameters
        policy, values = super().configured_heads()
        settings = {
            "importance_weight_truncation": parameters.importance_weight_truncation,
            "trust_region_delta": parameters.trust_region_delta,
            "beta_entropy": parameters.entropy_weight,
        }
        return [policy.model_copy(update=settings), values]
