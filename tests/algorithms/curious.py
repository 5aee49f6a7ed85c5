"""Algorithms with curiosity, and batches for them."""

from functools import cache

import numpy as np

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.config.algorithms import ALGORITHMS
from distrl.errors import ConfigError
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec
from tests.algorithms.recorded import with_data

T, N = 4, 8
VECTOR = {"observation": ArraySpec((3,), "float32")}
CHOICE, REAL = {"action": DiscreteSpec(2)}, {"action": BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0))}
SMALL = {"scheme": [8], "activation": "tanh"}
NETWORKS = (
    {},
    {"use_separate_networks_per_head": True},
    {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 4}},
)
"""An algorithm gets the first that its section does not refuse."""
QUICK = {
    "ppo": {"epochs": 2, "minibatches": 2},
    "appo": {"epochs": 2, "minibatches": 2},
    "trpo": {"value_epochs": 1, "value_minibatches": 2},
    "crossq": {"critic_layers": [8]},
}
"""Algorithm -> settings in place of its defaults, which suit larger batches and machines."""


def configured(name, network=None, curiosity=None, seed=1, **algorithm):
    section = ALGORITHMS[name]()
    sized = {"batch_size": N if section.replay_parameters else 2}
    return RunConfig.model_validate(
        with_data(
            {
                "algorithm": {"name": name, "curiosity": curiosity, **QUICK.get(name, {}), **algorithm},
                "network": {"middleware_parameters": SMALL, **(network or {})},
                "actors": {"environments": 4, "unroll_length_steps": T},
                "learner": {} if section.rounds else sized,
                "seed": seed,
            }
        )
    )


@cache
def network_of(name):
    """Return the first of NETWORKS that the algorithm takes."""
    refused = ""
    for network in NETWORKS:
        try:
            configured(name, network)
        except ValueError as error:
            refused = str(error)
        else:
            return network
    raise AssertionError(f"{name} takes none of these networks: {refused}")


@cache
def actions_taken(name):
    """Return CHOICE, or REAL if the algorithm refuses choices."""
    try:
        ALGORITHMS[name]().check_actions(EnvSpec("x", VECTOR, CHOICE))
    except ConfigError:
        return REAL
    return CHOICE


def takes_curiosity(name):
    try:
        configured(name, network_of(name), {"kind": "rnd"})
    except ValueError as error:
        if "algorithm.curiosity" not in str(error):
            raise
        return False
    return True


CURIOUS = [name for name in ALGORITHMS if takes_curiosity(name)]


def make(name="ppo", curiosity=None, observations=None, actions=None, network=None, seed=1, **algorithm):
    """Return an algorithm with its networks."""
    made = make_algorithm(configured(name, network_of(name) | (network or {}), curiosity, seed, **algorithm))
    return made, made.build(EnvSpec("x", observations or VECTOR, actions or actions_taken(name)))


def arrays_of(spec, shape, rng):
    if spec.dtype == "uint8":
        return rng.integers(0, 256, (*shape, *spec.shape)).astype("uint8")
    if spec.vocabulary is not None:
        return rng.integers(0, spec.vocabulary, (*shape, *spec.shape)).astype(spec.dtype)
    return rng.standard_normal((*shape, *spec.shape)).astype(spec.dtype)


def actions_of(action, shape, rng):
    if isinstance(action, BoxSpec):
        low, high = np.float32(action.low), np.float32(action.high)
        return (low + rng.random((*shape, action.n)).astype("float32") * (high - low)).astype("float32")
    if isinstance(action, MultiDiscreteSpec):
        return np.stack([rng.integers(0, n, shape) for n in action.choices], -1).astype("int32")
    if isinstance(action, MultiBinarySpec):
        return rng.integers(0, 2, (*shape, action.n)).astype("int32")
    return rng.integers(0, action.n, shape).astype("int32")


def make_batch(networks, name="ppo", seed=0, observations=None, actions=None, **fields):
    rng = np.random.default_rng(seed)
    section = ALGORITHMS[name]()
    sequences = section.replay_parameters is None or section.replay_parameters.item.kind == "sequence"
    shape = (T if sequences else 1, N)
    actions = actions or actions_taken(name)
    probabilities = {"choice_probabilities": np.full((*shape, 2), 0.5, "float32")}
    sampled = {"bootstrap_steps": np.ones(shape, "int32"), "importance_weights": np.ones(N, "float32")}
    states = networks["main"].online.recurrent_state
    given = {
        "observations": {
            key: arrays_of(spec, (shape[0] + 1, N), rng) for key, spec in (observations or VECTOR).items()
        },
        "actions": {key: actions_of(action, shape, rng) for key, action in actions.items()},
        "rewards": rng.standard_normal(shape).astype("float32"),
        "terminated": rng.random(shape) < 0.2,
        "truncated": np.zeros(shape, bool),
        "valid": rng.random(shape) < 0.8 if sequences else np.ones(shape, bool),
        "behaviour_log_probabilities": np.full(shape, -0.7, "float32"),
        "recurrent_state": {key: np.zeros((N, *spec.shape), "float32") for key, spec in states.items()},
        "extras": {name: array for name, array in probabilities.items() if name in section.unroll_extras},
        **({} if sequences else sampled),
    }
    return Batch(**(given | fields))


class Recorder:
    """Stands in for the algorithm within: it learns nothing and keeps its batches."""

    def __init__(self, algorithm):
        self._algorithm, self.batches = algorithm, []

    def __getattr__(self, name):
        return getattr(self._algorithm, name)

    def update(self, networks, batch):
        self.batches.append(batch)
        return self._algorithm.update(networks, batch)
