"""AWAC and IQL against slow NumPy twins. Run on TensorFlow and JAX."""

import math

import keras
import numpy as np
import pytest

from tests.algorithms import arm
from tests.algorithms.arm import HIGH, LOW, N, transitions

STILL = 1e-8
"""A rate at which the target critics stay as they are."""


def make(name, **algorithm):
    """An algorithm and its networks, with other target critics, and a policy that does not only draw around 0."""
    algorithm, networks = arm.make(name, target_update_rate=STILL, **algorithm)
    rng = np.random.default_rng(5)
    for copy in (networks["main"].online, networks["critic"].target):
        for variable in copy.model.trainable_variables:
            variable.assign(np.array(variable) + rng.normal(0.0, 0.4, variable.shape).astype("float32"))
    return algorithm, networks


def values(copy, observation, scaled):
    return np.stack(copy.predict({"observation": observation, "action": np.asarray(scaled, "float32")}))


def gaussian(networks, observation):
    """Mean and deviation; IQL's mean is tanh's, within the bounds, and its deviation in halves of their width."""
    mean, log_sigma = np.split(networks["main"].online.predict({"observation": observation}), 2, axis=-1)
    if "value" not in networks:
        return mean, np.exp(log_sigma)
    half = (HIGH - LOW) / 2.0
    return LOW + half * (1.0 + np.tanh(mean)), half * np.exp(np.clip(log_sigma, -5.0, 2.0))


def log_densities(networks, batch):
    mean, sigma = gaussian(networks, batch.observations["observation"][0])
    noise = (batch.actions["action"][0] - mean) / sigma
    return (-0.5 * noise**2 - np.log(sigma) - 0.5 * math.log(2.0 * math.pi)).sum(axis=-1)


def taken(batch):
    return arm.scaled(batch.actions["action"][0])


def test_awac_is_that_of_a_slow_twin():
    """Drawn actions are clipped to the bounds before critics see them."""
    beta, draws = 2.0, keras.random.SeedGenerator(3)
    algorithm, networks = make("awac", beta=beta)
    batch, critic = transitions(), networks["critic"]
    before, after = batch.observations["observation"]
    noises = [np.asarray(keras.random.normal((N, 2), seed=draws)) for _ in range(2)]
    own = [
        np.clip(arm.scaled(mean + sigma * noise), -1.0, 1.0)
        for (mean, sigma), noise in zip((gaussian(networks, rows) for rows in (before, after)), noises, strict=True)
    ]
    assert any((np.abs(rows) == 1.0).any() for rows in own)
    of_taken = values(critic.online, before, taken(batch))
    advantages = of_taken.min(axis=0) - values(critic.online, before, own[0]).min(axis=0)
    y = arm.targets(batch, values(critic.target, after, own[1]).min(axis=0))
    exponentials = [math.exp(beta * float(a)) for a in advantages]
    log_p, importance = log_densities(networks, batch), batch.importance_weights
    policy = [-importance[i] * N * exponentials[i] / sum(exponentials) * log_p[i] for i in range(N)]
    errors = importance * 0.5 * ((y - of_taken[0]) ** 2 + (y - of_taken[1]) ** 2)
    update = algorithm.update(networks, batch)
    arm.assert_metrics(
        update,
        policy_loss=np.mean(policy),
        critic_loss=errors.mean(),
        mean_advantage=advantages.mean(),
        **arm.of_critics(y, of_taken),
        loss=np.mean(policy) + errors.mean(),
    )
    np.testing.assert_allclose(update.priorities, 0.5 * np.abs(y - of_taken).sum(axis=0), rtol=1e-4)


def test_rows_that_are_not_valid_have_no_part_in_awacs_weights():
    """Other actions there change nothing."""
    batch, told = transitions(importance_weights=None, valid=np.arange(N)[None] % 2 == 0), []
    for actions in (LOW, HIGH):
        changed = batch.actions["action"].copy()
        changed[0, 1::2] = actions
        algorithm, networks = make("awac")
        told.append(algorithm.update(networks, batch._replace(actions={"action": changed})).metrics["policy_loss"])
    assert told[0] == pytest.approx(told[1], rel=1e-6)


