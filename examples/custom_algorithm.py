"""Your own algorithm: an actor-critic whose reward includes the entropy of its policy.

    distrl train --algorithm examples.custom_algorithm:MaximumEntropy --env CartPole-v1

This file is complete. Put yours into the working directory or on PYTHONPATH. Write `heads`, a `loss` and, if you need
settings, `Parameters`. distrl adds actors, networks, the compiled update, checkpoints, `--set
algorithm.temperature=0.02` and errors in one line. Actors do not import this file: they run the exported policy.
"""

from collections.abc import Mapping

from keras import ops
from pydantic import Field

from distrl import algorithms as api
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters


class MaximumEntropy(api.GradientAlgorithm):
    """A2C with soft returns (Schulman et al. 2017, "Equivalence between policy gradients and soft Q-learning").

    Most actor-critics add the entropy of the current action to the loss. Here entropy is part of the reward,

        r'_t = r_t - temperature log pi(a_t | o_t)

    so that values include the entropy still to come, and the policy prefers states with many good actions.

        loss = mean(-A_t log pi(a_t | o_t)) + value_loss_weight mean(0.5 (G_t - V_t)^2)

    with n-step returns G_t of r' and A_t = G_t - V_t.
    """

    class Parameters(api.AlgorithmSection):
        """The section `algorithm` of the configuration: these, beside the common settings such as `discount`."""

        max_staleness_updates: int | None = 0
        """Synchronous by default: nothing here corrects for actions of an older policy."""
        steps: int = Field(8, ge=1)
        """Rewards before the bootstrap value."""
        temperature: float = Field(0.01, ge=0.0)
        """Reward for one nat of entropy, in units of `reward_scale` times the reward."""
        value_loss_weight: float = Field(0.5, ge=0.0)

    parameters: Parameters
    heads = (PolicyHeadParameters(), ValueHeadParameters())

    def loss(self, outputs: Mapping[str, api.Tensor], batch: api.Batch) -> api.Loss:
        """Return the loss; distrl traces this once and compiles it, on TensorFlow or JAX.

        Args:
            outputs: "policy/<action>" float32 [T+1, N, P] and "value" float32 [T+1, N], of all T+1 observations.
            batch: N unrolls of T steps. `valid` is False on the row after an episode's end, which is no step.
        """
        parameters = self.parameters
        acting = {name: rows[:-1] for name, rows in outputs.items()}  # no action follows the last one
        values = outputs["value"]
        log_probabilities = self.distribution.log_probability(acting, batch.actions)
        paid = parameters.reward_scale * batch.rewards - parameters.temperature * ops.stop_gradient(log_probabilities)
        returns = api.n_step(
            values=values,
            rewards=ops.where(batch.valid, paid, 0.0),
            # Zero where an episode terminated. After a time limit, the return continues with V.
            discounts=api.step_discounts(batch.terminated, parameters.discount),
            valid=batch.valid,
            steps=parameters.steps,
        )
        policy_loss = api.policy_gradient(log_probabilities, returns.advantages, batch.valid)
        value_loss = api.value_loss(values[:-1], returns.value_targets, batch.valid)
        return api.Loss(
            # One term per head, named like it.
            terms={"policy": policy_loss, "value": parameters.value_loss_weight * value_loss},
            # Columns of metrics.csv, and curves in TensorBoard.
            metrics={
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": api.masked_mean(self.distribution.entropy(acting), batch.valid),
                "mean_value": api.masked_mean(values[:-1], batch.valid),
            },
        )
