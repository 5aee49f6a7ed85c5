"""Updates of PPO: what several epochs do to a policy, and what stays as it was. Runs on TensorFlow and JAX."""

import math

import numpy as np
import pytest
from keras import ops

from distrl.algorithms import make_algorithm
from distrl.algorithms.epochs import shuffled
from distrl.config import RunConfig
from distrl.networks.framework.backend import Gradients
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms.states import assert_same, states
from tests.traces import traces

T, N = 4, 6
SPEC = EnvSpec("x", {"observation": ArraySpec((3,), "float32")}, {"action": DiscreteSpec(2)})
BOTH = EnvSpec(
    "x",
    {"observation": ArraySpec((3,), "float32")},
    {"gas": BoxSpec((1,), (-1.0,), (1.0,)), "steer": DiscreteSpec(2)},
)
LSTM = {"kind": "lstm", "scheme": [], "number_of_lstm_cells": 4}


def make(spec=SPEC, network=None, name="ppo", **algorithm):
    """An algorithm for batches of 2 unrolls x 3 environments x 4 steps, and its networks."""
    algorithm = {"name": name, "epochs": 3, "minibatches": 2, **algorithm}
    config = RunConfig.model_validate(
        {
            "algorithm": algorithm,
            "network": {
                "middleware_parameters": {"scheme": [8], "activation": "tanh"},
                "learning_rate": 0.01,
                **(network or {}),
            },
            "actors": {"environments": 3, "unroll_length_steps": T},
            "learner": {"batch_size": 2},
        }
    )
    made = make_algorithm(config)
    return made, made.build(spec)


def make_batch(networks, spec=SPEC, seed=0, **fields):
    """Random observations; action 0 pays 1. The policy acted that the networks hold, or nearly so."""
    rng = np.random.default_rng(seed)
    actions = {"action": rng.integers(0, 2, (T, N)).astype("int32")}
    if "gas" in spec.actions:
        actions = {"gas": rng.standard_normal((T, N, 1)).astype("float32"), "steer": actions["action"]}
    states = networks["main"].online.recurrent_state
    given = {
        "observations": {"observation": rng.standard_normal((T + 1, N, 3)).astype("float32")},
        "actions": actions,
        "rewards": (actions.get("action", actions.get("steer")) == 0).astype("float32"),
        "terminated": np.zeros((T, N), bool),
        "truncated": np.zeros((T, N), bool),
        "valid": rng.random((T, N)) < 0.9,
        "behaviour_log_probabilities": np.full((T, N), math.log(0.5), "float32"),
        "recurrent_state": {name: np.zeros((N, *state.shape), "float32") for name, state in states.items()},
    }
    return Batch(**(given | fields))


def probability(networks, batch):
    """Mean probability of action 0 at the batch's observations."""
    rows = {"observation": batch.observations["observation"][:-1].reshape(-1, 3)}
    logits = networks["main"].online.predict(rows, ["policy/action"])
    return float(np.mean(1.0 / (1.0 + np.exp(logits[:, 1] - logits[:, 0]))))


def test_one_update_is_all_epochs_and_stays_near_the_policy_that_acted():
    algorithm, networks = make(network={"learning_rate": 0.05}, epochs=50, discount=0.0)
    batch = make_batch(networks, valid=np.ones((T, N), bool))
    before = probability(networks, batch)
    metrics = algorithm.update(networks, batch).metrics
    assert (metrics["optimizer_steps"], metrics["finite"]) == (100, True)
    assert int(ops.convert_to_numpy(networks["main"].optimizer.iterations)) == 100
    # Ratios earn nothing beyond 1.2, so the probability stops near .5 x 1.2; unclipped it would be near 1.
    assert before == pytest.approx(0.5, abs=0.02)
    assert 0.55 < probability(networks, batch) < 0.75
    assert 0.2 < metrics["clip_fraction"] <= 1.0
    # The next update starts anew from where this one ended.
    after = math.log(probability(networks, batch))
    algorithm.update(networks, batch._replace(behaviour_log_probabilities=np.full((T, N), after, "float32")))
    assert traces(algorithm._step) == 1


