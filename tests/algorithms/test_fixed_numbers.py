"""Where every algorithm's weights are after some updates: recorded before the steps became one module, or later."""

import keras
import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms.one_of_each_kind import others_in_long

T, N, UPDATES = 4, 6, 4
OBSERVATION = {"observation": ArraySpec((3,), "float32")}
ACTIONS = {
    "choice": {"action": DiscreteSpec(2)},
    "box": {"action": BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0))},
}
LSTM = {"middleware_parameters": {"kind": "lstm", "scheme": [], "number_of_lstm_cells": 4}}
NETWORK = {
    "input_embedders_parameters": {"observation": {"normalize": True}},
    "middleware_parameters": {"scheme": [8], "activation": "tanh"},
    "learning_rate": 0.01,
}
CASES = {
    "impala": ({"name": "impala"}, {}, "choice"),
    "impala in minibatches": ({"name": "impala", "minibatches": 3}, {}, "choice"),
    "impala with memory": ({"name": "impala", "minibatches": 2}, LSTM, "choice"),
    "ppo": ({"name": "ppo", "epochs": 3, "minibatches": 2}, {}, "box"),
    "ppo with a penalty": (
        {"name": "ppo", "epochs": 3, "minibatches": 2, "kl_penalty": {}, "stop_at_kl": 0.05},
        {},
        "choice",
    ),
    "ppo with memory": ({"name": "ppo", "epochs": 2, "minibatches": 2}, LSTM, "choice"),
    "appo": ({"name": "appo"}, {}, "choice"),
    "vpg": ({"name": "vpg"}, {"clip_gradients": 0.1}, "choice"),
    "trpo": (
        {"name": "trpo", "value_epochs": 2, "value_minibatches": 2},
        {"use_separate_networks_per_head": True},
        "box",
    ),
    "dqn": ({"name": "dqn", "target_update_every_updates": 2}, {}, "choice"),
    "apex": ({"name": "apex"}, {"optimizer_type": "RMSProp"}, "choice"),
    "sac": ({"name": "sac"}, {}, "box"),
}
HERE = [case for case in CASES if case != "sac" or keras.backend.backend() == "tensorflow"]
REPLAY = ("dqn", "apex", "sac")
# The mean of |w| over each network's trainable weights, and the last update's loss.
RECORDED = {
    "impala": (0.3023881, 0.7156469),
    "impala in minibatches": (0.2934201, 0.6310461),
    "impala with memory": (0.3190255, 0.5408095),
    "ppo": (0.2844734, 0.8221913),
    "ppo with a penalty": (0.2680929, 0.5587591),
    "ppo with memory": (0.3206273, 0.6079543),
    "appo": (0.3027389, 0.5246677),
    "vpg": (0.3034873, 1.0533241),
    "trpo": (0.2931587, 1.4273504),
    "dqn": (0.3127665, 0.4658011),
    "apex": (0.3160134, 240.2734985),
    "sac": (0.3123789, 0.3070106, 1.8592132),
}


def batch_for(networks, kind, seed, replay):
    rng = np.random.default_rng(seed)
    rows = 1 if replay else T
    actions = rng.integers(0, 2, (rows, N)).astype("int32")
    if kind == "box":
        actions = (np.float32([-2, 0]) + rng.random((rows, N, 2)) * np.float32([4, 1])).astype("float32")
    states = networks["main"].online.recurrent_state
    sampled = {
        "bootstrap_steps": np.ones((rows, N), "int32"),
        "importance_weights": np.linspace(0.2, 1.0, N, dtype="float32"),
    }
    return Batch(
        observations={"observation": rng.standard_normal((rows + 1, N, 3)).astype("float32")},
        actions={"action": actions},
        rewards=rng.standard_normal((rows, N)).astype("float32"),
        terminated=rng.random((rows, N)) < 0.2,
        truncated=np.zeros((rows, N), bool),
        valid=np.ones((rows, N), bool) if replay else rng.random((rows, N)) < 0.9,
        behaviour_log_probabilities=np.full((rows, N), -0.7, "float32"),
        recurrent_state={name: np.zeros((N, *spec.shape), "float32") for name, spec in states.items()},
        **(sampled if replay else {}),
    )


def numbers_of(case):
    algorithm, network, kind = CASES[case]
    config = RunConfig.model_validate(
        {
            "algorithm": algorithm,
            "network": NETWORK | network,
            "actors": {"environments": 3, "unroll_length_steps": T},
            "learner": {"batch_size": 2},
        }
    )
    made = make_algorithm(config)
    networks = made.build(EnvSpec("x", OBSERVATION, ACTIONS[kind]))
    for wrapper in networks.values():  # weights that do not depend on a framework's random numbers
        for copy in wrapper.by_name.values():
            for index, weight in enumerate(copy.model.trainable_variables):
                size = int(np.prod(weight.shape))
                weight.assign(0.5 * np.cos(index + 1.7 * np.arange(size, dtype="float32")).reshape(weight.shape))
    for seed in range(UPDATES):
        told = made.update(networks, batch_for(networks, kind, seed, algorithm["name"] in REPLAY)).metrics
    found = [
        float(np.mean(np.concatenate([np.abs(np.array(w)).ravel() for w in wrapper.online.model.trainable_variables])))
        for wrapper in networks.values()
    ]
    return (*found, told["loss"])


# The noise of sac is that of TensorFlow's generator.
@pytest.mark.parametrize("case", others_in_long(HERE, ["impala in minibatches", "ppo", "trpo", "sac"]))
def test_weights_after_some_updates_are_as_recorded(case):
    assert numbers_of(case) == pytest.approx(RECORDED[case], rel=1e-4)
