"""An environment with one bounded action, and batches of it, for the tests of algorithms for continuous actions."""

import math

import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.networks.framework.backend import Gradients
from distrl.types import ArraySpec, Batch, BoxSpec, EnvSpec
from tests.algorithms.states import assert_same, made_once, restore, states

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


def fresh_build(name, **algorithm):
    """Return a fixture: an algorithm and its networks as they began. Compiling them takes longer than most tests."""
    again = made_once(make)

    @pytest.fixture
    def fresh():
        return again(name, **algorithm)

    return fresh


def assert_goes_on_bit_by_bit(algorithm, networks, batches=transitions):
    """Three updates, then two, and the same two after a restoration; `batches`: seed -> batch."""
    for seed in range(3):
        algorithm.update(networks, batches(seed))
    saved = states(networks)
    expected = [algorithm.update(networks, batches(seed)).metrics for seed in (3, 4)]
    after = states(networks)
    restore(networks, saved)
    assert [algorithm.update(networks, batches(seed)).metrics for seed in (3, 4)] == expected
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


def assert_soft_update(update, rows, entropy, critics, temperature):
    """An update of a soft actor-critic is that of a twin: `rows` has every loss, and the priorities, row by row."""
    losses = {name: rows[name].mean() for name in ("policy", "critic", "temperature")}
    assert_metrics(
        update,
        policy_loss=losses["policy"],
        critic_loss=losses["critic"],
        temperature=temperature,
        entropy=entropy,
        **critics,
        loss=sum(losses.values()),
    )
    np.testing.assert_allclose(update.priorities, rows["priorities"], rtol=1e-4)


def assert_each_loss_moves_its_own_variables_alone(algorithm, batch):
    """The gradient of the sum is, for each part, the gradient of that part's loss, and that loss has no other.

    Returns:
        The metrics, and the gradient of the last variable: of a soft actor-critic the log of the temperature.
    """
    step = algorithm._step._compiled
    objective, parts = step._loss._function, step._parts
    trainable = [variable for part in parts for variable in part.trainable]
    of_part = np.repeat(["policy", "critic", "temperature"][: len(parts)], [len(part.trainable) for part in parts])

    def gradients(function):
        return Gradients(function, trainable, step._loss.others)(batch)[1:]

    told, together = gradients(objective)
    for name in ("policy", "critic"):
        _, apart = gradients(lambda given, name=name: (objective(given)[1][f"{name}_loss"], {}))
        for part, whole, alone in zip(of_part, together, apart, strict=True):
            np.testing.assert_allclose(alone, whole if part == name else 0.0 * whole, rtol=1e-5, atol=1e-7)
            assert alone.any() == (part == name)
    return told, together[-1]
