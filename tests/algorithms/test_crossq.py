"""CrossQ against a twin in NumPy alone, and when its policy and its moments move. Runs on TensorFlow and JAX."""

import itertools
import math

import keras
import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import DiscreteSpec, EnvSpec
from tests.algorithms import arm
from tests.traces import traces

N, ALPHA, EPSILON = arm.N, 0.3, 1e-3
SMALL = {"critic_layers": [8, 7], "initial_temperature": ALPHA}


fresh = arm.fresh_build("crossq", **SMALL)


def forward(weights, prefix, hidden, x, moments):
    """Normalisation, then dense layers with tanh, each followed by a normalisation.

    Args:
        weights: Running moments among them, which move towards the batch's unless they are used.
        moments: "batch", "running" or "corrected".
    """

    def normalised(x, index):
        gamma, beta, mean, variance = (
            weights[f"{prefix}middleware_batch_renorm_{index}/{part}"]
            for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if moments == "running":
            return gamma * (x - mean) / np.sqrt(variance + EPSILON) + beta
        own_mean, own = x.mean(axis=0), np.sqrt(x.var(axis=0) + EPSILON)
        weights[f"{prefix}middleware_batch_renorm_{index}/moving_mean"] = 0.99 * mean + 0.01 * own_mean
        weights[f"{prefix}middleware_batch_renorm_{index}/moving_variance"] = 0.99 * variance + 0.01 * x.var(axis=0)
        r, d = 1.0, 0.0
        if moments == "corrected":
            r = np.clip(own / np.sqrt(variance + EPSILON), 1 / 3, 3)
            d = np.clip((own_mean - mean) / np.sqrt(variance + EPSILON), -5, 5)
        return gamma * ((x - own_mean) / own * r + d) + beta

    x = normalised(x, 0)
    for index in range(hidden):
        layer = f"{prefix}middleware_dense_{2 * index + 1}"
        x = normalised(np.tanh(x @ weights[f"{layer}/kernel"] + weights[f"{layer}/bias"]), 2 * index + 2)
    return x


def q_values(weights, rows, moments):
    """Both critics' values, [2, rows]."""
    found = []
    for index in range(2):
        x = forward(weights, f"critic/q_value_{index}_", 2, rows, moments)
        head = f"critic/q_value_{index}_head"
        found.append((x @ weights[f"{head}/kernel"] + weights[f"{head}/bias"])[:, 0])
    return np.stack(found)


def drawn(weights, observation, noise, moments):
    """Actions scaled to [-1, 1] and their log-densities."""
    x = forward(weights, "main/", 1, observation, moments)
    heads = [f"main/policy_head_action{part}" for part in ("", "_log_sigma")]
    mean, log_sigma = (x @ weights[f"{head}/kernel"] + weights[f"{head}/bias"] for head in heads)
    u = mean + np.exp(log_sigma) * noise
    gaussian = -0.5 * noise**2 - log_sigma - 0.5 * math.log(2.0 * math.pi)
    squash = 2.0 * (math.log(2.0) - u - np.log1p(np.exp(-2.0 * u)))  # log(1 - tanh(u)^2), which rounds to log 0
    return np.tanh(u), (gaussian - squash).sum(axis=-1)


def twin(networks, batch, noises, moments):
    """Every loss row by row, and the weights of the critics with the moments after the update."""
    main, critic = (networks[name].online.named_weights() for name in ("main", "critic"))
    before, after = batch.observations["observation"]
    actions, log_p = drawn(main, before, noises[0], moments)
    of_policy = q_values(critic, np.hstack([actions, before]), "running")
    following, next_log_p = drawn(main, after, noises[1], "running")
    taken = arm.scaled(batch.actions["action"][0])
    # actions before observations, in the order of the inputs' names; both halves in one batch
    joint = np.concatenate([np.hstack([taken, before]), np.hstack([following, after])])
    here, there = np.split(q_values(critic, joint, moments), 2, axis=1)
    y = arm.targets(batch, there.min(axis=0) - ALPHA * next_log_p)
    weights = batch.importance_weights
    rows = {
        "policy": weights * (ALPHA * log_p - of_policy.min(axis=0)),
        "critic": weights * 0.5 * ((y - here[0]) ** 2 + (y - here[1]) ** 2),
        "temperature": -weights * ALPHA * (log_p - 2.0),
        "priorities": 0.5 * (np.abs(y - here[0]) + np.abs(y - here[1])),
    }
    return rows, -log_p.mean(), arm.of_critics(y, here), critic


@pytest.mark.parametrize("warm_up", [100_000, 0])
def test_every_loss_is_that_of_a_twin_in_numpy(warm_up):
    """With moments of the batch, and with those corrected towards running ones, which are others."""
    network = {"input_embedders_parameters": {}}
    algorithm, networks = arm.make("crossq", network, batch_norm_warm_up_updates=warm_up, **SMALL)
    rng = np.random.default_rng(1)
    for wrapper in networks.values():
        for variable in wrapper.online.model.weights:
            if not variable.path.endswith("/updates"):
                shift = rng.uniform(0.05, 0.2, variable.shape).astype("float32")
                variable.assign(np.asarray(variable) + shift)
    batch, seeds = arm.transitions(), keras.random.SeedGenerator(3)
    noises = [np.asarray(keras.random.normal((N, 2), seed=seeds)) for _ in range(2)]
    rows, entropy, critics, critic = twin(networks, batch, noises, "corrected" if warm_up == 0 else "batch")
    update = algorithm.update(networks, batch)
    arm.assert_soft_update(update, rows, entropy, critics, ALPHA)
    after = networks["critic"].online.named_weights()
    running = [name for name in after if "/moving_" in name]
    assert len(running) == 2 * 3 * 2  # critics, normalisations, moments
    for name in running:
        np.testing.assert_allclose(after[name], critic[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert {float(after[name]) for name in after if name.endswith("/updates")} == {1.0}


def test_policy_and_temperature_move_with_every_third_update_and_there_is_no_target(fresh):
    algorithm, networks = fresh
    main, critic = networks["main"], networks["critic"]
    assert main.target is critic.target is None
    policies, critics, temperatures = [arm.trained(main.online)], [arm.trained(critic.online)], []
    for seed in range(7):
        temperatures.append(algorithm.update(networks, arm.transitions(seed)).metrics["temperature"])
        policies.append(arm.trained(main.online))
        critics.append(arm.trained(critic.online))

    def moved(one, other):
        return any((a != b).any() for a, b in zip(one, other, strict=True))

    assert [moved(policies[at], policies[at + 1]) for at in range(7)] == [False, False, True, False, False, True, False]
    assert all(moved(critics[at], critics[at + 1]) for at in range(7))
    changes = [after != before for before, after in itertools.pairwise(temperatures)]
    assert changes == [False, False, True, False, False, True]
    assert traces(algorithm._step) == 1


def test_a_restored_training_goes_on_bit_by_bit(fresh):
    """Saved between two updates of the policy, with running moments and the count of their beginning."""
    algorithm, networks = fresh
    arm.assert_goes_on_bit_by_bit(algorithm, networks)
    saved = networks["critic"].state_arrays()
    assert list(saved) == ["online", "optimizer", "statistics"]
    assert saved["online"]["critic/q_value_1_middleware_batch_renorm_2/updates"] == 5.0
    assert saved["online"]["critic/q_value_1_middleware_batch_renorm_2/moving_mean"].any()


def test_actors_get_the_policy_with_its_running_moments(fresh):
    """The count of batches, which inference does not read, stays with the learner."""
    algorithm, networks = fresh
    for seed in range(3):
        algorithm.update(networks, arm.transitions(seed))
    main = networks["main"].online
    weights = main.policy_weights()
    assert all(name.startswith("main/") for name in weights)
    names = [name.removeprefix("main/middleware_batch_renorm_") for name in weights if "renorm" in name]
    parts = ("gamma", "beta", "moving_mean", "moving_variance")
    assert sorted(names) == sorted(f"{index}/{part}" for index in (0, 2) for part in parts)
    assert weights["main/middleware_batch_renorm_2/moving_mean"].any()


def test_defaults_are_the_papers():
    parameters = arm.config("crossq").algorithm
    assert (parameters.critic_layers, parameters.policy_every_updates, parameters.batch_size) == ((2048, 2048), 3, 256)
    assert (parameters.batch_norm_momentum, parameters.batch_norm_warm_up_updates) == (0.99, 100_000)
    assert not hasattr(parameters, "target_update_rate")


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            {
                "middleware_parameters": {
                    "kind": "graph",
                    "blocks": {"output": {"inputs": ["observation"], "layers": [4]}},
                }
            },
            "crossq normalises the layers of fc, not of graph; use fc or algorithm sac",
        ),
        ({"middleware_parameters": {"batchnorm": True}}, "batchnorm: crossq normalises every layer; leave it out"),
        ({"create_target_network": True}, "create_target_network: crossq has no target copies; leave it out"),
    ],
)
def test_networks_that_it_cannot_normalise_are_refused(network, message):
    with pytest.raises(ValueError, match=message):
        arm.config("crossq", network, critic_layers=None)


def test_choices_are_refused():
    with pytest.raises(ConfigError, match="algorithm crossq: action 'action' of C is discrete, which it does not take"):
        arm.make("crossq", spec=EnvSpec("C", arm.OBSERVATIONS, {"action": DiscreteSpec(2)}))
