"""RL Zoo's tasks with RL Zoo's own settings, beside RL Zoo's own scores.

    python -m benchmarks.zoo --only 'ppo-*' --seeds 1 2 3 4 5 --out runs/zoo

The settings stand here under RL Zoo's names, as in its `hyperparams/*.yml` (ppo.yml at commit 208b6fd, dqn.yml at
ce95481, qrdqn.yml at 04640c9, trpo.yml at 13a3fe7, sac.yml at c94924e, td3.yml at a02f4fb and ddpg.yml at 1159e28; the
last two have Pendulum-v0), with the defaults of Stable-Baselines3 at that time. 100 greedy episodes judge the final
weights. RL Zoo's score is of one training, by greedy episodes over 150,000 steps.
"""

from typing import Any

from benchmarks.converted import Sets, dqn, network, ppo, replay, trpo
from benchmarks.scores import Entry, Scores

PINNED = "0088472b8cb622732bdbc4aa3d0d0abde86c67ed"
SOURCE = f"https://github.com/DLR-RM/rl-baselines3-zoo/blob/{PINNED}/benchmark.md"


def pendulum_sac() -> Sets:
    """Convert Pendulum's entry in `sac.yml`: SB3's defaults but for the learning rate."""
    return {
        "algorithm.name": "sac",
        **network((256, 256), "relu", "uniform", 1e-3, 1e-8),
        **replay(1_000_000, 256, 100, 1.0, 1),
        "exploration.kind": "policy",
    }


def pendulum_td3(name: str) -> Sets:
    """Convert Pendulum's in `td3.yml` and `ddpg.yml`, which learn after each episode of 200 steps."""
    return {
        "algorithm.name": name,
        **network((400, 300), "relu", "uniform", 1e-3, 1e-8),
        **replay(200_000, 100, 10_000, 1.0, 200),
        "algorithm.discount": 0.98,
        "algorithm.target_update_rate": 0.005,
        "exploration.kind": "gaussian_noise",
        "exploration.stddev": {"kind": "constant", "value": 0.05},  # of the range, 2 for SB3's scaled actions: its 0.1
    }


def cartpole_dqn(n_quantiles: int | None = None) -> Sets:
    """Convert CartPole's entries in `dqn.yml` and `qrdqn.yml`."""
    return dqn(
        **{"batch_size": 64, "buffer_size": 100_000, "learning_starts": 1_000, "target_update_interval": 10},
        **{"train_freq": 256, "gradient_steps": 128, "exploration_steps": 8_000, "exploration_final_eps": 0.04},
        **{"learning_rate": 2.3e-3, "n_quantiles": n_quantiles},
    )


def mountain_car_dqn(n_quantiles: int | None = None) -> Sets:
    """Convert MountainCar's."""
    return dqn(
        **{"batch_size": 128, "buffer_size": 10_000, "learning_starts": 1_000, "target_update_interval": 600},
        **{"train_freq": 16, "gradient_steps": 8, "exploration_steps": 24_000, "exploration_final_eps": 0.07},
        **{"learning_rate": 4e-3, "gamma": 0.98, "n_quantiles": n_quantiles},
    )


