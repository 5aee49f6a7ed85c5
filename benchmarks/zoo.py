"""RL Zoo's tasks with RL Zoo's own settings, beside RL Zoo's own scores.

    python -m benchmarks.zoo --only 'ppo-*' --seeds 1 2 3 4 5 --out runs/zoo

The settings stand here under RL Zoo's names, as in its `hyperparams/*.yml` (ppo.yml at commit 208b6fd, dqn.yml at
ce95481, qrdqn.yml at 04640c9, trpo.yml at 13a3fe7, sac.yml at c94924e, td3.yml at a02f4fb and ddpg.yml at 1159e28; the
last two have Pendulum-v0), with the defaults of Stable-Baselines3 at that time. This module converts them as
docs/stable_baselines.md says. Steps and updates alternate in one process, as they do in Stable-Baselines3. 100 greedy
episodes judge the final weights. RL Zoo's score is of one training, by greedy episodes over 150,000 steps.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measurement import Result
from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import heading, number, read_report, seed_cells, table
from benchmarks.table import Row

PINNED = "0088472b8cb622732bdbc4aa3d0d0abde86c67ed"
SOURCE = f"https://github.com/DLR-RM/rl-baselines3-zoo/blob/{PINNED}/benchmark.md"

Sets = Mapping[str, Any]
"""Dotted path of a setting -> its value."""


@dataclass(frozen=True)
class Entry:
    """One entry of RL Zoo.

    Attributes:
        task: Id of the environment here; RL Zoo's LunarLander was v2.
        algorithm: Its name in the table.
        steps: Environment steps of the training, `n_timesteps`.
        score: RL Zoo's mean and standard deviation of the returns of episodes.
        settings: RL Zoo's in distrl's terms.
    """

    task: str
    algorithm: str
    steps: int
    score: tuple[float, float]
    settings: Sets

    @property
    def name(self) -> str:
        """Return 'ppo-cartpole'."""
        return f"{self.algorithm}-{self.task.rpartition('-')[0]}".lower()

    @property
    def row(self) -> Row:
        """Return what is to be measured."""
        given = {"environment.id": self.task, "actors.count": 0, **self.settings}
        sets = tuple(f"{path}={json.dumps(value)}" for path, value in given.items())
        return Row(self.name, None, self.task, self.algorithm, None, self.steps, sets=sets)


def _network(layers: Sequence[int], activation: str, initial: str, learning_rate: float, epsilon: float) -> Sets:
    return {
        "network.initial_weights": initial,
        "network.middleware_parameters.scheme": [*layers],
        "network.middleware_parameters.activation": activation,
        "network.learning_rate": learning_rate,
        "network.optimizer_epsilon": epsilon,
        "network.adam_optimizer_beta2": 0.999,
    }


def _vector(n_envs: int, n_steps: int, gamma: float, gae_lambda: float, normalize: bool) -> Sets:
    """Return settings of every policy gradient; by `normalize`, those of observations and rewards."""
    sets = {
        "algorithm.discount": gamma,
        "algorithm.gae_lambda": gae_lambda,
        "actors.environments": n_envs,
        "actors.unroll_length_steps": n_steps,
        "learner.batch_size": 1,
        "network.use_separate_networks_per_head": True,
    }
    if normalize:
        sets["network.input_embedders_parameters.observation.normalize"] = True
        sets["algorithm.reward_normalization.clip"] = 10.0
    return sets


def ppo(
    *,
    n_envs: int,
    n_steps: int,
    n_epochs: int,
    gamma: float,
    gae_lambda: float,
    batch_size: int = 64,
    clip_range: float = 0.2,
    ent_coef: float = 0.0,
    vf_coef: float = 0.5,
    max_grad_norm: float = 0.5,
    learning_rate: float = 3e-4,
    linear_updates: int | None = None,
    normalize: bool = False,
    wide: bool = False,
) -> Sets:
    """Convert settings of `PPO`, with SB3's other defaults.

    Args:
        linear_updates: Optimizer steps in which the learning rate falls to 0, all of the training; None: it stays.
        wide: RL Zoo's `policy_kwargs` for MuJoCo: two rectified layers of 256 that begin as PyTorch's do
            (ortho_init=False), and actions that begin with a deviation of exp(-2).
    """
    minibatches = n_envs * n_steps // batch_size
    shape = ((256, 256), "relu", "uniform") if wide else ((64, 64), "tanh", "orthogonal")
    sets = {
        "algorithm.name": "ppo",
        **_vector(n_envs, n_steps, gamma, gae_lambda, normalize),
        **_network(*shape, learning_rate, 1e-5),
        "algorithm.epochs": n_epochs,
        "algorithm.minibatches": minibatches,
        "algorithm.clip_range": clip_range,
        "algorithm.entropy_weight": ent_coef,
        "algorithm.value_loss_weight": 2.0 * vf_coef,
        "network.clip_gradients": max_grad_norm,
    }
    if wide:
        sets["network.heads_parameters"] = [{"kind": "ppo", "initial_log_sigma": -2.0}, {"kind": "value"}]
    if linear_updates is not None:
        sets["network.learning_rate_schedule"] = "linear"
        sets["network.learning_rate_schedule_updates"] = linear_updates
        sets["network.learning_rate_final"] = 0.0
    return sets


def trpo(
    *,
    n_steps: int,
    n_critic_updates: int = 10,
    batch_size: int = 128,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    cg_damping: float = 0.1,
    normalize: bool = False,
) -> Sets:
    """Convert settings of sb3-contrib's `TRPO` with two environments, with its other defaults."""
    return {
        "algorithm.name": "trpo",
        **_vector(2, n_steps, gamma, gae_lambda, normalize),
        **_network((64, 64), "tanh", "orthogonal", 1e-3, 1e-5),
        "algorithm.max_kl": 0.01,
        "algorithm.damping": cg_damping,
        "algorithm.conjugate_gradient_iterations": 15,
        "algorithm.accept_ratio": 0.0,
        "algorithm.value_epochs": n_critic_updates,
        "algorithm.value_minibatches": 2 * n_steps // batch_size,
    }


