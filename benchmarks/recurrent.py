"""How dense layers should begin in networks with memory: PPO on tasks that need memory, by `network.initial_weights`.

    python -m benchmarks.recurrent                            # 24 trainings of a minute or two each, on one core
    python -m benchmarks.recurrent --only 'repeat-*' --seeds 101 102 --backend tensorflow

Every training runs in a process of its own, without actors. The settings are the usual ones of recurrent PPO: an LSTM
or a GRU of 64 for each head, 8 environments x 128 steps, 10 epochs of 8 sequences. The figure is the mean return of
50 greedy episodes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from benchmarks.measurement import FailedError, run
from benchmarks.publishing import say
from benchmarks.speed import chosen, table
from distrl.types import Array

EPISODES = 50


class RepeatPrevious(gymnasium.Env[int, int]):
    """POPGym's RepeatPreviousEasy (Morad et al. 2023): say the suit of the card shown four cards ago, of 52."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Discrete(4), Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._cards, self._shown = self.np_random.permutation(np.repeat(np.arange(4), 13)), 0
        return int(self._cards[0]), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        said = self._shown >= 4
        reward = (1.0 if action == self._cards[self._shown - 4] else -1.0) / 48.0 if said else 0.0
        self._shown += 1
        return int(self._cards[self._shown]), reward, self._shown == 51, False, {}


class TMaze(gymnasium.Env[Array, int]):
    """Bakker 2002: the first observation says where to turn at the end of a corridor of ten steps."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(-1.0, 1.0, (3,), np.float32), Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._goal, self._at, self._steps = int(self.np_random.integers(2)), 0, 0
        return np.array([1 - 2 * self._goal, 0, 0], np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        turns, at_end = action != 0, self._at == 10
        if at_end:
            reward = 4.0 if action == 1 + self._goal else -0.1
        else:
            reward = -0.1 if turns else 0.0
            self._at += not turns
        seen = np.array([0, self._at < 10, self._at == 10], np.float32)
        return seen, reward, at_end and turns, self._steps >= 50, {}


class Task(NamedTuple):
    """An environment, the cell, and the environment steps of a training."""

    environment: dict[str, Any]
    cell: str
    env_steps: int
    entropy_weight: float = 0.0


MASKED = {"id": "CartPole-v1", "preprocessing": [{"step": "select", "keep": [0, 2]}]}
TASKS = {
    "repeat-lstm": Task({"id": "benchmarks.recurrent:RepeatPrevious"}, "lstm", 150_000),
    "repeat-gru": Task({"id": "benchmarks.recurrent:RepeatPrevious"}, "gru", 150_000),
    "t-maze-lstm": Task({"id": "benchmarks.recurrent:TMaze"}, "lstm", 80_000, 0.01),
    "masked-cartpole-lstm": Task(MASKED, "lstm", 80_000),
}
BEGINS = ("orthogonal", "uniform")


def settings(task: Task, begins: str, backend: str, env_steps: int) -> dict[str, Any]:
    """Return the configuration's tree."""
    cell = {"kind": task.cell, "scheme": [], f"number_of_{task.cell}_cells": 64}
    return {
        "environment": task.environment,
        "algorithm": {"name": "ppo", "epochs": 10, "minibatches": 8, "entropy_weight": task.entropy_weight},
        "network": {
            "initial_weights": begins,
            "middleware_parameters": cell,
            "use_separate_networks_per_head": True,
            "learning_rate": 3e-4,
            "optimizer_epsilon": 1e-5,
            "clip_gradients": 0.5,
        },
        "actors": {"count": 0, "environments": 8, "unroll_length_steps": 128},
        "learner": {"backend": backend, "device": "cpu", "batch_size": 1},
        "stop": {"env_steps": env_steps},
    }


def measure(name: str, begins: str, seed: int, backend: str, out: Path, env_steps: int | None = None) -> float:
    """Return the mean return of the greedy episodes after one training.

    Raises:
        FailedError: The training failed.
    """
    run_dir = out / "runs" / f"{name}-{begins}-{seed}"
    tree = settings(TASKS[name], begins, backend, env_steps or TASKS[name].env_steps)
    file = run_dir.with_suffix(".yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(tree), encoding="utf-8")
    run(["-m", "distrl", "train", str(file), "--run-dir", str(run_dir), "--seed", str(seed), "--quiet"])
    options = ["--episodes", str(EPISODES), "--seed", "9", "--json"]
    return float(json.loads(run(["-m", "distrl", "evaluate", str(run_dir), *options]))["mean_return"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; return 1 if a training failed."""
    first, _, rest = (__doc__ or "").partition("\n")
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser("python -m benchmarks.recurrent", None, first, rest, formatter_class=raw)
    made.add_argument("--only", nargs="+", default=[], metavar="TASK", help=f"of {', '.join(TASKS)}; * for anything")
    made.add_argument("--out", type=Path, default=Path("runs") / "recurrent", metavar="DIR", help="for the runs")
    made.add_argument("--seeds", nargs="+", type=int, default=[101, 102, 103], metavar="N")
    made.add_argument("--backend", choices=["jax", "tensorflow"], default="jax", help="(default: %(default)s)")
    made.add_argument("--env-steps", type=int, metavar="N", help="of each training (default: the task's)")
    given = made.parse_args(arguments)
    lines, failed = [], False
    for name in chosen(list(TASKS), given.only):
        for begins in BEGINS:
            found = []
            for seed in given.seeds:
                try:
                    found.append(measure(name, begins, seed, given.backend, given.out, given.env_steps))
                    say(f"{name}, {begins}, seed {seed}: {found[-1]:.3f}")
                except FailedError as error:
                    failed = True
                    say(f"failed: {name}, {begins}, seed {seed}: {error}")
            if found:
                lines.append([name, begins, f"{mean(found):.3f}", ", ".join(f"{value:.3f}" for value in found)])
    say(table(["Task", "Dense layers begin", "Mean", "By seed"], lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