def acrobot_dqn(n_quantiles: int | None = None) -> Sets:
    """Convert Acrobot's, which `dqn.yml` has for LunarLander, too."""
    return dqn(
        **{"batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "target_update_interval": 250},
        **{"train_freq": 4, "gradient_steps": 4, "exploration_steps": 12_000, "exploration_final_eps": 0.1},
        **{"learning_rate": 6.3e-4, "n_quantiles": n_quantiles},
    )


def mujoco_ppo(**given: Any) -> Sets:
    """Convert MuJoCo's entries in `ppo.yml`, whose observations and rewards are normalised."""
    return ppo(**{"n_envs": 1, "normalize": True, **given})


ENTRIES = (
    Entry(
        *("CartPole-v1", "PPO", 100_000, (500.0, 0.0)),
        ppo(
            **{"n_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8},
            **{"learning_rate": 1e-3, "linear_updates": 7_820},  # 20 in each of 391 updates
        ),
    ),
    Entry(
        *("Acrobot-v1", "PPO", 1_000_000, (-73.506, 18.201)),
        ppo(n_envs=16, n_steps=256, n_epochs=4, gamma=0.99, gae_lambda=0.94, normalize=True),
    ),
    Entry(
        *("MountainCar-v0", "PPO", 1_000_000, (-110.423, 19.473)),
        ppo(n_envs=16, n_steps=16, n_epochs=4, gamma=0.99, gae_lambda=0.98, normalize=True),
    ),
    Entry(
        *("LunarLander-v3", "PPO", 1_000_000, (242.119, 31.823)),
        ppo(n_envs=16, n_steps=1024, n_epochs=4, gamma=0.999, gae_lambda=0.98, ent_coef=0.01),
    ),
    Entry(
        *("HalfCheetah-v5", "PPO", 1_000_000, (5819.099, 663.530)),
        mujoco_ppo(
            **{"n_steps": 512, "batch_size": 64, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.92, "clip_range": 0.1},
            **{"learning_rate": 2.0633e-5, "ent_coef": 0.000401762, "max_grad_norm": 0.8, "vf_coef": 0.58096},
            wide=True,
        ),
    ),
    Entry(
        *("Hopper-v5", "PPO", 1_000_000, (2410.435, 10.026)),
        mujoco_ppo(
            **{"n_steps": 512, "batch_size": 32, "n_epochs": 5, "gamma": 0.999, "gae_lambda": 0.99},
            **{"learning_rate": 9.80828e-5, "ent_coef": 0.00229519, "max_grad_norm": 0.7, "vf_coef": 0.835671},
            wide=True,
        ),
    ),
    Entry(
        *("Walker2d-v5", "PPO", 1_000_000, (3478.798, 821.708)),
        mujoco_ppo(
            **{"n_steps": 512, "batch_size": 32, "n_epochs": 20, "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.1},
            **{"learning_rate": 5.05041e-5, "ent_coef": 0.000585045, "max_grad_norm": 1.0, "vf_coef": 0.871923},
        ),
    ),
    Entry(
        *("Ant-v5", "PPO", 1_000_000, (1327.158, 451.577)),
        # v5 observes 78 contact forces, too, which were zeros in v3 and are no part of v4's observations.
        mujoco_ppo(n_steps=2048, n_epochs=10, gamma=0.99, gae_lambda=0.95)
        | {"environment.kwargs.include_cfrc_ext_in_observation": False},
    ),
    Entry(
        *("Swimmer-v5", "PPO", 1_000_000, (281.561, 9.671)),
        mujoco_ppo(
            **{"n_envs": 4, "n_steps": 1024, "batch_size": 256, "n_epochs": 10, "gamma": 0.9999, "gae_lambda": 0.98},
            learning_rate=6e-4,
        ),
    ),
    Entry(
        *("CartPole-v1", "TRPO", 100_000, (500.0, 0.0)),
        trpo(n_steps=512, batch_size=512, cg_damping=1e-3, gae_lambda=0.98, n_critic_updates=20),
    ),
    Entry("Acrobot-v1", "TRPO", 100_000, (-83.114, 18.648), trpo(n_steps=1024, normalize=True)),
    Entry(
        *("MountainCar-v0", "TRPO", 100_000, (-107.278, 13.231)),
        trpo(n_steps=1024, n_critic_updates=20, normalize=True),
    ),
    Entry("CartPole-v1", "DQN", 50_000, (500.0, 0.0), cartpole_dqn()),
    Entry("MountainCar-v0", "DQN", 120_000, (-100.849, 9.925), mountain_car_dqn()),
    Entry("Acrobot-v1", "DQN", 100_000, (-76.639, 11.752), acrobot_dqn()),
    Entry("LunarLander-v3", "DQN", 100_000, (154.382, 79.241), acrobot_dqn()),
    Entry("CartPole-v1", "QR-DQN", 50_000, (500.0, 0.0), cartpole_dqn(n_quantiles=10)),
    Entry("MountainCar-v0", "QR-DQN", 120_000, (-106.042, 15.536), mountain_car_dqn(n_quantiles=25)),
    Entry("Acrobot-v1", "QR-DQN", 100_000, (-69.135, 9.967), acrobot_dqn(n_quantiles=25)),
    Entry("Pendulum-v1", "SAC", 20_000, (-156.995, 88.714), pendulum_sac()),
    Entry("Pendulum-v1", "TD3", 20_000, (-151.855, 90.227), pendulum_td3("td3")),
    Entry("Pendulum-v1", "DDPG", 20_000, (-152.099, 94.282), pendulum_td3("ddpg")),
)

SCORES = Scores("zoo", f"[RL Zoo]({SOURCE}): one training", ENTRIES)


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    return SCORES.main((__doc__ or "").splitlines()[0], arguments)


if __name__ == "__main__":
    raise SystemExit(main())
