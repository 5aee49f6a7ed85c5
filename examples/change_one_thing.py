"""Built-in algorithms with one thing changed; docs/change_one_thing.md lists the methods that a subclass may replace.

distrl train --preset cartpole-dqn --algorithm examples.change_one_thing:MunchausenDqn \\
    --set algorithm.double=false --set algorithm.replay.item.n_step=1
distrl train --preset cartpole-ppo --algorithm examples.change_one_thing:RewardPredictingPpo
distrl train --preset pendulum-sac --algorithm examples.change_one_thing:ExpectileSac
"""

from collections.abc import Mapping

from keras import ops
from pydantic import Field

from distrl import algorithms as api
from distrl.config.heads import EmbeddingHeadParameters


class MunchausenDqn(api.Dqn):
    """DQN that is also paid for the log-probability of its choice (Vieillard et al. 2020, arXiv:2007.14430)."""

    class Parameters(api.Dqn.Parameters):
        """DQN's settings, and these."""

        policy_temperature: float = Field(0.03, gt=0.0)
        munchausen_share: float = Field(0.9, ge=0.0, le=1.0)
        least_log_policy: float = Field(-1.0, lt=0.0)

        def check(self, context: api.AlgorithmContext) -> None:
            super().check(context)
            if self.double or self.value_rescaling or self.replay.item.n_step > 1:
                raise ValueError("algorithm: set double and value_rescaling to false, and replay.item.n_step to 1")

    parameters: Parameters

    def rewards(self, outputs: Mapping[str, api.Tensor], batch: api.Batch) -> api.Tensor:
        tau = self.parameters.policy_temperature
        (values,), (made,) = self.choice_values(outputs, target=True), self.choices_made(batch)
        log_policy = tau * ops.log_softmax(values[:-1] / tau, axis=-1)  # of the T observations that were acted on
        of_choice = ops.take_along_axis(log_policy, made[..., None], axis=-1)[..., 0]
        paid = ops.clip(of_choice, self.parameters.least_log_policy, 0.0)
        return super().rewards(outputs, batch) + self.parameters.munchausen_share * paid

    def next_values(self, outputs: Mapping[str, api.Tensor]) -> api.Tensor:
        tau = self.parameters.policy_temperature
        (values,) = self.choice_values(outputs, target=True)
        return tau * ops.logsumexp(values / tau, axis=-1)  # sum of pi (Q - tau log pi), pi = softmax(Q / tau)


class RewardPredictingPpo(api.Ppo):
    """PPO whose layers also learn to predict the reward of each step, by a head of its own."""

    class Parameters(api.Ppo.Parameters):
        """PPO's settings, and this one."""

        prediction_weight: float = Field(0.5, ge=0.0)

    parameters: Parameters
    heads = (*api.Ppo.heads, EmbeddingHeadParameters(embedding_size=1))

    def estimates(self, outputs: Mapping[str, api.Tensor], batch: api.Batch) -> dict[str, api.Tensor]:
        return super().estimates(outputs, batch) | {"rewards": api.learned_rewards(batch, self.parameters)}

    def surrogate_loss(self, outputs: Mapping[str, api.Tensor], experience: api.Experience) -> api.Loss:
        terms, metrics = super().surrogate_loss(outputs, experience)
        errors = outputs["embedding"][..., 0] - experience.estimates["rewards"]
        prediction_loss = api.masked_mean(ops.square(errors), experience.valid)
        weighted = self.parameters.prediction_weight * prediction_loss
        return api.Loss(terms | {"embedding": weighted}, metrics | {"prediction_loss": prediction_loss})


class ExpectileSac(api.Sac):
    """SAC whose critics learn an expectile of the target, below the mean where `expectile` is below a half."""

    class Parameters(api.Sac.Parameters):
        """SAC's settings, and this one."""

        expectile: float = Field(0.3, gt=0.0, lt=1.0)

    parameters: Parameters

    def critic_loss(self, values: api.Tensor, targets: api.Tensor) -> api.Tensor:
        share = ops.where(targets > values, self.parameters.expectile, 1.0 - self.parameters.expectile)
        return 2.0 * share * super().critic_loss(values, targets)
