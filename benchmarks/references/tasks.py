"""Environments' specs, batches and algorithms of all comparisons."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from distrl.algorithms import make_algorithm
from distrl.algorithms.algorithm import Algorithm, Networks
from distrl.config import RunConfig
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec

INPUTS, CHOICES, NUMBERS, ROWS = 3, 4, 2, 32
"""Sizes of observations, of a discrete and of a continuous action, and of a batch of transitions."""
SEED, GAMMA, RATE, EPSILON, HIDDEN = 3, 0.97, 1e-3, 1e-5, 16
_OBSERVATIONS = {"observation": ArraySpec((INPUTS,), "float32")}
DISCRETE = EnvSpec("discrete", _OBSERVATIONS, {"action": DiscreteSpec(CHOICES)})
BOX = EnvSpec("box", _OBSERVATIONS, {"action": BoxSpec((NUMBERS,), (-1.0,) * NUMBERS, (1.0,) * NUMBERS)})
CRITIC_ROWS = [*range(NUMBERS, NUMBERS + INPUTS), *range(NUMBERS)]
"""distrl's critics take the action before the observation, the others the observation first."""


def make(
    name: str,
    spec: EnvSpec,
    network: dict[str, Any] | None = None,
    *,
    activation: str = "tanh",
    beta2: float = 0.999,
    **sections: Any,
) -> tuple[Algorithm, Networks]:
    """Return an algorithm with one hidden layer, Adam and a discount of `GAMMA`, and its networks.

    Args:
        network: Further settings of the section `network`.
        sections: The section `algorithm`, and with `run` whole other sections.
    """
    run = sections.pop("run", {})
    given = {
        "middleware_parameters": {"scheme": [HIDDEN], "activation": activation},
        "learning_rate": RATE,
        "optimizer_epsilon": EPSILON,
        "adam_optimizer_beta2": beta2,
    }
    tree = {
        "seed": SEED,
        "algorithm": {"name": name, "discount": GAMMA, **sections},
        "network": given | (network or {}),
        **run,
    }
    made = make_algorithm(RunConfig.model_validate(tree))
    return made, made.build(spec)


def transitions(seed: int, spec: EnvSpec, rows: int = ROWS) -> Batch:
    """Return random transitions of one step; some of them end an episode, by termination or by truncation."""
    random = np.random.default_rng(seed)
    if spec is DISCRETE:
        actions = random.integers(0, CHOICES, (1, rows)).astype(np.int32)
    else:
        actions = random.uniform(-0.95, 0.95, (1, rows, NUMBERS)).astype(np.float32)
    terminated = random.random((1, rows)) < 0.2
    return Batch(
        observations={"observation": random.standard_normal((2, rows, INPUTS)).astype(np.float32)},
        actions={"action": actions},
        rewards=random.standard_normal((1, rows)).astype(np.float32),
        terminated=terminated,
        truncated=~terminated & (random.random((1, rows)) < 0.2),
        valid=np.ones((1, rows), bool),
        behaviour_log_probabilities=np.zeros((1, rows), np.float32),
        recurrent_state={},
        bootstrap_steps=np.ones((1, rows), np.int32),
        importance_weights=np.ones(rows, np.float32),
    )


def noise(rows: int = ROWS) -> Iterator[np.ndarray]:
    """Return the normal variables [rows, NUMBERS] that an algorithm with `SEED` draws, in its order."""
    seeds = keras.random.SeedGenerator(SEED)
    while True:
        yield np.array(keras.random.normal((rows, NUMBERS), seed=seeds))
