"""Your own algorithm with several networks: TD3 (Fujimoto et al. 2018, arXiv:1802.09477) over `distrl.algorithms`.

    distrl train --preset pendulum-td3 --algorithm examples.own_td3:OwnTd3

It makes the same updates as the built-in `td3` from transitions. docs/own_algorithm.md explains it step by step.
"""

import keras
from keras import ops
from pydantic import Field

from distrl import algorithms as api
from distrl.config.exploration import GaussianNoiseParameters
from distrl.config.heads import DeterministicPolicyHeadParameters, QValueHeadParameters
from distrl.config.replay import ReplayParameters
from distrl.config.schedules import ConstantSchedule
from distrl.errors import ConfigError


class OwnTd3(api.Algorithm):
    """A deterministic policy and twin critics, all with target copies; policy and targets move every other update."""

    class Parameters(api.AlgorithmSection):
        """The section `algorithm`. Class attributes declare what all roles must know; fields are settings."""

        batch_size = 256
        learns_from = "anybody"  # also from actions with noise
        exploration = GaussianNoiseParameters(stddev=ConstantSchedule(value=0.05), random_steps=1_000)

        replay: ReplayParameters = ReplayParameters(capacity_steps=1_000_000, samples_per_insert=256.0)
        target_update_rate: float = Field(0.005, gt=0.0, le=1.0)
        policy_every_updates: int = Field(2, ge=1)
        target_noise: float = Field(0.2, ge=0.0)
        target_noise_clip: float = Field(0.5, ge=0.0)

        def check(self, context):
            super().check(context)
            if self.replay.item.kind != "transition":
                raise ValueError(f"algorithm.replay.item.kind: {self.replay.item.kind}; OwnTd3 takes transition")

    parameters: Parameters
    heads = (DeterministicPolicyHeadParameters(),)  # those of "main", the policy

    def build(self, spec: api.EnvSpec) -> api.Networks:
        ((self.action, box), *others) = spec.actions.items()
        if others or box.kind != "box" or None in (*box.low, *box.high):
            raise ConfigError(f"algorithm {self.parameters.name}: {spec.id} must have one action within bounds")
        self.scale = api.ActionScale.of(box)
        network, seed = self.context.network, self.context.seed
        apart = network.model_copy(update={"use_separate_networks_per_head": True})
        twins = [QValueHeadParameters(num_output_head_copies=2)]
        copies = {"has_target": True, "has_global": False, "seed": seed}
        self.main = api.Copies(network, spec, self.configured_heads(), name="main", **copies)
        self.critic = api.Copies(apart, spec, twins, name="critic", **copies)
        self.noise = keras.random.SeedGenerator(seed)
        self.main.beside = {"noise": {"state": self.noise.state}}  # into checkpoints
        self.updates = self.critic.optimizer.iterations
        self.assigned = [*self.main.step_states, *self.critic.step_states, self.noise.state]
        parts = [self.main.part(self.parameters.policy_every_updates), self.critic.part()]
        self.step = api.Step(self.loss, parts, self.assigned, [self.updates], replicas=self.context.replicas)
        return {"main": self.main, "critic": self.critic}

    def update(self, networks: api.Networks, batch: api.Batch) -> api.Update:
        metrics = self.step(batch)
        priorities = metrics.pop("priorities")
        if metrics["finite"]:  # otherwise the step has changed nothing
            for network in networks.values():
                network.statistics.observe(batch)  # of normalised observations
        return api.Update(metrics, priorities)

    def objective(self, networks: api.Networks) -> api.Objective:
        return api.Objective(self.loss, [*self.assigned, self.updates])

    def loss(self, batch: api.Batch) -> tuple[api.Tensor, dict[str, api.Tensor]]:
        """Return the sum of all losses, and metrics; traced once. Each part's optimizer takes its own gradient."""
        parameters, valid = self.parameters, batch.valid[0]
        self.move_targets()
        before, after = ({name: rows[i] for name, rows in batch.observations.items()} for i in (0, 1))
        with api.held(self.critic.online):  # the policy's gradient passes through the critic and leaves it as it is
            own = self.act(self.main.online, before, training=True)
            worth = self.values(self.critic.online, before, own, training=True)[0]
        values = self.values(self.critic.online, before, self.scale(batch.actions[self.action][0]), training=True)
        following = self.act(self.main.target, after)
        noise = parameters.target_noise * keras.random.normal(ops.shape(following), seed=self.noise)
        following = api.smoothed_actions(following, noise, parameters.target_noise_clip)
        next_value = api.smallest(self.values(self.critic.target, after, following))
        rewards = api.learned_rewards(batch, parameters)[0]
        targets = api.critic_targets(rewards, api.batch_discounts(batch, parameters.discount)[0], next_value)

        weights = 1.0 if batch.importance_weights is None else batch.importance_weights
        policy_loss = -api.masked_mean(weights * worth, valid)
        regression = api.huber if self.context.network.replace_mse_with_huber_loss else api.squared_error
        critic_loss = sum(api.masked_mean(weights * regression(targets - value), valid) for value in values)
        total = api.weighted_sum(self.main.online, {self.heads[0].kind: policy_loss}) + critic_loss
        total = sum(api.regularization(self.critic.online), total)
        errors = sum(ops.abs(targets - value) for value in values) / len(values)
        metrics = {"policy_loss": policy_loss, "critic_loss": critic_loss, "priorities": ops.where(valid, errors, 0.0)}
        means = {"mean_value": values[0], "mean_target": targets, "mean_td_error": errors}
        return total, metrics | {name: api.masked_mean(rows, valid) for name, rows in means.items()}

    def move_targets(self) -> None:
        """Move the target copies towards what the update before left, if that one moved the policy."""
        due = self.updates.value % self.parameters.policy_every_updates == 0
        for network in (self.main, self.critic):
            network.follow(ops.where(due, self.parameters.target_update_rate, 0.0))

    def act(self, policy, observations, training=False) -> api.Tensor:
        return self.scale(policy.model(observations, training=training)[self.heads[0].kind])

    def values(self, critics, observations, actions, training=False) -> list[api.Tensor]:
        inputs = {**observations, api.action_input(self.action): actions}  # scaled to [-1, 1]
        outputs = critics.model(inputs, training=training)
        return [outputs[name] for name in critics.outputs]
