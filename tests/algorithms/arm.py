"""An environment with one bounded action, and batches of it, for the tests of algorithms for continuous actions."""

import math

import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.types import ArraySpec, Batch, BoxSpec, EnvSpec

N, GAMMA, SCALE = 6, 0.9, 0.5
LOW, HIGH = np.float32([-2.0, 0.0]), np.float32([2.0, 1.0])
OBSERVATIONS = {"observation": ArraySpec((3,), "float32")}
SPEC = EnvSpec("Arm-v0", OBSERVATIONS, {"action": BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0))})


def config(name, network=None, **algorithm):
    given = {"name": name, "discount": GAMMA, "reward_scale": SCALE}
    layers = {
        "input_embedders_parameters": {"observation": {"normalize": True}},
        "middleware_parameters": {"scheme": [8], "activation": "tanh"},
        "learning_rate": 0.01,
    }
    return RunConfig.model_validate({"seed": 3, "algorithm": given | algorithm, "network": layers | (network or {})})


def make(name, network=None, spec=SPEC, **algorithm):
    """An algorithm and its networks."""
    made = make_algorithm(config(name, network, **algorithm))
    return made, made.build(spec)


def transitions(seed=0, size=N, **fields):
    """Terminated and truncated ones, over one and two steps, with importance weights."""
    rng = np.random.default_rng(seed)
    given = {
        "observations": {"observation": rng.standard_normal((2, size, 3)).astype("float32")},
        "actions": {"action": (LOW + rng.random((1, size, 2)) * (HIGH - LOW)).astype("float32")},
        "rewards": rng.standard_normal((1, size)).astype("float32"),
        "terminated": np.arange(size)[None] % 3 == 0,
        "truncated": np.arange(size)[None] % 3 == 1,
        "valid": np.ones((1, size), bool),
        "behaviour_log_probabilities": np.zeros((1, size), "float32"),
        "recurrent_state": {},
        "bootstrap_steps": (1 + np.arange(size, dtype="int32") % 2)[None],
        "importance_weights": np.linspace(0.2, 1.0, size, dtype="float32"),
    }
    return Batch(**(given | fields))


def drawn(main, observation, noise):
    """A squashed Gaussian's actions scaled to [-1, 1] and their log-densities, as SAC's appendix C has them."""
    mean, log_sigma = np.split(main.online.predict({"observation": observation}), 2, axis=-1)
    u = mean + np.exp(log_sigma) * noise
    gaussian = -0.5 * noise**2 - log_sigma - 0.5 * math.log(2.0 * math.pi)
    return np.tanh(u), (gaussian - np.log(1.0 - np.tanh(u) ** 2)).sum(axis=-1)


def scaled(actions):
    return (actions - (HIGH + LOW) / 2) / ((HIGH - LOW) / 2)


def targets(batch, following):
    """Rewards and what follows, row by row: numbers [N], or rows of atoms [N][K]."""
    rows = []
    for i in range(N):
        y = SCALE * batch.rewards[0, i] + 0.0 * np.asarray(following[i])
        if not batch.terminated[0, i]:
            y = y + GAMMA ** batch.bootstrap_steps[0, i] * np.asarray(following[i])
        rows.append(y)
    return np.array(rows)


def trained(copy):
    return [np.array(variable) for variable in copy.model.trainable_variables]


def states(networks):
    return {name: network.state_arrays() for name, network in networks.items()}


def restore(networks, saved):
    for name, network in networks.items():
        network.restore(saved[name])


def assert_same(one, other):
    """Two `states` are equal, bit by bit."""
    assert one.keys() == other.keys()
    for name, groups in one.items():
        assert groups.keys() == other[name].keys()
        for group, arrays in groups.items():
            for path, array in arrays.items():
                np.testing.assert_array_equal(array, other[name][group][path], err_msg=f"{group}: {path}")


def assert_goes_on_bit_by_bit(algorithm, networks):
    """Three updates, then two, and the same two after a restoration."""
    for seed in range(3):
        algorithm.update(networks, transitions(seed))
    saved = states(networks)
    expected = [algorithm.update(networks, transitions(seed)).metrics for seed in (3, 4)]
    after = states(networks)
    restore(networks, saved)
    assert [algorithm.update(networks, transitions(seed)).metrics for seed in (3, 4)] == expected
    assert_same(states(networks), after)


def assert_metrics(update, **expected):
    """All metrics of an update, beside the norm of its gradient."""
    norm = update.metrics["gradient_norm"]
    whole = {"gradient_norm": norm, "learning_rate": 0.01, "finite": True} | expected
    assert update.metrics == pytest.approx(whole, rel=1e-4, abs=1e-6)


def of_critics(y, taken):
    """Metrics of several critics' values of the actions taken, one critic after the other.

    Args:
        y: Targets [N], or [N, samples].
        taken: [critics, N], or [critics, N, atoms].
    """
    y, taken = np.asarray(y), np.asarray(taken)
    means = [row.mean() for row in y]
    found = {"mean_value": taken[0].mean(), "mean_target": np.mean(means)}
    for number, rows in enumerate(taken, 1):
        found[f"mean_q_{number}"] = rows.mean()
        found[f"mean_td_error_{number}"] = np.mean([abs(means[i] - rows[i].mean()) for i in range(len(means))])
    found["mean_td_error"] = np.mean([found[f"mean_td_error_{number}"] for number in range(1, len(taken) + 1)])
    return found
