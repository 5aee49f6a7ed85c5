"""Vanilla policy gradient: REINFORCE (Williams 1992; Sutton et al. 2000), with a baseline or without."""

from collections.abc import Mapping

from distrl.algorithms.actor_critic import actor_critic_loss
from distrl.algorithms.algorithm import GradientAlgorithm, Loss, Networks
from distrl.algorithms.maths import losses
from distrl.algorithms.maths.monte_carlo import episodes, less_others_at_timestep, normalized_by_episode, total_returns
from distrl.algorithms.maths.returns import Returns, gae, step_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.config.algorithms.policy_gradients import VpgParameters
from distrl.config.heads import HeadParameters, PolicyHeadParameters, ValueHeadParameters
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor
from distrl.types import Batch, EnvSpec


class Vpg(GradientAlgorithm):
    """-log pi(a_t | o_t) times a rescaled return; one gradient step per batch, on the policy that acted.

        loss = policy_loss + value_loss_weight * value_loss - entropy_weight * entropy

    Without a baseline, `rescaler` selects a return up to the episode's end (`monte_carlo.py`), for those steps whose
    episode is sure to end in the unroll:

        total_return                          G_0 of the episode
        future_return                         G_t
        future_return_normalized_by_episode   (G_t - mean) / deviation over the episode
        future_return_normalized_by_timestep  G_t - mean of the other episodes' G_t

    With a baseline, it selects a discounted sum of temporal differences r_t + discount_t V_{t+1} - V_t, for every step:

        a_value                               of all that follow: G_t - V_t; at an unroll's end G_t continues with V
        td_residual                           of the first one
        gae                                   of all, weighted by gae_lambda^k
    """

    Parameters = VpgParameters
    parameters: VpgParameters
    longest_episode_steps: int | None = None  # known after `build`

    @property
    def heads(self) -> tuple[HeadParameters, ...]:
        policy = PolicyHeadParameters()
        return (policy, ValueHeadParameters()) if self.parameters.baseline == "value" else (policy,)

    def build(self, spec: EnvSpec) -> Networks:
        """Build the network "main".

        Raises:
            ConfigError: See `GradientAlgorithm`; also if, without a baseline, episodes may outlast an unroll.
        """
        self.longest_episode_steps = spec.max_episode_steps
        if self.parameters.baseline == "none":
            self._check_that_episodes_end(spec)
        return super().build(spec)

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the loss of one batch.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and, with a baseline, "value" float32 [T+1, N].
            batch: The unrolls, [T, N].

        Returns:
            The heads' losses and policy_loss, entropy (nats); with a baseline value_loss, mean_value and
            explained_variance; without, learned_share of the valid steps.
        """
        acting = {name: rows[:-1] for name, rows in outputs.items()}  # nothing was done at the last one
        log_probabilities = self.distribution.log_probability(acting, batch.actions)
        entropies = self.distribution.entropy(acting)
        if self.parameters.baseline == "none":
            return self._loss_of_whole_returns(log_probabilities, entropies, batch)
        return actor_critic_loss(
            self._returns(outputs["value"], batch),
            outputs["value"][:-1],
            log_probabilities,
            entropies,
            batch.valid,
            value_loss_weight=self.parameters.value_loss_weight,
            entropy_weight=self.coefficient("entropy_weight"),
            huber=self.context.network.replace_mse_with_huber_loss,
        )

    def _returns(self, values: Tensor, batch: Batch) -> Returns:
        """Return value targets and advantages; an unroll's end and a truncation bootstrap from V, a termination not."""
        parameters = self.parameters
        trace = {"a_value": 1.0, "td_residual": 0.0, "gae": parameters.gae_lambda}[parameters.rescaling]
        assert trace is not None  # the parameters say so
        return gae(
            values=values,
            rewards=learned_rewards(batch, parameters),
            discounts=step_discounts(batch.terminated, parameters.discount),
            valid=batch.valid,
            trace_lambda=trace,
        )

    def _loss_of_whole_returns(self, log_probabilities: Tensor, entropies: Tensor, batch: Batch) -> Loss:
        rescaled, learned = self.rescaled_returns(batch)
        policy_loss = losses.policy_gradient(log_probabilities, rescaled, learned)
        entropy_loss = losses.entropy_loss(entropies, batch.valid)
        metrics = {
            "policy_loss": policy_loss,
            "entropy": -entropy_loss,
            "learned_share": losses.share(learned, batch.valid),
        }
        return Loss({"policy": policy_loss + self.coefficient("entropy_weight") * entropy_loss}, metrics)

    def rescaled_returns(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the factors of log pi without a baseline, and the rows that have one.

        Returns:
            float32 [T, N] and bool [T, N].
        """
        assert self.longest_episode_steps is not None  # as `build` checked
        found = episodes(
            learned_rewards(batch, self.parameters),
            batch.terminated,
            batch.valid,
            discount=self.parameters.discount,
            longest_steps=self.longest_episode_steps,
        )
        match self.parameters.rescaling:
            case "future_return":
                return found.returns, found.whole
            case "total_return":
                return total_returns(found), found.whole_from_first
            case "future_return_normalized_by_episode":
                return normalized_by_episode(found), found.whole_from_first
        return less_others_at_timestep(found)

    def _check_that_episodes_end(self, spec: EnvSpec) -> None:
        """Refuse unrolls of which no row would count if all episodes had their greatest length."""
        length, longest, rescaling = self.context.unroll_length_steps, spec.max_episode_steps, self.parameters.rescaling
        if longest is None:
            raise ConfigError(
                f"algorithm.baseline: none learns from whole episodes, and environment {spec.id} states no limit to "
                "their length (max_episode_steps); take algorithm.baseline: value"
            )
        # Whole episodes begin in rows 1 to T - M. With T = M + 1, those of M steps may begin in row 0 of every unroll,
        # as one row is ignored after each.
        least = longest if rescaling == "future_return" else longest + 2
        if length < least:
            raise ConfigError(
                f"algorithm.rescaler: {rescaling} without a baseline learns from whole episodes, of up to {longest} "
                f"steps in environment {spec.id}; actors.unroll_length_steps: {length} is too short, the least is "
                f"{least}, {max(2 * longest, least)} would do, or take algorithm.baseline: value"
            )
