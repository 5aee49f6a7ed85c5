"""Behavioural cloning and MARWIL against slow NumPy twins, with every kind of action. Runs on TensorFlow and JAX."""

import math

import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.types import (
    ArraySpec,
    Batch,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
)
from tests.algorithms.curious import actions_of
from tests.algorithms.recorded import with_data
from tests.algorithms.states import assert_same, restore, states
from tests.traces import traces

T, N, GAMMA = 5, 4, 0.9
OBSERVATIONS = {"observation": ArraySpec((3,), "float32")}
ALL = {
    "one": DiscreteSpec(3),
    "some": MultiDiscreteSpec((2, 3), (0, 0)),
    "switches": MultiBinarySpec((2,)),
    "real": BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0)),
}
CHOICE = {"action": DiscreteSpec(3)}
LSTM = {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 4}}
SEQUENCES = {"item": {"kind": "sequence"}}


def make(name, actions=CHOICE, network=None, **algorithm):
    tree = {
        "algorithm": {"name": name, "discount": GAMMA, "replay": SEQUENCES, **algorithm},
        "network": {"middleware_parameters": {"scheme": [8], "activation": "tanh"}, "learning_rate": 0.01}
        | (network or {}),
        "actors": {"unroll_length_steps": T},
        "seed": 3,
    }
    algorithm = make_algorithm(RunConfig.model_validate(with_data(tree)))
    networks = algorithm.build(EnvSpec("x", OBSERVATIONS, actions))
    rng = np.random.default_rng(5)
    for variable in networks["main"].online.model.trainable_variables:  # a policy that is not nearly uniform
        variable.assign(np.array(variable) + rng.normal(0.0, 0.4, variable.shape).astype("float32"))
    return algorithm, networks


def sequences(seed=0, actions=CHOICE, states=None, **fields):
    rng = np.random.default_rng(seed)
    given = {
        "observations": {"observation": rng.standard_normal((T + 1, N, 3)).astype("float32")},
        "actions": {name: actions_of(action, (T, N), rng) for name, action in actions.items()},
        "rewards": rng.standard_normal((T, N)).astype("float32"),
        "terminated": rng.random((T, N)) < 0.2,
        "truncated": np.zeros((T, N), bool),
        "valid": rng.random((T, N)) < 0.8,
        "behaviour_log_probabilities": np.zeros((T, N), "float32"),
        "recurrent_state": {name: np.zeros((N, *spec.shape), "float32") for name, spec in (states or {}).items()},
    }
    return Batch(**(given | fields))


def log_softmax(logits):
    return [float(logit) - math.log(sum(math.exp(float(each)) for each in logits)) for logit in logits]


def log_probability(outputs, actions, at):
    """The log-probability of all actions of one row; the policy's outputs and the actions by name."""
    found = 0.0
    for name, output in outputs.items():
        numbers, action = output[at], actions[name][at]
        if name in ("one", "action"):
            found += log_softmax(numbers)[action]
        elif name == "some":
            found += log_softmax(numbers[:2])[action[0]] + log_softmax(numbers[2:])[action[1]]
        elif name == "switches":
            found += sum(-math.log1p(math.exp(-x if on else x)) for x, on in zip(numbers, action, strict=True))
        else:
            for i in range(2):
                mean, log_sigma = float(numbers[i]), float(numbers[2 + i])
                noise = (float(action[i]) - mean) / math.exp(log_sigma)
                found += -0.5 * noise**2 - log_sigma - 0.5 * math.log(2.0 * math.pi)
    return found


def outputs_of(networks, batch, actions):
    """Outputs of every row before a step, and V of all rows if there is a head."""
    online = networks["main"].online
    rows = batch.observations["observation"].reshape(-1, 3)
    policy = {
        name: online.predict({"observation": rows}, [f"policy/{name}"]).reshape(T + 1, N, -1)[:-1] for name in actions
    }
    return policy, online.predict({"observation": rows}, ["value"]).reshape(
        T + 1, N
    ) if "value" in online.outputs else 0


@pytest.mark.row("D171")
@pytest.mark.parametrize("actions", [CHOICE, ALL], ids=["a choice", "all kinds at once"])
def test_the_loss_of_cloning_is_that_of_a_slow_twin(actions):
    algorithm, networks = make("bc", actions)
    batch = sequences(actions=actions)
    policy, _ = outputs_of(networks, batch, actions)
    rows = [log_probability(policy, batch.actions, at) for at in zip(*np.nonzero(batch.valid), strict=True)]
    told = algorithm.update(networks, batch).metrics
    assert told["policy_loss"] == pytest.approx(-sum(rows) / len(rows), rel=1e-5)
    assert told["loss"] == pytest.approx(told["policy_loss"], rel=1e-6)