def iql_twin(networks, batch, expectile, beta, largest):
    critic, importance = networks["critic"], batch.importance_weights
    before, after = batch.observations["observation"]
    v, following = (networks["value"].online.predict({"observation": rows}) for rows in (before, after))
    of_taken, slow = (values(copy, before, taken(batch)) for copy in (critic.online, critic.target))
    y, log_p, rows = arm.targets(batch, following), log_densities(networks, batch), {"policy": [], "value": []}
    errors, weights = slow.min(axis=0) - v, []
    for i in range(N):
        u = float(errors[i])
        weights.append(min(math.exp(beta * u), largest))
        rows["policy"].append(-importance[i] * weights[i] * log_p[i])
        rows["value"].append(importance[i] * abs(expectile - (u < 0.0)) * u**2)
    critics = importance * 0.5 * ((y - of_taken[0]) ** 2 + (y - of_taken[1]) ** 2)
    plain = [abs(expectile - (u < 0.0)) * u**2 for u in errors]
    losses = {"policy": np.mean(rows["policy"]), "value": np.mean(rows["value"]), "critic": critics.mean()}
    return losses, {
        "policy_loss": losses["policy"],
        "critic_loss": losses["critic"],
        "value_loss": np.mean(plain),
        "mean_advantage": errors.mean(),
        "mean_weight": np.mean(weights),
        **arm.of_critics(y, of_taken),
        "loss": sum(losses.values()),
    }


def test_iql_is_that_of_a_slow_twin():
    algorithm, networks = make("iql", expectile=0.8, beta=4.0, max_weight=2.0)
    batch = transitions()
    _, metrics = iql_twin(networks, batch, 0.8, 4.0, 2.0)
    arm.assert_metrics(algorithm.update(networks, batch), **metrics)


@pytest.mark.parametrize(("given", "kind"), [(None, "bounded_gaussian"), ("squashed_gaussian", "squashed_gaussian")])
def test_iqls_policy_is_a_gaussian_with_a_mean_within_the_bounds_unless_another_is_given(given, kind):
    """Its mode is the mean, also where the layer's output is far beyond the bounds."""
    heads = (
        [{"kind": "policy", "initial_log_sigma": -1.5}]
        if given is None
        else [{"kind": "policy", "distribution": given}]
    )
    main = arm.make("iql", {"heads_parameters": heads})[1]["main"].online
    (spec,) = main.actions.values()
    assert (spec.kind, spec.low, spec.high) == (kind, tuple(LOW), tuple(HIGH))
    if given is None:
        rows = np.asarray(main.predict({"observation": np.zeros((2, 3), "float32")}))
        np.testing.assert_array_equal(rows[:, 2:], np.full((2, 2), -1.5, "float32"))
        far = np.float32([[40.0, -40.0, 0.0, 0.0]])
        np.testing.assert_array_equal(spec.sampler().mode(far), [[HIGH[0], LOW[1]]])


def test_iqls_value_moves_by_its_own_loss_alone_and_is_not_published():
    algorithm, networks = make("iql")
    arm.assert_each_loss_moves_its_own_variables_alone(algorithm, transitions())
    assert list(networks) == ["main", "critic", "value"]
    assert all(name.startswith("main/") for name in networks["main"].online.policy_weights())
    before = arm.trained(networks["value"].online)
    algorithm.update(networks, transitions())
    assert all((a != b).any() for a, b in zip(arm.trained(networks["value"].online), before, strict=True))
    assert networks["value"].statistics.moments["observation"].count > 0.0


def test_a_high_expectile_learns_the_best_of_what_was_recorded():
    """One state, whose episode ends with the reward 1 or 0, by the action: of these, .9 is the expectile .9."""
    algorithm, networks = arm.make("iql", expectile=0.9, target_update_rate=1.0, reward_scale=1.0)
    actions = np.where(np.arange(N)[:, None] % 2 == 0, HIGH, LOW).astype("float32")
    batch = transitions(
        observations={"observation": np.zeros((2, N, 3), "float32")},
        actions={"action": actions[None]},
        rewards=np.where(np.arange(N) % 2 == 0, 1.0, 0.0).astype("float32")[None],
        terminated=np.ones((1, N), bool),
        importance_weights=np.ones(N, "float32"),
    )
    for _ in range(400):
        algorithm.update(networks, batch)
    value = networks["value"].online.predict({"observation": np.zeros((1, 3), "float32")})
    assert float(value[0]) == pytest.approx(0.9, abs=0.05)
    mean = gaussian(networks, np.zeros((1, 3), "float32"))[0][0]
    assert (arm.scaled(mean) > 0.3).all()  # the imitation prefers the better action


def test_the_value_learns_at_the_critics_rate_also_after_a_change_of_settings():
    algorithm, networks = make("iql", critic_learning_rate=0.002)
    algorithm.steer(networks, algorithm.context)
    rates = {name: float(network.optimizer.learning_rate) for name, network in networks.items()}
    assert rates == pytest.approx({"main": 0.01, "critic": 0.002, "value": 0.002})


@pytest.mark.parametrize("name", ["awac", "iql"])
def test_a_restored_training_goes_on_bit_by_bit(name):
    arm.assert_goes_on_bit_by_bit(*make(name))
