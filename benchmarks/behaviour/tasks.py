"""The tasks: experiments of bsuite, the agents that learn them, and bsuite's verdicts.

An agent learns for the number of episodes that bsuite sets (fewer in `deep_sea`), in one environment. The measure is
the mean over all of these episodes (Osband et al. 2020, arXiv:1908.03568). bsuite has an agent for each task here.
distrl's settings are those of bsuite's agent (`bsuite/baselines/jax/*/agent.py` of bsuite 0.3.6); initial weights
differ, and two habits of bsuite's agents that distrl does not have:

- `actor_critic_rnn` acts from an empty memory in every episode, but learns as if it had kept that of the last one.
- `boot_dqn` acts with the weights that the member had at the beginning of the episode.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.table import Row

Sets = Mapping[str, Any]
"""Dotted path of a setting -> its value."""
Log = Sequence[Mapping[str, float]]
"""Rows of bsuite's log of one training: totals since the start, after certain numbers of episodes."""


@dataclass(frozen=True)
class Experiment:
    """One of bsuite's experiments.

    Attributes:
        episodes: Episodes of a training.
        measure: Meaning of the value.
        value: The value of a row of the log, the mean since the start.
        learned_above: bsuite counts greater values as learned; None: it does not say, its score grows with the value.
    """

    episodes: int
    measure: str
    value: Callable[[Mapping[str, float]], float]
    learned_above: float | None

    def outcome(self, log: Log, before: int | None) -> tuple[float, bool | None]:
        """Return the value after all episodes, and whether bsuite counts the task as learned (None: it does not say).

        Args:
            before: The value of any row before this episode may be great enough; None: that of the last one must be.

        Raises:
            ValueError: The log ends before the last episode.
        """
        rows = [row for row in log if row["episode"] <= self.episodes]
        if not rows or rows[-1]["episode"] != self.episodes:
            last = rows[-1]["episode"] if rows else 0
            raise ValueError(f"the log's last row is of episode {last:,.0f}, and {self.episodes:,} are needed")
        value = self.value(rows[-1])
        if self.learned_above is None:
            return value, None
        judged = rows[-1:] if before is None else [row for row in rows if row["episode"] < before]
        return value, any(self.value(row) > self.learned_above for row in judged)


NEVER = 10**9
"""Updates until a checkpoint: it would abandon the episode under way, whose rewards bsuite's log keeps."""

EXPERIMENTS = {
    # bsuite: errors per episode over 0.5, those of random answers, are below 0.75.
    "memory_len": Experiment(10_000, "right answers", lambda row: row["total_perfect"] / row["episode"], 0.625),
    # bsuite: less than 0.9 of the episodes since the start were bad, before `Task.before`.
    # Its 10,000 episodes cost hours, and the verdict over 10 x 10 cells falls before episode 1,124.
    "deep_sea": Experiment(
        *(1_200, "episodes with the treasure", lambda row: 1.0 - row["total_bad_episodes"] / row["episode"], 0.1)
    ),
    # bsuite: a score from 1.0, any of five rewards, to 1.1, the greatest of them.
    "discounting_chain": Experiment(1_000, "mean return", lambda row: row["total_return"] / row["episode"], None),
}


