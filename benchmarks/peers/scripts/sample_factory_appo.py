"""APPO of Sample Factory: a rollout worker steps EnvPool, a policy worker acts, a learner learns, in a process each."""

import shutil
import sys
import tempfile

import envpool
import gymnasium as gym
import numpy as np
from progress import ENVPOOL, EPISODES, Progress, arguments
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

COMMON = {
    "batched_sampling": True, "use_rnn": False, "recurrence": 1, "with_vtrace": False, "adaptive_stddev": False,
    "normalize_returns": True, "normalize_input": True, "num_envs_per_worker": 1, "worker_num_splits": 1,
    "num_workers": 1, "async_rl": True, "serial_mode": False, "value_bootstrap": True, "reward_scale": 1.0,
    "gamma": 0.99, "gae_lambda": 0.95, "kl_loss_coeff": 0.0, "envs": 64, "env_threads": 1, "save_every_sec": 10**6,
    "save_best_every_sec": 10**6, "experiment_summaries_interval": 10**6, "max_grad_norm": 1.0,
    "shuffle_minibatches": False,
}  # fmt: skip
SETTINGS = {
    ("appo", "cartpole"): {
        **COMMON, "envs": 128, "rollout": 32, "batch_size": 2048, "num_batches_per_epoch": 2, "num_epochs": 1,
        "learning_rate": 3e-3, "encoder_mlp_layers": [64, 64], "nonlinearity": "tanh", "exploration_loss_coeff": 0.01,
        "reward_scale": 0.1,
    },
    ("appo", "solve"): {
        **COMMON, "envs": 32, "rollout": 32, "batch_size": 1024, "num_batches_per_epoch": 1, "num_epochs": 4,
        "learning_rate": 3e-3, "encoder_mlp_layers": [64, 64], "nonlinearity": "tanh", "exploration_loss_coeff": 0.0,
        "reward_scale": 0.1,
    },
    ("appo", "halfcheetah"): {
        **COMMON, "envs": 64, "rollout": 64, "batch_size": 2048, "num_batches_per_epoch": 2, "num_epochs": 2,
        "learning_rate": 5e-4, "lr_schedule": "kl_adaptive_epoch", "lr_schedule_kl_threshold": 0.008,
        "encoder_mlp_layers": [64, 64], "nonlinearity": "elu", "exploration_loss_coeff": 0.0, "reward_scale": 0.1,
        "kl_loss_coeff": 0.1, "value_loss_coeff": 2.0, "policy_initialization": "torch_default",
    },
    ("appo", "pong"): {
        **COMMON, "envs": 16, "rollout": 32, "batch_size": 256, "num_batches_per_epoch": 2, "num_epochs": 1,
        "learning_rate": 2.5e-4, "encoder_conv_architecture": "convnet_atari", "nonlinearity": "relu",
        "obs_scale": 255.0,
        "normalize_input": False, "exploration_loss_coeff": 0.01, "max_grad_norm": 0.5, "ppo_clip_ratio": 0.1,
    },
}  # fmt: skip


class Pool(gym.Wrapper):
    """EnvPool as a batch of environments for Sample Factory, which reset in the step that ends an episode."""

    def __init__(self, pool, count):
        super().__init__(pool)
        self.num_agents, self.is_multiagent = count, True

    def reset(self, **_):
        return self.env.reset()

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self.env.step(np.asarray(actions))
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            observations[ended] = self.env.reset(ended)[0]
        return observations, rewards, terminated, truncated, infos

    def close(self):
        """Do nothing: EnvPool's method does not work with this old gymnasium, and the process ends."""


class Telling(AlgoObserver):
    """Records the progress after each training iteration, and ends the run."""

    def __init__(self, progress, settings):
        self.progress, self.updates_each = progress, settings["num_batches_per_epoch"] * settings["num_epochs"]

    def on_training_step(self, runner, training_iteration_since_resume):
        returns = list(runner.policy_avg_stats.get("reward", [[]])[0])[-EPISODES:]
        mean = float(np.mean(returns)) if len(returns) == EPISODES else None
        if self.progress.update(runner.env_steps[0], training_iteration_since_resume * self.updates_each, mean):
            runner.cfg.train_for_env_steps = 0


def make_environment(name, cfg, env_config, render_mode=None):
    """Make the environments of one worker."""
    env_id, kwargs = ENVPOOL[name]
    seed = cfg.seed + (env_config.env_id if env_config else 0)
    pool = envpool.make(
        env_id, env_type="gymnasium", num_envs=cfg.envs, num_threads=cfg.env_threads, seed=seed, **kwargs
    )
    return Pool(pool, cfg.envs)


def configuration(given, folder):
    """Return Sample Factory's configuration of our settings."""
    command = [f"--env={given.task}", f"--train_dir={folder}", f"--seed={given.seed}", "--device=cpu"]
    parser, _ = parse_sf_args(argv=command)
    parser.add_argument("--envs", type=int)
    parser.add_argument("--env_threads", type=int)
    parser.set_defaults(**given.settings)
    return parse_full_cfg(parser, command)


def main():
    """Train until the run is over."""
    given = arguments(__doc__, ["appo"], SETTINGS)
    register_env(given.task, make_environment)
    folder = tempfile.mkdtemp()
    _, runner = make_runner(configuration(given, folder))
    runner.register_observer(Telling(Progress(given), given.settings))
    status = runner.init()
    if status == ExperimentStatus.SUCCESS:
        status = runner.run()
    shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