@pytest.mark.row("D171")
def test_cloning_with_memory_sees_sequences_in_order():
    """The recorded choice is the sequence's first observation, which only memory knows later."""
    algorithm, networks = make("bc", {"action": DiscreteSpec(2)}, LSTM | {"learning_rate": 0.03})

    def batch(seed):
        given = sequences(seed, states=networks["main"].online.recurrent_state, valid=np.ones((T, N), bool))
        first = np.random.default_rng(seed).integers(0, 2, N)
        given.observations["observation"][:] = 0.0
        given.observations["observation"][0, :, 0] = 2.0 * first - 1.0
        return given._replace(actions={"action": np.broadcast_to(first, (T, N)).astype("int32")})

    for seed in range(100):
        told = algorithm.update(networks, batch(seed)).metrics
    assert told["policy_loss"] < 0.2  # without memory no less than 4/5 log 2
    assert traces(algorithm._step) == 1


def test_burn_in_is_no_part_of_the_loss():
    network = {"middleware_parameters": {"kind": "gru", "number_of_gru_cells": 4}}
    algorithm, networks = make("bc", network=network, replay={"item": {"kind": "sequence", "burn_in_steps": 2}})
    batch = sequences(states=networks["main"].online.recurrent_state)
    before = states(networks)
    told = algorithm.update(networks, batch).metrics
    restore(networks, before)
    actions = batch.actions["action"].copy()
    actions[:2] = (actions[:2] + 1) % 3
    assert algorithm.update(networks, batch._replace(actions={"action": actions})).metrics == told


def marwil_twin(networks, batch, actions, square, rate, beta, largest):
    """Every number of one update, step by step from the end."""
    policy, values = outputs_of(networks, batch, actions)
    returns, valid = np.zeros((T, N)), [*zip(*np.nonzero(batch.valid), strict=True)]
    for n in range(N):
        following = float(values[T, n])
        for t in reversed(range(T)):
            if batch.valid[t, n]:
                following = batch.rewards[t, n] + (0.0 if batch.terminated[t, n] else GAMMA * following)
            else:  # the next episode: the value of the last observation of this one
                following = float(values[t, n])
            returns[t, n] = following
    advantages = {at: returns[at] - float(values[at]) for at in valid}
    square += rate * (np.mean([a**2 for a in advantages.values()]) - square)
    weights = {at: min(math.exp(beta * a / math.sqrt(square)), largest) for at, a in advantages.items()}
    losses = [-weights[at] * log_probability(policy, batch.actions, at) for at in valid]
    return {
        "policy_loss": np.mean(losses),
        "value_loss": np.mean([0.5 * a**2 for a in advantages.values()]),
        "advantage_norm": math.sqrt(square),
        "mean_weight": np.mean([*weights.values()]),
        "mean_advantage": np.mean([*advantages.values()]),
        "mean_value": np.mean([float(values[at]) for at in valid]),
    }


@pytest.mark.parametrize("actions", [CHOICE, ALL], ids=["a choice", "all kinds at once"])
def test_marwil_is_that_of_a_slow_twin(actions):
    """Bootstraps at the sequence's end and in front of rows that are not valid, and not after a termination."""
    settings = {"beta": 2.0, "max_weight": 3.0, "advantage_norm_rate": 0.25, "initial_advantage_norm": 2.0}
    algorithm, networks = make("marwil", actions, value_loss_weight=0.5, **settings)
    square = 4.0
    for seed in range(2):
        batch = sequences(seed, actions=actions)
        expected = marwil_twin(networks, batch, actions, square, 0.25, 2.0, 3.0)
        told = algorithm.update(networks, batch).metrics
        assert {name: told[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert told["loss"] == pytest.approx(expected["policy_loss"] + 0.5 * expected["value_loss"], rel=1e-4)
        square = expected["advantage_norm"] ** 2


def test_with_beta_0_marwil_clones():
    algorithm, networks = make("marwil", beta=0.0)
    batch = sequences()
    policy, _ = outputs_of(networks, batch, CHOICE)
    rows = [log_probability(policy, batch.actions, at) for at in zip(*np.nonzero(batch.valid), strict=True)]
    told = algorithm.update(networks, batch).metrics
    assert told["policy_loss"] == pytest.approx(-np.mean(rows), rel=1e-5)
    assert told["mean_weight"] == 1.0


def test_a_restored_marwil_goes_on_bit_by_bit():
    """The norm of advantages among the rest."""
    algorithm, networks = make("marwil", advantage_norm_rate=0.5)
    for seed in range(2):
        algorithm.update(networks, sequences(seed))
    saved = states(networks)
    assert "advantages" in saved["main"]
    expected, after = algorithm.update(networks, sequences(2)).metrics, states(networks)
    other, fresh = make("marwil", advantage_norm_rate=0.5)
    restore(fresh, saved)
    assert other.update(fresh, sequences(2)).metrics == expected
    assert_same(states(fresh), after)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bc", {"replay": {"sampler": {"kind": "prioritized"}}}, "bc has no errors that could set priorities"),
        ("bc", {"replay": {"item": {"n_step": 3}}}, "n_step: 3; bc learns from actions and not from rewards"),
        ("bc", {"curiosity": {"kind": "rnd"}}, "algorithm.curiosity: bc learns from actions and not from rewards"),
        ("marwil", {"replay": {"item": {"kind": "sequence", "n_step": 3}}}, "marwil's returns use all steps"),
    ],
)
def test_settings_without_effect_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.model_validate(with_data({"algorithm": {"name": name, **settings}}))