@dataclass(frozen=True)
class Task:
    """One setting of an experiment, with the agent that learns it.

    Attributes:
        bsuite_id: Such as `memory_len/2`.
        what: The setting in words.
        agent: Name of bsuite's agent, of the module in `bsuite.baselines.jax`.
        episode_steps: Environment steps of every episode.
        settings: distrl's.
    """

    bsuite_id: str
    what: str
    agent: str
    episode_steps: int
    settings: Sets

    @property
    def experiment(self) -> Experiment:
        """The experiment."""
        return EXPERIMENTS[self.bsuite_id.partition("/")[0]]

    @property
    def name(self) -> str:
        """Return 'boot_dqn-deep_sea-0'."""
        return f"{self.agent}-{self.bsuite_id.replace('/', '-')}"

    @property
    def before(self) -> int | None:
        """deep_sea: the episode before which it must be learned, 2^size + 100; random actions need 2^size."""
        return 2**self.episode_steps + 100 if self.bsuite_id.startswith("deep_sea") else None

    @property
    def row(self) -> Row:
        """Return distrl's training."""
        given = {
            "environment.id": "benchmarks.behaviour.environment:recorded",
            "environment.kwargs.bsuite_id": self.bsuite_id,
            "actors.count": 0,
            "actors.environments": 1,
            "checkpoint.every_updates": NEVER,
            **self.settings,
        }
        sets = tuple(f"{path}={json.dumps(value)}" for path, value in given.items())
        steps = self.experiment.episodes * self.episode_steps
        return Row(self.name, None, self.bsuite_id, self.settings["algorithm.name"], None, steps, sets=sets)


def actor_critic_rnn(episode_steps: int) -> Sets:
    """Convert the settings of `actor_critic_rnn`, which learns after each episode or 32 steps of it."""
    return {
        "algorithm.name": "a2c",
        "algorithm.discount": 0.99,
        "algorithm.gae_lambda": 0.9,
        "algorithm.entropy_weight": 0.0,
        "algorithm.value_loss_weight": 2.0,
        "network.middleware_parameters": {
            **{"kind": "lstm", "number_of_lstm_cells": 256, "activation": "relu"},
            "scheme": [256, {"kind": "dense", "units": 256, "activation": "none"}],
        },
        **_adam(3e-3),
        "actors.unroll_length_steps": min(episode_steps + 1, 32),  # an episode and the row after it
    }


def boot_dqn() -> Sets:
    """Convert the settings of `boot_dqn`.

    A random function of distrl's is 2.6 times as large as one of bsuite's (standard deviation 0.092 and 0.035 on the
    observations of deep_sea/0), because of its initial weights: a scale of 1.9 is bsuite's 5.
    """
    return {
        "algorithm.name": "bootstrapped_dqn",
        "algorithm.double": False,
        "algorithm.target_update_every_updates": 4,
        "network.middleware_parameters.scheme": [],
        "network.heads_parameters": [{"kind": "ensemble_q", "members": 20, "units": [50, 50], "prior_scale": 1.9}],
        "algorithm.discount": 0.99,
        "algorithm.replay.capacity_steps": 10_000,
        "algorithm.replay.min_size_steps": 128,
        "algorithm.replay.samples_per_insert": 128,  # an update for every step
        **_adam(1e-3),
        "actors.unroll_length_steps": 1,
        "learner.batch_size": 128,
    }


def _adam(learning_rate: float) -> Sets:
    """Return optax's Adam."""
    return {
        "network.optimizer_type": "Adam",
        "network.learning_rate": learning_rate,
        "network.optimizer_epsilon": 1e-8,
        "network.adam_optimizer_beta2": 0.999,
        "network.clip_gradients": None,
    }


MEMORIES = {2: 3, 9: 10, 13: 20, 15: 30}
"""Index of a setting of memory_len -> length of the memory."""
SEAS = {0: 10}
"""Index of a setting of deep_sea -> size."""
HORIZONS = (1, 3, 10, 30, 100)
"""discounting_chain's steps until the greatest reward, by the index of the setting."""

TASKS = (
    *(
        Task(f"memory_len/{index}", f"{length} steps", "actor_critic_rnn", length + 1, actor_critic_rnn(length + 1))
        for index, length in MEMORIES.items()
    ),
    *(
        Task(
            f"discounting_chain/{index}",
            f"{steps} step{'s' * (steps > 1)} to the greatest reward",
            "actor_critic_rnn",
            100,
            actor_critic_rnn(100),
        )
        for index, steps in enumerate(HORIZONS)
    ),
    *(Task(f"deep_sea/{index}", f"{size} × {size}", "boot_dqn", size, boot_dqn()) for index, size in SEAS.items()),
)