def test_epochs_are_steps_by_hand():
    """SGD on minibatches in the order that `shuffled` gives, with the estimates of before, step by step."""
    settings = {"network": {"optimizer_type": "SGD", "learning_rate": 0.1}, "entropy_weight": 0.1}
    algorithm, networks = make(**settings)
    other, others = make(**settings)
    batch = make_batch(networks)
    algorithm.update(networks, batch)
    step = other._step
    experience = step._arrange(batch, step._estimates(batch))
    main = others["main"]
    trainable = main.online.model.trainable_variables
    gradients = Gradients(step._objective, trainable, main.online.state_variables)
    for items in shuffled(T * N, epochs=3, minibatches=2, seed=1, step=0):
        part = experience._replace(
            observations={"observation": experience.observations["observation"][:, items]},
            actions={"action": experience.actions["action"][:, items]},
            valid=experience.valid[:, items],
            estimates={name: rows[:, items] for name, rows in experience.estimates.items()},
        )
        for variable, gradient in zip(trainable, gradients(part)[2], strict=True):
            variable.assign(ops.convert_to_numpy(variable) - 0.1 * gradient)
    for one, two in zip(networks["main"].online.get_weights(), main.online.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def _kl_coefficient(networks):
    return float(np.asarray(networks["main"].online.number("policy/kl_coefficient")))


@pytest.mark.row("D165")
def test_the_coefficient_follows_the_divergence_after_the_update():
    """1.5 times as large beyond a target of next to nothing, divided by it below a huge one, the same at its target."""
    algorithm, networks = make(clip_range=None, kl_penalty={"target": 1e-9})
    start, batch, step = networks["main"].state_arrays(), make_batch(networks), algorithm._step
    far = algorithm.update(networks, batch).metrics["kl"]
    for target, factor in ((1e-9, 1.5), (1e9, 1 / 1.5), (far, 1.0)):
        networks["main"].restore(start)
        penalty = step._parameters.kl_penalty.model_copy(update={"target": target})
        step._parameters = step._parameters.model_copy(update={"kl_penalty": penalty})
        metrics = algorithm.update(networks, batch).metrics
        assert (metrics["kl_coefficient"], metrics["kl"]) == (1.0, far)
        assert _kl_coefficient(networks) == pytest.approx(factor, rel=1e-6)
        assert algorithm.update(networks, batch).metrics["kl_coefficient"] == pytest.approx(factor, rel=1e-6)
    assert traces(step) == 1


@pytest.mark.parametrize(("target", "bound"), [(1e-9, 2e4), pytest.param(1e9, 2e-4, marks=pytest.mark.long)])
def test_the_coefficient_stays_within_four_decades_of_the_first_one(target, bound):
    """1.5^23 > 10^4: after 30 updates in one direction it is at its bound, and a finite penalty still."""
    algorithm, networks = make(clip_range=None, kl_penalty={"initial_coefficient": 2.0, "target": target})
    batch, told = make_batch(networks), []
    for _ in range(30):
        metrics = algorithm.update(networks, batch).metrics
        assert metrics["finite"]
        told.append(metrics["kl_coefficient"])
    assert told[:2] == pytest.approx([2.0, 3.0 if bound > 1.0 else 2.0 / 1.5])
    assert told[-1] == pytest.approx(bound, rel=1e-6)


def test_an_update_ends_where_the_policy_has_gone_too_far():
    algorithm, networks = make(stop_at_kl=0.002, epochs=20, network={"learning_rate": 0.03})
    metrics = algorithm.update(networks, make_batch(networks)).metrics
    steps = metrics["optimizer_steps"]
    assert 1 <= steps < 40
    assert int(ops.convert_to_numpy(networks["main"].optimizer.iterations)) == steps


def test_an_update_that_is_not_finite_changes_nothing():
    """The bad reward is in one minibatch of two, so that others were fine."""
    normalized = {"input_embedders_parameters": {"observation": {"normalize": True}}}
    algorithm, networks = make(kl_penalty={}, normalize_advantages=None, discount=0.0, network=normalized)
    algorithm.update(networks, make_batch(networks))
    before, batch = states(networks), make_batch(networks, valid=np.ones((T, N), bool))
    for bad in (np.nan, np.inf):
        batch.rewards[0, 0] = bad
        metrics = algorithm.update(networks, batch).metrics
        assert metrics["finite"] is False
        assert_same(before, states(networks))
    assert algorithm.update(networks, make_batch(networks)).metrics["finite"] is True


@pytest.mark.parametrize(
    "middleware", [pytest.param({"scheme": [4]}, id="rows", marks=pytest.mark.long), pytest.param(LSTM, id="sequences")]
)
def test_what_was_ignored_does_not_count(middleware):
    """Nothing in an invalid row's action or log-probability changes an update."""
    algorithm, networks = make(BOTH, {"middleware_parameters": middleware})
    start, told = networks["main"].state_arrays(), []
    for action, log_probability in ((0, -0.7), (1, -80.0)):
        networks["main"].restore(start)
        batch = make_batch(networks, BOTH)
        batch.actions["steer"][~batch.valid] = action
        batch.behaviour_log_probabilities[~batch.valid] = log_probability
        algorithm.update(networks, batch)
        told.append(states(networks))
    assert_same(*told)


def test_old_outputs_of_memory_are_those_of_whole_sequences():
    """Before the first step every ratio is 1 and no divergence has come about, whichever sequences are taken."""
    algorithm, networks = make(network={"middleware_parameters": LSTM, "learning_rate": 1e-12})
    batch = make_batch(networks)
    states = {name: np.full_like(rows, 0.5) for name, rows in batch.recurrent_state.items()}
    batch = batch._replace(recurrent_state=states)
    made = algorithm._step._estimates(batch)
    acted = algorithm.distribution.log_probability({"policy/action": made["old/policy/action"]}, batch.actions)
    batch = batch._replace(behaviour_log_probabilities=np.asarray(ops.convert_to_numpy(acted)))
    metrics = algorithm.update(networks, batch).metrics
    assert metrics["mean_ratio"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)


def test_statistics_of_observations_and_rewards_move_after_the_update():
    """Old outputs and all epochs see the normalisation that the actors saw."""
    network = {"input_embedders_parameters": {"observation": {"normalize": True}}}
    algorithm, networks = make(network=network, reward_normalization={})
    moments = {"count": np.float64([8.0]), "mean": np.float64([0.0]), "squares": np.float64([32.0])}
    batch = make_batch(networks, reward_moments=moments)
    assert algorithm.update(networks, batch).metrics["reward_deviation"] == 1.0
    assert algorithm.update(networks, batch).metrics["reward_deviation"] == pytest.approx(2.0)
    assert networks["main"].statistics.moments["observation"].count == 2.0 * batch.valid.sum()


def test_a_restored_update_goes_on_bit_by_bit():
    """The coefficient and the place in the sequence of orders are part of the network's state."""
    algorithm, networks = make(
        kl_penalty={"target": 1e-9}, network={"middleware_parameters": {"scheme": [8], "dropout_rate": 0.3}}
    )
    algorithm.update(networks, make_batch(networks, seed=1))
    saved, after = networks["main"].state_arrays(), []
    for _ in range(2):
        networks["main"].restore(saved)
        algorithm.update(networks, make_batch(networks, seed=2))
        after.append(states(networks))
        assert _kl_coefficient(networks) == 2.25
        algorithm.update(networks, make_batch(networks, seed=3))  # something else, before it is repeated
    assert_same(*after)


def test_one_epoch_of_one_minibatch_is_a_plain_step():
    """APPO's default: the same gradient step whether estimates are made within it or before it."""
    plain = make(name="appo", epochs=1, minibatches=1, network={"optimizer_type": "SGD"})
    twice = make(name="appo", epochs=1, minibatches=2, network={"optimizer_type": "SGD"})
    batch = make_batch(plain[1], valid=np.ones((T, N), bool))
    start = plain[1]["main"].online.get_weights()
    metrics = plain[0].update(plain[1], batch).metrics
    assert "optimizer_steps" not in metrics
    # The plain step's gradient, from the estimates of the other path:
    step, main = twice[0]._step, twice[1]["main"]
    trainable = main.online.model.trainable_variables
    gradient_of = Gradients(step._objective, trainable, main.online.state_variables)
    gradients = gradient_of(step._arrange(batch, step._estimates(batch)))[2]
    trained = dict(zip([v.path for v in trainable], gradients, strict=True))
    for variable, weight, before in zip(
        main.online.model.weights, plain[1]["main"].online.get_weights(), start, strict=True
    ):
        np.testing.assert_allclose(weight, before - 0.01 * trained[variable.path], rtol=1e-4, atol=1e-6)