def _replay(buffer_size: int, batch_size: int, starts: int, ratio: float, train_freq: int) -> Sets:
    """Return settings of every replay memory; `ratio`: updates for each step."""
    # SB3 first learns after the first round of `train_freq` steps that ends beyond `starts`. With the end of the round
    # before it as the least size, the updates of one whole round are due then. A size of 0 is not allowed: with
    # `starts` 0 this learns one round later.
    return {
        "algorithm.replay.capacity_steps": buffer_size,
        "algorithm.replay.min_size_steps": max(starts // train_freq, 1) * train_freq,
        "algorithm.replay.samples_per_insert": batch_size * ratio,
        "exploration.random_steps": starts,
        "actors.environments": 1,
        "actors.unroll_length_steps": train_freq,
        "learner.batch_size": batch_size,
    }


def dqn(
    *,
    batch_size: int,
    buffer_size: int,
    learning_starts: int,
    target_update_interval: int,
    train_freq: int,
    gradient_steps: int,
    exploration_steps: int,
    exploration_final_eps: float,
    learning_rate: float,
    gamma: float = 0.99,
    n_quantiles: int | None = None,
) -> Sets:
    """Convert settings of `DQN`, or with `n_quantiles` of sb3-contrib's `QRDQN`, with two layers of 256 units.

    Args:
        exploration_steps: `exploration_fraction` of all steps.
    """
    ratio = gradient_steps / train_freq
    own: Sets = (
        {"algorithm.name": "dqn", "network.replace_mse_with_huber_loss": True, "network.clip_gradients": 10.0}
        if n_quantiles is None
        else {
            "algorithm.name": "qrdqn",
            "network.heads_parameters": [{"kind": "quantile_q", "quantiles": n_quantiles}],
        }
    )
    return {
        **own,
        **_network((256, 256), "relu", "uniform", learning_rate, 1e-8 if n_quantiles is None else 0.01 / batch_size),
        **_replay(buffer_size, batch_size, learning_starts, ratio, train_freq),
        "algorithm.discount": gamma,
        # SB3 copies while it collects, so between two rounds of updates.
        "algorithm.target_update_every_updates": max(round(target_update_interval / train_freq), 1) * gradient_steps,
        "exploration.kind": "epsilon_greedy",
        "exploration.epsilon": {
            "kind": "linear",
            "start": 1.0,
            "end": exploration_final_eps,
            "steps": exploration_steps,
        },
    }


def pendulum_sac() -> Sets:
    """Convert Pendulum's entry in `sac.yml`: SB3's defaults but for the learning rate."""
    return {
        "algorithm.name": "sac",
        **_network((256, 256), "relu", "uniform", 1e-3, 1e-8),
        **_replay(1_000_000, 256, 100, 1.0, 1),
        "exploration.kind": "policy",
    }


def pendulum_td3(name: str) -> Sets:
    """Convert Pendulum's in `td3.yml` and `ddpg.yml`, which learn after each episode of 200 steps."""
    return {
        "algorithm.name": name,
        **_network((400, 300), "relu", "uniform", 1e-3, 1e-8),
        **_replay(200_000, 100, 10_000, 1.0, 200),
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


def block(report: Path) -> str:
    """Return the part of `docs/results.md`."""
    tree, rows, by_row = read_report(report)
    if not tree["results"]:
        return heading(tree, by_row)
    return f"{heading(tree, by_row)}\n\n{_table(rows, by_row, tree['seeds'])}"


def _table(rows: Sequence[Row], by_row: Mapping[str, Sequence[Result]], seeds: Sequence[int]) -> str:
    theirs = {entry.name: entry for entry in ENTRIES}
    heads = ["Task", "Algorithm", "Steps", *(f"Seed {seed}" for seed in seeds)]
    heads += ["Interquartile mean [95 %]", f"[RL Zoo]({SOURCE}): one training"]
    lines = []
    for row in rows:
        entry = theirs[row.name]
        published = " ± ".join(number(value) for value in entry.score)
        ours = seed_cells(by_row[row.name], seeds)
        lines.append([row.task, row.algorithm, f"{row.env_steps:,}", *ours, published])
    return table(heads, lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    given = parser((__doc__ or "").splitlines()[0], "zoo").parse_args(arguments)
    return measure_and_report("zoo", [entry.row for entry in ENTRIES], given, block)


if __name__ == "__main__":
    raise SystemExit(main())
