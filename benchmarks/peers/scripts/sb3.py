"""PPO and A2C of Stable-Baselines3: its own vectors of environments, and PyTorch, in one process."""

import ale_py
import gymnasium as gym
import torch
from progress import Progress, arguments
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

ALGORITHMS = {"ppo": PPO, "a2c": A2C}
SETTINGS = {
    ("ppo", "cartpole"): {
        "envs": 32, "processes": False, "threads": 1, "policy": "MlpPolicy",
        "n_steps": 128, "batch_size": 1024, "n_epochs": 4, "learning_rate": 2.5e-3, "gamma": 0.99, "gae_lambda": 0.95,
    },
    ("ppo", "solve"): {
        "envs": 8, "processes": False, "threads": 1, "policy": "MlpPolicy",
        "n_steps": 32, "batch_size": 256, "n_epochs": 20, "learning_rate": 1e-3, "gamma": 0.98, "gae_lambda": 0.8,
    },
    ("ppo", "halfcheetah"): {
        "envs": 16, "processes": False, "threads": 1, "policy": "MlpPolicy",
        "n_steps": 128, "batch_size": 256, "n_epochs": 10, "learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95,
        "ent_coef": 0.0,
    },
    ("ppo", "pong"): {
        "envs": 8, "processes": True, "threads": 2, "policy": "CnnPolicy",
        "n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 2.5e-4, "clip_range": 0.1, "ent_coef": 0.01,
    },
    ("a2c", "cartpole"): {
        "envs": 32, "processes": False, "threads": 1, "policy": "MlpPolicy", "n_steps": 16, "learning_rate": 2e-3,
    },
    ("a2c", "solve"): {
        "envs": 16, "processes": False, "threads": 1, "policy": "MlpPolicy", "n_steps": 8, "learning_rate": 2e-3,
    },
    ("a2c", "pong"): {
        "envs": 16, "processes": True, "threads": 2, "policy": "CnnPolicy", "n_steps": 5, "ent_coef": 0.01,
    },
}  # fmt: skip


class Telling(BaseCallback):
    """Records the progress at the start of each rollout, right after an update."""

    def __init__(self, progress, updates_each):
        super().__init__()
        self.progress, self.updates_each, self.over = progress, updates_each, False

    def _on_rollout_start(self):
        if self.num_timesteps:
            for info in self.model.ep_info_buffer:  # cleared below: each episode is recorded once
                self.progress.episode(info["r"])
            self.model.ep_info_buffer.clear()
            updates = self.num_timesteps // self.model.env.num_envs // self.model.n_steps * self.updates_each
            self.over = self.progress.update(self.num_timesteps, updates)

    def _on_step(self):
        return not self.over


def make_environments(task, count, seed, processes):
    """Make the usual vector of environments for the task."""
    vector = SubprocVecEnv if processes else DummyVecEnv
    if task == "pong":
        gym.register_envs(ale_py)
        wrapped = {"terminal_on_life_loss": False, "action_repeat_probability": 0.25}
        return VecFrameStack(
            make_atari_env("PongNoFrameskip-v4", count, seed, wrapper_kwargs=wrapped, vec_env_cls=vector), 4
        )
    if task == "halfcheetah":
        return VecNormalize(make_vec_env("HalfCheetah-v5", count, seed, vec_env_cls=vector))
    return make_vec_env("CartPole-v1", count, seed, vec_env_cls=vector)


def main():
    """Train until the run is over."""
    given = arguments(__doc__, ["ppo", "a2c"], SETTINGS)
    settings = given.settings
    progress = Progress(given)
    torch.set_num_threads(settings.pop("threads"))
    count, processes, policy = (settings.pop(name) for name in ("envs", "processes", "policy"))
    environments = make_environments(given.task, count, given.seed, processes)
    model = ALGORITHMS[given.algorithm](policy, environments, seed=given.seed, device="cpu", **settings)
    minibatches = (
        -(-count * model.n_steps // settings["batch_size"]) * settings["n_epochs"] if "n_epochs" in settings else 1
    )
    model.learn(10**12, callback=Telling(progress, minibatches))
    environments.close()


if __name__ == "__main__":
    main()
