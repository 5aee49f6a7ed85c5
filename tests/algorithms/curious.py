"""Algorithms with curiosity, and batches for them."""

import numpy as np

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.config.algorithms import ALGORITHMS
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

T, N = 4, 6
VECTOR = {"observation": ArraySpec((3,), "float32")}
CHOICE, REAL = {"action": DiscreteSpec(2)}, {"action": BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0))}
SMALL = {"scheme": [8], "activation": "tanh"}
OF_REAL_NUMBERS = ("sac", "tqc", "crossq", "ddpg", "td3", "naf")
SEPARATE = {"trpo": {"use_separate_networks_per_head": True}}
FURTHER = {
    "ppo": {"epochs": 2, "minibatches": 2},
    "appo": {"epochs": 2, "minibatches": 2},
    "trpo": {"value_epochs": 1, "value_minibatches": 2},
    "crossq": {"critic_layers": [8]},
}
UNROLLED = [name for name, section in ALGORITHMS.items() if section.ships == "unrolls"]


def make(name="ppo", curiosity=None, observations=None, actions=None, network=None, seed=1, **algorithm):
    """Return an algorithm with its networks."""
    real = name in OF_REAL_NUMBERS
    actions = actions or (REAL if real else CHOICE)
    memory = {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 4}} if name == "r2d2" else {}
    config = RunConfig.model_validate(
        {
            "algorithm": {"name": name, "curiosity": curiosity, **FURTHER.get(name, {}), **algorithm},
            "network": {"middleware_parameters": SMALL, **SEPARATE.get(name, {}), **memory, **(network or {})},
            "actors": {"environments": 3, "unroll_length_steps": T},
            "learner": {"batch_size": N if ALGORITHMS[name].model_fields.get("replay") else 2},
            "seed": seed,
        }
    )
    made = make_algorithm(config)
    return made, made.build(EnvSpec("x", observations or VECTOR, actions))


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
    sequences = name in ("r2d2", "acer") or not ALGORITHMS[name].model_fields.get("replay")
    shape = (T if sequences else 1, N)
    actions = actions or (REAL if name in OF_REAL_NUMBERS else CHOICE)
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
        "extras": {"choice_probabilities": np.full((*shape, 2), 0.5, "float32")} if name == "acer" else {},
        **({} if sequences else sampled),
    }
    return Batch(**(given | fields))


def weights_of(networks, *names):
    return {
        f"{name}/{key}": np.array(array)
        for name in (names or networks)
        for group, arrays in networks[name].state_arrays().items()
        for key, array in {f"{group}/{path}": value for path, value in arrays.items()}.items()
    }


def assert_equal(one, two):
    assert one.keys() == two.keys()
    for key, array in one.items():
        assert array.tobytes() == two[key].tobytes(), key


class Recorder:
    """Stands in for the algorithm within: it learns nothing and keeps its batches."""

    def __init__(self, algorithm):
        self._algorithm, self.batches = algorithm, []

    def __getattr__(self, name):
        return getattr(self._algorithm, name)

    def update(self, networks, batch):
        self.batches.append(batch)
        return self._algorithm.update(networks, batch)
