"""Goals of learning: one row for each task and algorithm, with the threshold of its preset."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

SEEDS = (1, 2, 3)
"""Seeds of measurements. Presets are tuned with seeds from 100 on, never with these."""
EPISODES = 100
"""Number of greedy episodes behind a final score."""


def evaluation_seed(seed: int) -> int:
    """Return the seed of the episodes that judge a training of `seed`; never the training's own."""
    return 1000 + seed


@dataclass(frozen=True)
class Row:
    """One training to measure.

    Attributes:
        name: Unique name of the row and its results.
        preset: The preset that it trains; None: `sets` have everything.
        task, algorithm: Names in the table.
        mean_return: The threshold; None: there is none, only the curve is shown.
        env_steps: The budget; None: the budget is `minutes`.
        sets: Further `--set PATH=VALUE` of the training.
        program: The Python interpreter's arguments that train.
        seeds: The requested seeds under which it is measured; None: all of them.
        measure: What the threshold is of, as the preset says: the greedy episodes, or the training's last 100.
    """

    name: str
    preset: str | None
    task: str
    algorithm: str
    mean_return: float | None
    env_steps: int | None
    minutes: float | None = None
    sets: tuple[str, ...] = ()
    program: tuple[str, ...] = ("-m", "distrl", "train")
    seeds: tuple[int, ...] | None = None
    measure: Literal["evaluation", "training"] = "evaluation"

    def under(self, asked: Sequence[int]) -> list[int]:
        """Return the requested seeds under which the row is measured."""
        return [seed for seed in asked if self.seeds is None or seed in self.seeds]


def _row(preset: str, task: str, algorithm: str, mean_return: float, env_steps: int, **more: Any) -> Row:
    return Row(preset, preset, task, algorithm, mean_return, env_steps, **more)


