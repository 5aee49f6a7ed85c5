"""PPO (Schulman et al. 2017, arXiv:1707.06347): several epochs on every batch, close to the policy that acted."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from keras import ops

from distrl import nest
from distrl.algorithms.actor_critic import advantage_metrics
from distrl.algorithms.algorithm import GradientAlgorithm, Loss
from distrl.algorithms.epochs import Experience, ProximalUpdate, by_sequences
from distrl.algorithms.hooks import stated, stated_fields
from distrl.algorithms.maths import losses
from distrl.algorithms.maths.returns import Returns, gae, step_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.config.algorithms.ppo import PpoParameters, ProximalSection
from distrl.config.heads import HeadParameters, PPOHeadParameters, ValueHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.heads import Head
from distrl.networks.steps import TrainStep
from distrl.types import Batch

_OLD = "old/"  # what names of the old policy's outputs begin with, among the estimates


class Ppo(GradientAlgorithm):
    """The clipped or KL-penalised surrogate over generalised advantages, a value loss, and an entropy bonus.

        loss = surrogate_loss + value_loss_weight * value_loss - entropy_weight * entropy

    (equations 7 and 8 with 9). Every term is a mean over valid steps. Ratios are to the policy that acted. Advantages,
    targets, old values and old outputs are made once per batch, by the weights before its first epoch.

    What is adjusted beside the weights, the penalty's coefficient, is a number of the policy head, and so is saved and
    restored with the network.
    """

    Parameters: ClassVar[type[ProximalSection]] = PpoParameters
    parameters: ProximalSection
    heads: tuple[HeadParameters, ...] = (PPOHeadParameters(), ValueHeadParameters())
    _loss_heads: Sequence[Head[Any]]

    def returns(self, values: Tensor, log_rhos: Tensor, batch: Batch) -> Returns:
        """Return value targets and advantages of a batch.

        Args:
            values: float32 [T+1, N]. V of every observation, the bootstrap last.
            log_rhos: float32 [T, N]. log pi(a_t|o_t) - log mu(a_t|o_t), 0 where not valid.
            batch: The unrolls, [T, N].
        """
        del log_rhos  # the loss's ratio makes up for it, as far as one step goes
        return gae(
            values=values,
            rewards=learned_rewards(batch, self.parameters),
            discounts=step_discounts(batch.terminated, self.parameters.discount),
            valid=batch.valid,
            trace_lambda=self.parameters.gae_lambda,
        )

    def estimates(self, outputs: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return the estimates that an update computes once from its batch; what uses them holds them constant.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and "value" float32 [T+1, N], before the first epoch.
            batch: The unrolls, [T, N].

        Returns:
            float32 [T, N]: advantages, value_targets, old_values, old_log_probabilities (those of the policy that
            acted); and the old outputs, [T, N, P], under "old/" and their names.
        """
        acting = {name: rows[:-1] for name, rows in outputs.items()}  # nothing was done at the last one; it bootstraps
        present = self.distribution.log_probability(acting, batch.actions)
        # The ratio of invalid rows begins at 1, whatever was recorded, so that no gradient overflows there.
        behaviour = ops.where(batch.valid, batch.behaviour_log_probabilities, present)
        targets, advantages = (
            stated(self, "returns", rows, batch.valid.shape)
            for rows in stated_fields(
                self, "returns", self.returns(outputs["value"], present - behaviour, batch), Returns
            )
        )
        if self.parameters.normalize_advantages == "batch":
            advantages = losses.normalized(advantages, batch.valid)
        old_values = acting.pop("value")
        return {
            "advantages": advantages,
            "value_targets": old_values + self.parameters.value_target_mix * (targets - old_values),
            "old_values": old_values,
            "old_log_probabilities": behaviour,
            **{f"{_OLD}{name}": rows for name, rows in acting.items()},
        }

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the loss of a whole batch before the first step on it; the only loss if one step is made.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and "value" float32 [T+1, N].
            batch: The unrolls, [T, N].

        Returns:
            See `surrogate_loss`.
        """
        acting = {name: rows[:-1] for name, rows in outputs.items()}
        experience = by_sequences(batch, nest.map(ops.stop_gradient, self.estimates(outputs, batch)))
        return self.surrogate_loss(acting, experience)

    def surrogate_loss(self, outputs: Mapping[str, Tensor], experience: Experience) -> Loss:
        """Return the loss of a minibatch, after any number of steps.

        Args:
            outputs: "policy/<action>" float32 [T, M, P] and "value" float32 [T, M].
            experience: The minibatch, [T, M].

        Returns:
            The heads' losses and, over valid steps: policy_loss and value_loss (as minimised, before weights), entropy
            and kl, KL(old || new), in nats, clip_fraction, mean_ratio, mean_value and explained_variance of the critic,
            and `advantage_metrics` before a minibatch normalises them.
        """
        parameters, valid, made = self.parameters, experience.valid, experience.estimates
        normal = made
        if parameters.normalize_advantages == "minibatch":
            normal = made | {"advantages": losses.normalized(made["advantages"], valid)}
        surrogate = self.policy_losses(outputs, experience._replace(estimates=normal))
        surrogate = stated(self, "policy_losses", surrogate, valid.shape)
        entropy = losses.masked_mean(self.distribution.entropy(outputs), valid)
        policy_loss = losses.masked_mean(surrogate, valid) - self.coefficient("entropy_weight") * entropy
        value_losses = stated(self, "value_losses", self.value_losses(outputs, experience), valid.shape)
        value_loss = losses.masked_mean(value_losses, valid)
        old, targets = _old_outputs(experience), made["value_targets"]
        present = self.distribution.log_probability(outputs, experience.actions)
        ratios = ops.exp(present - made["old_log_probabilities"])
        beyond = ops.abs(ratios - 1.0) > (parameters.clip_range or float("inf"))
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": losses.masked_mean(self.distribution.kl(old, outputs), valid),
            "clip_fraction": losses.share(beyond, valid),
            "mean_ratio": losses.masked_mean(ratios, valid),
            "mean_value": losses.masked_mean(outputs["value"], valid),
            "explained_variance": losses.explained_variance(outputs["value"], targets, valid),
            **advantage_metrics(made["advantages"], valid),
        }
        return Loss({"policy": policy_loss, "value": parameters.value_loss_weight * value_loss}, metrics)

    def policy_losses(self, outputs: Mapping[str, Tensor], experience: Experience) -> Tensor:
        """Return the policy's loss of every step, float32 [T, M], without the entropy bonus: the surrogate.

        Args:
            outputs: As of `surrogate_loss`.
            experience: As of `surrogate_loss`; the estimate "advantages" is normalised.
        """
        made = experience.estimates
        given = {
            "actions": experience.actions,
            "advantages": made["advantages"],
            "old_log_probabilities": made["old_log_probabilities"],
            "old_outputs": _old_outputs(experience),
        }
        return self._loss_heads[0].loss(outputs, given)

    def value_losses(self, outputs: Mapping[str, Tensor], experience: Experience) -> Tensor:
        """Return the value's loss of every step, float32 [T, M], before its weight: half the square, or Huber's."""
        targets: Any = experience.estimates["value_targets"]
        if self.parameters.value_clip_range is not None:
            targets = {"targets": targets, "old_values": experience.estimates["old_values"]}
        return self._loss_heads[1].loss(outputs, targets)

    def train_step(self, network: Copies) -> TrainStep:
        """Return the update over all epochs; a plain step by `loss` if one epoch has one minibatch."""
        self._loss_heads = network.online.heads
        if self.parameters.steps_per_batch == 1:
            return super().train_step(network)
        return ProximalUpdate(self.context, self.parameters, network, self.estimates, self.surrogate_loss)

    def configured_heads(self) -> list[HeadParameters]:
        """Return the heads, with the losses of the algorithm's parameters."""
        parameters = self.parameters
        policy, value, *further = super().configured_heads()
        penalty = parameters.kl_penalty
        settings = {
            "clip_range": parameters.clip_range,
            "initial_kl_coefficient": None if penalty is None else penalty.initial_coefficient,
            "beta_entropy": 0.0,  # `surrogate_loss` adds the bonus itself, whose weight may change
        }
        return [
            policy.model_copy(update=settings),
            value.model_copy(update={"clip_range": parameters.value_clip_range}),
            *further,
        ]


def _old_outputs(experience: Experience) -> dict[str, Tensor]:
    """Return the old policy's outputs, [T, M, P], by their names."""
    made = experience.estimates
    return {name.removeprefix(_OLD): rows for name, rows in made.items() if name.startswith(_OLD)}
