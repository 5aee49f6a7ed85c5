"""PPO in one file in the style of CleanRL: EnvPool steps the environments and PyTorch learns, in one process.

The algorithm is Schulman et al. 2017 with the details of Huang et al. 2022 ("The 37 implementation details of PPO"):
orthogonal initialisation, Adam with epsilon 1e-5, annealed learning rate, GAE, clipped loss, clipped gradients, and for
MuJoCo a Gaussian with state-independent deviation, normalised observations and rewards.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")

import envpool
import numpy as np
import torch
from progress import ENVPOOL, Progress, arguments
from torch import nn
from torch.distributions import Categorical, Independent, Normal

SETTINGS = {
    ("ppo", "cartpole"): {
        "envs": 64, "steps": 64, "epochs": 4, "minibatches": 4, "rate": 2.5e-3, "anneal_updates": 500,
        "discount": 0.99, "trace": 0.95, "clip": 0.2, "entropy": 0.01, "threads": 1, "env_threads": 1,
    },
    ("ppo", "solve"): {
        "envs": 8, "steps": 128, "epochs": 4, "minibatches": 4, "rate": 2.5e-3, "anneal_updates": 500,
        "discount": 0.98, "trace": 0.95, "clip": 0.2, "entropy": 0.0, "threads": 1, "env_threads": 1,
    },
    ("ppo", "halfcheetah"): {
        "envs": 16, "steps": 128, "epochs": 10, "minibatches": 16, "rate": 4e-4, "anneal_updates": 1700,
        "discount": 0.99, "trace": 0.95, "clip": 0.2, "entropy": 0.0, "threads": 1, "env_threads": 2,
    },
    ("ppo", "pong"): {
        "envs": 8, "steps": 128, "epochs": 4, "minibatches": 4, "rate": 2.5e-4, "anneal_updates": 9765,
        "discount": 0.99, "trace": 0.95, "clip": 0.1, "entropy": 0.01, "threads": 2, "env_threads": 2,
    },
}  # fmt: skip


class Normalizer:
    """Running mean and deviation of rows, by the parallel formula of Chan et al."""

    def __init__(self, shape):
        self.mean, self.variance, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def add(self, rows):
        """Add rows [B, …]."""
        delta, total = rows.mean(0) - self.mean, self.count + len(rows)
        squares = self.variance * self.count + rows.var(0) * len(rows) + delta**2 * self.count * len(rows) / total
        self.mean, self.variance, self.count = self.mean + delta * len(rows) / total, squares / total, total

    def deviation(self):
        return np.sqrt(self.variance + 1e-8)


def layer(module, gain=2**0.5):
    """Initialise a layer with orthogonal weights and zero bias."""
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


class Agent(nn.Module):
    """Policy and value: separate networks for vectors, a shared trunk (Mnih et al. 2015) for images."""

    def __init__(self, shape, action_space, images):
        super().__init__()
        self.images, self.discrete = images, hasattr(action_space, "n")
        actions = int(action_space.n) if self.discrete else int(np.prod(action_space.shape))
        if images:
            self.trunk = nn.Sequential(
                layer(nn.Conv2d(shape[0], 32, 8, 4)), nn.ReLU(), layer(nn.Conv2d(32, 64, 4, 2)), nn.ReLU(),
                layer(nn.Conv2d(64, 64, 3, 1)), nn.ReLU(), nn.Flatten(), layer(nn.Linear(3136, 512)), nn.ReLU(),
            )  # fmt: skip
            self.policy, self.value = layer(nn.Linear(512, actions), 0.01), layer(nn.Linear(512, 1), 1.0)
        else:
            self.trunk = nn.Identity()
            self.policy, self.value = self.tower(shape[0], actions, 0.01), self.tower(shape[0], 1, 1.0)
        self.log_deviation = nn.Parameter(torch.zeros(actions))

    @staticmethod
    def tower(inputs, outputs, gain):
        hidden = [layer(nn.Linear(inputs, 64)), nn.Tanh(), layer(nn.Linear(64, 64)), nn.Tanh()]
        return nn.Sequential(*hidden, layer(nn.Linear(64, outputs), gain))

    def forward(self, observations):
        hidden = self.trunk(observations.float() / 255.0 if self.images else observations)
        scores, values = self.policy(hidden), self.value(hidden).squeeze(-1)
        if self.discrete:
            return Categorical(logits=scores, validate_args=False), values
        return Independent(
            Normal(scores, self.log_deviation.exp(), validate_args=False), 1, validate_args=False
        ), values


def learn(agent, optimizer, rollout, s):
    """Learn in several epochs of minibatches; return the number of updates.

    Args:
        rollout: Observations, actions, log-probabilities, advantages and value targets, each [B, …].
    """
    for _ in range(s["epochs"]):
        for rows in torch.randperm(len(rollout[0])).chunk(s["minibatches"]):
            seen, action, old, advantage, target = (part[rows] for part in rollout)
            policy, value = agent(seen)
            ratio = (policy.log_prob(action) - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            surrogate = torch.min(advantage * ratio, advantage * ratio.clamp(1 - s["clip"], 1 + s["clip"])).mean()
            loss = 0.25 * (value - target).square().mean() - surrogate
            if s["entropy"]:
                loss = loss - s["entropy"] * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    return s["epochs"] * s["minibatches"]


def main():
    """Train until the run is over."""
    given = arguments(__doc__.splitlines()[0], ["ppo"], SETTINGS)
    s, progress = given.settings, Progress(given)
    torch.set_num_threads(s["threads"])
    torch.manual_seed(given.seed)
    envs_n, steps_n = s["envs"], s["steps"]
    name, kwargs = ENVPOOL[given.task]
    envs = envpool.make(
        name, env_type="gymnasium", num_envs=envs_n, seed=given.seed, num_threads=s["env_threads"], **kwargs
    )
    images, normalize = given.task == "pong", given.task == "halfcheetah"
    shape, space = envs.observation_space.shape, envs.action_space
    agent = Agent(shape, space, images)
    optimizer = torch.optim.Adam(agent.parameters(), lr=s["rate"], eps=1e-5, fused=True)
    seen, earned = Normalizer(shape), Normalizer(())
    running, discounted = np.zeros(envs_n), np.zeros(envs_n)

    def shown(rows):  # [B, …] -> what the network sees
        if normalize:
            seen.add(rows)
            rows = np.clip((rows - seen.mean) / seen.deviation(), -10, 10)
        return torch.as_tensor(rows if images else rows.astype(np.float32))

    observations = torch.zeros((steps_n, envs_n, *shape), dtype=torch.uint8 if images else torch.float32)
    actions = torch.zeros((steps_n, envs_n, *space.shape), dtype=torch.int64 if agent.discrete else torch.float32)
    log_probs, rewards, discounts, values = (torch.zeros((steps_n, envs_n)) for _ in range(4))
    latest = shown(envs.reset()[0])
    env_steps = updates = 0
    while True:
        share = max(0.0, 1.0 - env_steps / (envs_n * steps_n * s["anneal_updates"]))
        optimizer.param_groups[0]["lr"] = s["rate"] * max(share, 0.02)
        for t in range(steps_n):
            with torch.no_grad():
                policy, value = agent(latest)
                action = policy.sample()
                log_probs[t], values[t] = policy.log_prob(action), value
            observations[t], actions[t] = latest, action
            bounded = action.numpy() if agent.discrete else action.clamp(-1, 1).double().numpy()
            after, reward, terminated, truncated, _ = envs.step(bounded)
            ended = terminated | truncated
            running += reward
            for index in np.flatnonzero(ended):
                progress.episode(running[index])
            running[ended] = 0.0
            if normalize:
                discounted = discounted * s["discount"] + reward
                earned.add(discounted)
                discounted[ended] = 0.0
                reward = np.clip(reward / earned.deviation(), -10, 10)
            rewards[t], discounts[t] = torch.as_tensor(reward), torch.as_tensor(s["discount"] * ~ended)
            latest = shown(after)
        with torch.no_grad():
            next_values, advantage = agent(latest)[1], torch.zeros(envs_n)
            advantages = torch.zeros_like(rewards)
            for t in reversed(range(steps_n)):
                errors = rewards[t] + discounts[t] * next_values - values[t]
                advantages[t] = advantage = errors + discounts[t] * s["trace"] * advantage
                next_values = values[t]
        rollout = (observations, actions, log_probs, advantages, advantages + values)
        updates += learn(agent, optimizer, [part.flatten(0, 1) for part in rollout], s)
        env_steps += envs_n * steps_n
        if progress.update(env_steps, updates):
            return


if __name__ == "__main__":
    main()
