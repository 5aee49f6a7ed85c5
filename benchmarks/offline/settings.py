"""Settings of the trainings: the same in distrl's and in d3rlpy's terms.

Each algorithm has the settings of its paper's code, on batches of 256 and two rectified layers of 256, which begin as
PyTorch's do. What the libraries do differently stays: d3rlpy moves the critics before the policy, its BC has a
deterministic policy and distrl's a Gaussian one, and its IQL's log deviation is -5 + 7 sigmoid(w) of a weight w that
begins at 0, where distrl's is the weight itself, which begins with the same value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.converted import Sets, network

UPDATES = 10_000
"""Every offline training makes so many updates; D4RL's benchmarks make 500,000 to 1,000,000."""
ROWS = 200_000
"""Most rows of a recorded set. D4RL's have 1,000,000, and medium-replay has as many as SAC took."""
BATCH, WIDTHS, RATE, DISCOUNT = 256, (256, 256), 3e-4, 0.99
BACKEND = {"learner.backend": "jax"}


@dataclass(frozen=True)
class Algorithm:
    """One offline algorithm on both sides.

    Attributes:
        label: Its name in the table.
        ours: distrl's settings beside `OFFLINE`.
        theirs: Name of d3rlpy's configuration, and its arguments.
    """

    label: str
    ours: Sets
    theirs: tuple[str, Mapping[str, Any]]


OFFLINE: Sets = {
    **BACKEND,
    **network(WIDTHS, "relu", "uniform", RATE, 1e-8),
    "learner.batch_size": BATCH,
    "actors.count": 0,
    "launch.mode": "here",
    "stop.updates": UPDATES,
    "checkpoint.every_updates": UPDATES,
}
_BOTH = {"actor_learning_rate": RATE, "critic_learning_rate": RATE}

ALGORITHMS: dict[str, Algorithm] = {
    "bc": Algorithm("BC", {}, ("BCConfig", {"learning_rate": RATE})),
    "td3_bc": Algorithm("TD3+BC", {"algorithm.value_weight": 2.5}, ("TD3PlusBCConfig", {**_BOTH, "alpha": 2.5})),
    "iql": Algorithm(
        "IQL",
        {
            "algorithm.beta": 3.0,
            "algorithm.expectile": 0.7,
            "algorithm.max_weight": 100.0,
            "network.heads_parameters": [{"kind": "policy", "initial_log_sigma": -1.5}],
        },
        ("IQLConfig", {**_BOTH, "weight_temp": 3.0, "expectile": 0.7, "max_weight": 100.0}),
    ),
    "cql": Algorithm(
        "CQL",
        {
            "algorithm.conservative_weight": 2.5,
            "algorithm.critic_learning_rate": RATE,
            "algorithm.temperature_learning_rate": 1e-4,
            "network.learning_rate": 1e-4,
        },
        (
            "CQLConfig",
            {
                "actor_learning_rate": 1e-4,
                "critic_learning_rate": RATE,
                "temp_learning_rate": 1e-4,
                "conservative_weight": 5.0,  # twice distrl's: its loss has no half
                "initial_alpha": 1.0,
                "alpha_learning_rate": 0.0,
                "alpha_threshold": 0.0,
            },
        ),
    ),
}

SAC: Sets = {
    **BACKEND,
    **network(WIDTHS, "relu", "orthogonal", RATE, 1e-8),
    "algorithm.name": "sac",
    "algorithm.discount": DISCOUNT,
    "actors.count": 1,
    "actors.environments": 2,
    "actors.unroll_length_steps": 8,
    "memory.queue_batches": 1,
    "evaluation.episodes": 10,
}
"""One update for each step."""
MEDIUM = 1 / 3
"""The medium policy's share of the return of D4RL's expert."""
MOST_STEPS = 300_000
"""SAC ends after so many steps if it is not medium before."""
FURTHER_STEPS = 100_000
"""SAC makes so many more steps from medium to expert; D4RL's makes 1,000,000 or more in all."""
RECORDED: Sets = {
    **SAC,
    "learner.batch_size": BATCH,
    "algorithm.replay.samples_per_insert": BATCH,
    "algorithm.replay.capacity_steps": MOST_STEPS,
    "algorithm.replay.min_size_steps": 5_000,
    "algorithm.replay.checkpoint": True,
    "exploration.kind": "policy",
    "exploration.random_steps": 5_000,
    "evaluation.every_env_steps": 5_000,
    "stop.env_steps": MOST_STEPS,
}
"""SAC from nothing."""
SQUASHED: Sets = {"network.heads_parameters": [{"kind": "policy", "distribution": "squashed_gaussian"}]}
"""IQL with SAC's policy, whose weights SAC takes."""
ONLINE_STEPS = 20_000
ONLINE: Sets = {
    **SAC,
    "learner.batch_size": BATCH // 2,  # and as many recorded ones
    "algorithm.replay.samples_per_insert": BATCH // 2,
    "algorithm.replay.min_size_steps": 1_000,
    "exploration.kind": "policy",
    "exploration.random_steps": 0,
    "data.share": 0.5,
    "evaluation.every_env_steps": 2_000,
    "stop.env_steps": ONLINE_STEPS,
}
"""SAC that begins with the weights of an IQL run and goes on learning from the same data."""