ROWS = (
    _row("cartpole-impala", "CartPole-v1", "IMPALA", 475, 500_000),
    _row("cartpole-appo", "CartPole-v1", "APPO", 475, 500_000),
    _row("cartpole-ppo", "CartPole-v1", "PPO", 475, 500_000),
    _row("cartpole-a2c", "CartPole-v1", "A2C", 475, 500_000),
    _row("cartpole-a3c", "CartPole-v1", "A3C", 475, 500_000),
    _row("cartpole-vpg", "CartPole-v1", "VPG", 400, 500_000),
    _row("cartpole-trpo", "CartPole-v1", "TRPO", 475, 500_000),
    _row("cartpole-acer", "CartPole-v1", "ACER", 475, 200_000),
    _row("cartpole-dqn", "CartPole-v1", "DQN", 475, 100_000),
    _row("cartpole-apex", "CartPole-v1", "Ape-X", 475, 200_000),
    _row("cartpole-c51", "CartPole-v1", "C51", 475, 100_000),
    _row("cartpole-qrdqn", "CartPole-v1", "QR-DQN", 475, 100_000),
    _row("cartpole-rainbow", "CartPole-v1", "Rainbow", 475, 100_000),
    _row("cartpole-discrete-sac", "CartPole-v1", "Discrete SAC", 475, 100_000),
    _row("memory-cue", "a cue kept for ten steps", "IMPALA", 0.9, 1_000_000, measure="training"),
    _row("memory-cue-r2d2", "a cue kept for ten steps", "R2D2", 0.9, 200_000),
    _row("masked-cartpole-r2d2", "CartPole-v1 without velocities", "R2D2", 475, 300_000),
    _row("masked-pendulum-sac", "Pendulum-v1 without its velocity", "SAC", -400, 60_000),
    _row("bitflip-dqn-her", "16 bits flipped to a goal", "DQN", -8, 60_000),
    _row("reach-a2c", "a target of two real numbers", "A2C", -0.4, 400_000, measure="training"),
    _row("key-and-door-ppo-rnd", "a key, and a door behind it", "PPO", 0.95, 500_000, measure="training"),
    _row("chain-bootstrapped-dqn", "a reward at the end of a chain", "Bootstrapped DQN", 11, 100_000),
    _row("acrobot-impala", "Acrobot-v1", "IMPALA", -95, 500_000),
    _row("acrobot-a2c", "Acrobot-v1", "A2C", -95, 500_000),
    _row("acrobot-ppo", "Acrobot-v1", "PPO", -95, 500_000),
    _row("acrobot-dqn", "Acrobot-v1", "DQN", -95, 200_000),
    _row("mountaincar-ppo-rnd", "MountainCar-v0", "PPO", -125, 500_000),
    _row("frozenlake-ppo", "FrozenLake-v1", "PPO", 0.65, 200_000),
    _row("taxi-dqn", "Taxi-v4", "DQN", 7.5, 150_000),
    _row("lunarlander-ppo", "LunarLander-v3", "PPO", 200, 1_000_000),
    _row("lunarlander-dqn", "LunarLander-v3", "DQN", 100, 200_000),
    _row("pendulum-sac", "Pendulum-v1", "SAC", -180, 30_000),
    _row("pendulum-td3", "Pendulum-v1", "TD3", -180, 30_000),
    _row("pendulum-ddpg", "Pendulum-v1", "DDPG", -180, 30_000),
    _row("pendulum-naf", "Pendulum-v1", "NAF", -200, 30_000),
    _row("pendulum-tqc", "Pendulum-v1", "TQC", -180, 20_000),
    _row("pendulum-crossq", "Pendulum-v1", "CrossQ", -180, 20_000),
    _row("pendulum-ppo", "Pendulum-v1", "PPO", -200, 300_000),
    _row("halfcheetah-impala", "HalfCheetah-v5", "IMPALA", 1_500, 2_000_000, measure="training"),
    _row("halfcheetah-ppo", "HalfCheetah-v5", "PPO", 2_000, 1_000_000),
    _row("halfcheetah-appo", "HalfCheetah-v5", "APPO", 2_500, 4_000_000),
    _row("halfcheetah-sac", "HalfCheetah-v5", "SAC", 3_000, 100_000),
    _row("halfcheetah-td3", "HalfCheetah-v5", "TD3", 2_000, 100_000),
    _row("halfcheetah-tqc", "HalfCheetah-v5", "TQC", 3_000, 100_000),
    _row("halfcheetah-crossq", "HalfCheetah-v5", "CrossQ", 3_000, 100_000),
    _row("mixed-ppo", "every action type at once", "PPO", 7.68, 300_000),
    _row("mixed-impala", "every action type at once", "IMPALA", 7.68, 300_000),
    _row("minatar-asterix-ppo", "MinAtar/Asterix-v1", "PPO", 4, 1_000_000),
    _row("minatar-breakout-ppo", "MinAtar/Breakout-v1", "PPO", 8, 1_000_000),
    _row("minatar-breakout-rainbow", "MinAtar/Breakout-v1", "Rainbow", 20, 1_000_000),
    _row("minatar-breakout-r2d2", "MinAtar/Breakout-v1", "R2D2", 14, 1_000_000),
    _row("minatar-freeway-ppo", "MinAtar/Freeway-v1", "PPO", 45, 1_000_000),
    _row("minatar-seaquest-ppo", "MinAtar/Seaquest-v1", "PPO", 3, 1_000_000),
    _row("minatar-space-invaders-ppo", "MinAtar/SpaceInvaders-v1", "PPO", 40, 1_000_000),
    _row("pong-ppo", "ALE/Pong-v5", "PPO", 18, 10_000_000, seeds=(1,)),
    Row("pong-impala", "pong-impala", "ALE/Pong-v5", "IMPALA", None, None, minutes=60.0, seeds=(1,)),
)


def selected(rows: Sequence[Row], patterns: Sequence[str]) -> list[Row]:
    """Return the rows whose name matches one of the patterns, such as `cartpole-*`; without patterns, all.

    Raises:
        ValueError: A pattern matches nothing.
    """
    for pattern in patterns:
        if not any(fnmatchcase(row.name, pattern) for row in rows):
            raise ValueError(f"no row is named {pattern}; there are {', '.join(row.name for row in rows)}")
    return [row for row in rows if not patterns or any(fnmatchcase(row.name, pattern) for pattern in patterns)]
