"""PPO, IMPALA and APPO of RLlib's new API stack: Ray actors step gymnasium's environments, PyTorch learns."""

import os
import shutil
import tempfile

os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ale_py
import gymnasium as gym
import numpy as np
import ray
import torch
from progress import EPISODES, Progress, arguments
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

ALGORITHMS = {"ppo": PPOConfig, "impala": IMPALAConfig, "appo": APPOConfig}
VECTORS = {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False}
IMAGES = {
    "conv_filters": [[32, 8, 4], [64, 4, 2], [64, 3, 1]], "conv_activation": "relu", "head_fcnet_hiddens": [512],
    "vf_share_layers": True,
}  # fmt: skip
SETTINGS = {
    ("ppo", "cartpole"): {
        "runners": 2, "envs": 32, "learners": 0, "threads": 1, "train_batch_size_per_learner": 4096,
        "minibatch_size": 1024, "num_epochs": 4, "lr": 2.5e-3, "gamma": 0.99, "lambda_": 0.95, "vf_clip_param": 1e4,
        "entropy_coeff": 0.01, "use_kl_loss": False,
    },
    ("ppo", "solve"): {
        "runners": 2, "envs": 8, "learners": 0, "threads": 1, "train_batch_size_per_learner": 1024,
        "minibatch_size": 256, "num_epochs": 8, "lr": 1e-3, "gamma": 0.98, "lambda_": 0.9, "vf_clip_param": 1e4,
        "entropy_coeff": 0.0, "use_kl_loss": False,
    },
    ("ppo", "halfcheetah"): {
        "runners": 2, "envs": 8, "learners": 0, "threads": 1, "train_batch_size_per_learner": 2048,
        "minibatch_size": 256, "num_epochs": 10, "lr": 3e-4, "gamma": 0.99, "lambda_": 0.95, "vf_clip_param": 1e4,
        "entropy_coeff": 0.0, "use_kl_loss": False, "grad_clip": 0.5,
    },
    ("ppo", "pong"): {
        "runners": 2, "envs": 4, "learners": 0, "threads": 2, "train_batch_size_per_learner": 1024,
        "minibatch_size": 256, "num_epochs": 4, "lr": 2.5e-4, "gamma": 0.99, "lambda_": 0.95, "clip_param": 0.1,
        "entropy_coeff": 0.01, "use_kl_loss": False,
    },
    ("impala", "cartpole"): {
        "runners": 2, "envs": 16, "learners": 1, "threads": 1, "train_batch_size_per_learner": 2000, "lr": 2e-3,
        "rollout_fragment_length": 50, "grad_clip": 1.0, "gamma": 0.99, "entropy_coeff": 0.0, "vf_loss_coeff": 0.05,
    },
    ("impala", "solve"): {
        "runners": 2, "envs": 8, "learners": 1, "threads": 1, "train_batch_size_per_learner": 500, "lr": 2e-3,
        "rollout_fragment_length": 20, "grad_clip": 1.0, "gamma": 0.99, "entropy_coeff": 0.0, "vf_loss_coeff": 0.05,
    },
    ("impala", "pong"): {
        "runners": 2, "envs": 8, "learners": 1, "threads": 1, "train_batch_size_per_learner": 640, "lr": 3e-4,
        "rollout_fragment_length": 20, "grad_clip": 40.0, "gamma": 0.99, "entropy_coeff": 0.01, "vf_loss_coeff": 0.5,
    },
    ("appo", "cartpole"): {
        "runners": 2, "envs": 16, "learners": 1, "threads": 1, "train_batch_size_per_learner": 2000, "lr": 2e-3,
        "rollout_fragment_length": 50, "grad_clip": 1.0, "gamma": 0.99, "entropy_coeff": 0.0, "vf_loss_coeff": 0.05,
        "circular_buffer_num_batches": 1, "circular_buffer_iterations_per_batch": 1,
    },
    ("appo", "solve"): {
        "runners": 2, "envs": 8, "learners": 1, "threads": 1, "train_batch_size_per_learner": 500, "lr": 2e-3,
        "rollout_fragment_length": 20, "grad_clip": 1.0, "gamma": 0.99, "entropy_coeff": 0.0, "vf_loss_coeff": 0.05,
        "circular_buffer_num_batches": 2, "circular_buffer_iterations_per_batch": 2,
    },
    ("appo", "pong"): {
        "runners": 2, "envs": 8, "learners": 1, "threads": 1, "train_batch_size_per_learner": 640, "lr": 3e-4,
        "rollout_fragment_length": 20, "grad_clip": 40.0, "gamma": 0.99, "entropy_coeff": 0.01, "vf_loss_coeff": 0.5,
        "circular_buffer_num_batches": 1, "circular_buffer_iterations_per_batch": 1,
    },
}  # fmt: skip


def pong(_):
    """Make Pong in floats, with the four frames as channels along the last axis."""
    gym.register_envs(ale_py)
    env = gym.make("ALE/Pong-v5", frameskip=1)
    env = gym.wrappers.AtariPreprocessing(env, frame_skip=4, scale_obs=True)
    env = gym.wrappers.FrameStackObservation(env, 4)
    space = gym.spaces.Box(0.0, 1.0, (84, 84, 4), np.float32)
    return gym.wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), space)


def configuration(given, settings):
    """Return RLlib's configuration of our settings."""
    runners = {"num_env_runners": settings.pop("runners"), "num_envs_per_env_runner": settings.pop("envs")}
    if "rollout_fragment_length" in settings:
        runners["rollout_fragment_length"] = settings.pop("rollout_fragment_length")
    if given.task == "halfcheetah":
        runners["env_to_module_connector"] = lambda env, spaces, device: MeanStdFilter()
    env = {"halfcheetah": "HalfCheetah-v5", "pong": "pong"}.get(given.task, "CartPole-v1")
    model = DefaultModelConfig(**(IMAGES if given.task == "pong" else VECTORS))
    learners = settings.pop("learners")
    config = ALGORITHMS[given.algorithm]().environment(env).env_runners(**runners).training(**settings)
    config = config.learners(num_learners=learners).rl_module(model_config=model).debugging(seed=given.seed)
    return config.reporting(
        metrics_num_episodes_for_smoothing=EPISODES, min_time_s_per_iteration=0 if given.algorithm == "ppo" else 0.5
    )


def main():
    """Train until the run is over."""
    given = arguments(__doc__, list(ALGORITHMS), SETTINGS)
    progress, settings = Progress(given), given.settings
    update_steps = settings.get("minibatch_size", settings["train_batch_size_per_learner"])
    torch.set_num_threads(settings.pop("threads"))
    register_env("pong", pong)
    folder = tempfile.mkdtemp(prefix="ray-")
    ray.init(
        num_cpus=8, include_dashboard=False, object_store_memory=400 * 2**20, _temp_dir=folder, log_to_driver=False
    )
    algorithm = configuration(given, settings).build_algo()
    over = False
    while not over:
        result = algorithm.train()
        runners = result["env_runners"]
        trained = result.get("learners", {}).get("default_policy", {}).get("num_module_steps_trained_lifetime", 0)
        if trained:
            mean = runners.get("episode_return_mean", np.nan)  # NaN if no episode ended recently
            mean = None if np.isnan(mean) or runners["num_episodes_lifetime"] < EPISODES else float(mean)
            over = progress.update(runners["num_env_steps_sampled_lifetime"], round(trained / update_steps), mean)
    algorithm.stop()
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
