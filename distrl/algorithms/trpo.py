"""TRPO (Schulman et al. 2015, arXiv:1502.05477): natural gradient steps of the policy, within a trust region."""

from collections.abc import Mapping

from keras import ops

from distrl import nest
from distrl.algorithms.algorithm import GradientAlgorithm, Loss, Networks
from distrl.algorithms.epochs import Experience, by_sequences
from distrl.algorithms.maths import losses
from distrl.algorithms.maths.returns import gae, step_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.trust_region import TrustRegionUpdate
from distrl.config.algorithms.trpo import TrpoParameters
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.steps import TrainStep
from distrl.types import Batch, EnvSpec

_OLD = "old/"  # what names of the old policy's outputs begin with, among the estimates


class Trpo(GradientAlgorithm):
    """A natural gradient step of the policy within a trust region, then a value function that is fitted to the returns.

        maximise mean(ratio * advantage) + entropy_weight * mean(entropy)   where mean(KL(old || new)) <= max_kl

    (equation 14, with generalised advantages.) Means are over valid steps; ratios are to the policy that acted, the
    divergence is from the one before the update. See `TrustRegionUpdate`.
    """

    Parameters = TrpoParameters
    parameters: TrpoParameters
    heads = (PolicyHeadParameters(), ValueHeadParameters())

    def build(self, spec: EnvSpec) -> Networks:
        """Build the network "main".

        Raises:
            ConfigError: See `GradientAlgorithm`; also if layers draw random numbers or use statistics of the batch,
                because the trust region compares outputs of single policies.
        """
        networks = super().build(spec)
        online = networks["main"].online
        if odd := [*online.random_layers, *online.moving_averages]:
            raise ConfigError(
                f"network: {odd[0]}: algorithm trpo compares policies by their weights alone; leave out dropout, noisy "
                "layers and batch normalisation"
            )
        return networks

    def estimates(self, outputs: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return what an update computes once from its batch; what uses it holds it constant.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and "value" float32 [T+1, N], before the update.
            batch: The unrolls, [T, N].

        Returns:
            float32 [T, N]: advantages, value_targets, old_log_probabilities (those of the policy that acted); and the
            old outputs of the policy, [T, N, P], under "old/" and their names.
        """
        values = outputs["value"]
        acting = {name: rows[:-1] for name, rows in outputs.items() if name != "value"}
        present = self.distribution.log_probability(acting, batch.actions)
        targets, advantages = gae(
            values=values,
            rewards=learned_rewards(batch, self.parameters),
            discounts=step_discounts(batch.terminated, self.parameters.discount),
            valid=batch.valid,
            trace_lambda=self.parameters.gae_lambda,
        )
        if self.parameters.normalize_advantages == "batch":
            advantages = losses.normalized(advantages, batch.valid)
        return {
            "advantages": advantages,
            "value_targets": targets,
            # The ratio of invalid rows begins at 1, whatever was recorded, so that no gradient overflows there.
            "old_log_probabilities": ops.where(batch.valid, batch.behaviour_log_probabilities, present),
            **{f"{_OLD}{name}": rows for name, rows in acting.items()},
        }

    def policy_loss(self, outputs: Mapping[str, Tensor], experience: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a step of the policy minimises, the objective with its sign changed, and metrics.

        Args:
            outputs: "policy/<action>" float32 [T, M, P].
            experience: [T, M].

        Returns:
            A scalar, and scalars over valid steps: policy_loss (-mean(ratio * advantage)), entropy and kl, from the old
            policy, in nats.
        """
        valid, made = experience.valid, experience.estimates
        now = self.distribution.log_probability(outputs, experience.actions)
        gains = ops.exp(now - made["old_log_probabilities"]) * made["advantages"]
        old = {name.removeprefix(_OLD): rows for name, rows in made.items() if name.startswith(_OLD)}
        metrics = {
            "policy_loss": -losses.masked_mean(gains, valid),
            "entropy": losses.masked_mean(self.distribution.entropy(outputs), valid),
            "kl": losses.masked_mean(self.distribution.kl(old, outputs), valid),
        }
        return metrics["policy_loss"] - self.coefficient("entropy_weight") * metrics["entropy"], metrics

    def value_loss(self, outputs: Mapping[str, Tensor], experience: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what the value function's optimizer minimises, and metrics.

        Args:
            outputs: "value" float32 [T, M].
            experience: [T, M].

        Returns:
            A scalar, and over valid steps: value_loss (the same), mean_value and explained_variance.
        """
        values, valid, targets = outputs["value"], experience.valid, experience.estimates["value_targets"]
        loss = losses.value_loss(values, targets, valid, huber=self.context.network.replace_mse_with_huber_loss)
        return loss, {
            "value_loss": loss,
            "mean_value": losses.masked_mean(values, valid),
            "explained_variance": losses.explained_variance(values, targets, valid),
        }

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the losses of a whole batch before the update, for diagnostics.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and "value" float32 [T+1, N].
            batch: The unrolls, [T, N].
        """
        acting = {name: rows[:-1] for name, rows in outputs.items()}
        experience = by_sequences(batch, nest.map(ops.stop_gradient, self.estimates(outputs, batch)))
        policy_loss, metrics = self.policy_loss(acting, experience)
        value_loss, of_value = self.value_loss(acting, experience)
        return Loss({"policy": policy_loss, "value": value_loss}, metrics | of_value)

    def train_step(self, network: Copies) -> TrainStep:
        return TrustRegionUpdate(self.context, self.parameters, network, self)
