"""Losses of C51 and QR-DQN by hand and against slow twins, and what their updates learn."""

import numpy as np
import pytest
import tensorflow as tf

from distrl.algorithms import make_algorithm
from distrl.algorithms.algorithm import PRIORITIES
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.networks.actions.values import ValuesSpec
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec, MultiDiscreteSpec

OBSERVATIONS = {"observation": ArraySpec((3,), "float32")}
SPEC = EnvSpec("toy", OBSERVATIONS, {"action": DiscreteSpec(2)})
HEADS = {"c51": "categorical_q", "rainbow": "rainbow_q", "qrdqn": "quantile_q"}
GAMMA = 0.9


def make(name, network=None, **algorithm):
    network = {"middleware_parameters": {"scheme": [16]}, "learning_rate": 0.01} | (network or {})
    tree = {"algorithm": {"name": name, "discount": GAMMA, **algorithm}, "network": network}
    return make_algorithm(RunConfig.model_validate(tree))


def transitions(rewards, terminated=None, actions=None, weights=None, steps=1):
    count = len(rewards)
    rng = np.random.default_rng(0)
    return Batch(
        observations={"observation": rng.standard_normal((2, count, 3)).astype(np.float32)},
        actions={"action": np.zeros((1, count), np.int32) if actions is None else np.int32([actions])},
        rewards=np.float32([rewards]),
        terminated=np.zeros((1, count), bool) if terminated is None else np.array([terminated]),
        truncated=np.zeros((1, count), bool),
        valid=np.ones((1, count), bool),
        behaviour_log_probabilities=np.zeros((1, count), np.float32),
        recurrent_state={},
        bootstrap_steps=np.full((1, count), steps, np.int32),
        importance_weights=np.ones(count, np.float32) if weights is None else np.float32(weights),
    )


def compute(algorithm, batch, online, target, expected):
    """Return term, metrics and the gradient of the online numbers [2, N, A, K]; `expected` makes q of such numbers."""
    head = algorithm.heads[0].kind
    algorithm.choices = {"action": ValuesSpec(online.shape[2], f"{head}/q")}  # which `build` knows
    given = tf.constant(np.float32(online))
    with tf.GradientTape() as tape:
        tape.watch(given)
        outputs = {head: given, f"{head}/q": expected(given)}
        slow = {f"target/{head}": np.float32(target), f"target/{head}/q": expected(np.float32(target))}
        terms, metrics = algorithm.loss({**outputs, **slow}, batch)
    assert list(terms) == [head]
    return float(terms[head]), {k: np.asarray(v) for k, v in metrics.items()}, tape.gradient(terms[head], given).numpy()


ATOMS = np.float32([0.0, 1.0, 2.0])
THREE = {"heads_parameters": [{"kind": "categorical_q", "atoms": 3, "v_min": 0.0, "v_max": 2.0}]}


def mean_of_atoms(logits):
    return tf.reduce_sum(tf.nn.softmax(logits) * ATOMS, axis=-1)


@pytest.mark.row("D153")
def test_the_loss_of_c51_by_hand():
    """Online logits are equal, so -log p = log 3 everywhere; the target [0, .5, .5] has half its mass on two atoms.

    The target network is sure of the atom 1 after choice 1, its best; r = .5, gamma 1. The second item terminated,
    which moves all to .5: [.5, .5, 0]. Priorities are KL = log 3 - log 2 of both. The gradient of choice 0 is
    (p - m) / N.
    """
    sure = np.float32([[-99.0, 0.0, -99.0]])
    target = np.concatenate([np.float32([[0.0, -99.0, -99.0]]), sure])[None, None] * np.ones((2, 2, 1, 1), np.float32)
    batch = transitions([0.5, 0.5], terminated=[False, True])
    algorithm = make("c51", THREE, discount=1.0, replay={"sampler": {"kind": "prioritized"}})
    loss, metrics, gradient = compute(algorithm, batch, np.zeros((2, 2, 2, 3)), target, mean_of_atoms)
    assert loss == pytest.approx(np.log(3.0), rel=1e-5)
    np.testing.assert_allclose(metrics[PRIORITIES], np.log(1.5), rtol=1e-4)
    assert metrics["mean_q"] == pytest.approx(1.0)
    assert metrics["mean_target"] == pytest.approx((1.5 + 0.5) / 2, rel=1e-5)
    assert metrics["mean_td_error"] == pytest.approx((0.5 + 0.5) / 2, rel=1e-5)  # means 1.5 and .5, from 1
    moved = np.zeros((2, 2, 2, 3), np.float32)
    moved[0, :, 0] = (1 / 3 - np.array([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0]])) / 2
    np.testing.assert_allclose(gradient, moved, atol=1e-6)


@pytest.mark.row("D155")
@pytest.mark.parametrize(("double", "following"), [(True, 0), (False, 1)])
def test_double_selects_by_the_online_network(double, following):
    """The online network prefers choice 0 afterwards, the target network choice 1."""
    online, target = np.zeros((2, 1, 2, 3)), np.zeros((2, 1, 2, 3))
    online[1, 0, 0, 2] = target[1, 0, 1, 2] = 9.0
    batch = transitions([0.0])
    p = np.exp(target[1, 0, following]) / np.exp(target[1, 0, following]).sum()
    # The loss is log 3 whatever the target, as the online distribution of the choice made is even; its gradient is not.
    _, _, gradient = compute(make("c51", THREE, double=double, discount=1.0), batch, online, target, mean_of_atoms)
    np.testing.assert_allclose(gradient[0, 0, 0], 1 / 3 - p, atol=1e-5)


def test_importance_weights_multiply_losses_and_no_priority():
    algorithm = make("c51", THREE, replay={"sampler": {"kind": "prioritized"}})
    numbers = np.random.default_rng(0).standard_normal((2, 2, 2, 3))
    given = [transitions([1.0, 0.0], weights=weights) for weights in ([1.0, 1.0], [0.5, 0.0])]
    (even, told, _), (weighted, again, _) = (compute(algorithm, b, numbers, numbers, mean_of_atoms) for b in given)
    np.testing.assert_allclose(told[PRIORITIES], again[PRIORITIES])
    alone, _, _ = compute(algorithm, transitions([1.0]), numbers[:, :1], numbers[:, :1], mean_of_atoms)
    assert weighted == pytest.approx(0.25 * alone, rel=1e-5)
    assert even != pytest.approx(weighted)


def quantile_loss_slowly(quantiles, targets, kappa):
    """Algorithm 1 of Dabney et al. 2018, pair by pair."""
    total = 0.0
    for i, theta in enumerate(quantiles):
        tau = (2 * i + 1) / (2 * len(quantiles))
        for y in targets:
            u = y - theta
            size = abs(u)
            huber = 0.5 * u * u if size <= kappa else kappa * (size - 0.5 * kappa)
            total += abs(tau - (u < 0)) * huber / kappa / len(targets)
    return total


def mean_of_quantiles(numbers):
    return tf.reduce_mean(numbers, axis=-1)


@pytest.mark.row("D154")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("double", [False, True])
def test_the_loss_of_qrdqn_is_the_papers(seed, double):
    rng = np.random.default_rng(seed)
    online, target = rng.normal(0.0, 2.0, (2, 2, 5, 3, 4)).astype(np.float32)
    rewards, terminated = rng.standard_normal(5), rng.random(5) < 0.4
    actions, weights = rng.integers(0, 3, 5), rng.random(5)
    algorithm = make("qrdqn", double=double, huber_kappa=0.7, replay={"sampler": {"kind": "prioritized"}})
    batch = transitions(rewards, terminated, actions, weights, steps=3)
    loss, metrics, _ = compute(algorithm, batch, online, target, mean_of_quantiles)
    losses, errors, means = [], [], []
    for n in range(5):
        best = int(np.argmax((online if double else target)[1, n].mean(axis=-1)))
        targets = rewards[n] + GAMMA**3 * (not terminated[n]) * target[1, n, best]
        made = online[0, n, actions[n]]
        losses.append(quantile_loss_slowly(made, targets, 0.7))
        errors.append(abs(targets.mean() - made.mean()))
        means.append(targets.mean())
    assert loss == pytest.approx(np.mean(weights * losses), rel=1e-4)
    assert metrics["mean_target"] == pytest.approx(np.mean(means), rel=1e-4)
    np.testing.assert_allclose(metrics[PRIORITIES], errors, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_an_update_moves_distributions_towards_their_targets(name):
    """Two terminal rewards: the values of both states become them."""
    heads = {"quantile_q": {"quantiles": 8}, "categorical_q": {"v_min": -2.0, "v_max": 2.0}}
    heads["rainbow_q"] = heads["categorical_q"] | {"units": [16]}
    network = {"heads_parameters": [{"kind": HEADS[name], **heads[HEADS[name]]}]}
    algorithm = make(name, network, replay={"sampler": {"kind": "uniform"}})
    networks = algorithm.build(SPEC)
    batch = transitions([1.0, -1.5], terminated=[True, True])
    for _ in range(400):
        update = algorithm.update(networks, batch)
    rows = {"observation": batch.observations["observation"][0]}
    q = networks["main"].online.predict(rows, [f"{HEADS[name]}/q"])
    np.testing.assert_allclose(q[:, 0], [1.0, -1.5], atol=0.1)
    assert update.metrics["mean_td_error"] < 0.1
    assert algorithm.td_loss(networks, batch).shape == (2,)


@pytest.mark.row("D155")
def test_rainbow_has_all_six_parts():
    algorithm = make("rainbow")
    parameters, (head,) = algorithm.parameters, algorithm.configured_heads()
    assert (parameters.double, parameters.dueling, parameters.prioritized) == (True, True, True)
    assert parameters.replay.item.n_step == 3
    assert (head.kind, head.dense_layer) == ("rainbow_q", "noisy_dense")
    assert parameters.exploration.kind == "noisy_network"
    assert type(algorithm) is type(make("c51"))
    assert not make("c51").parameters.dueling


@pytest.mark.parametrize("name", HEADS)
def test_what_they_cannot_learn_is_refused_in_one_line(name):
    with pytest.raises(ValueError, match=f"replay.item.kind: sequence; {name} learns from single transitions"):
        make(name, replay={"item": {"kind": "sequence"}})
    with pytest.raises(ValueError, match=f"replace_mse_with_huber_loss: the loss of {name} has no square to replace"):
        make(name, {"replace_mse_with_huber_loss": True})
    two = EnvSpec("two", OBSERVATIONS, {"keys": MultiDiscreteSpec((2, 2), (0, 0))})
    parameters = make(name).parameters
    with pytest.raises(ConfigError, match=f"{name}: two has the actions multi_discrete, .* one discrete action; use"):
        parameters.check_actions(two)
    box = EnvSpec("box", OBSERVATIONS, {"steer": BoxSpec((1,), (-1.0,), (1.0,))})
    with pytest.raises(ConfigError, match=f"algorithm {name}: action 'steer' of box is box, and only choices"):
        parameters.check_actions(box)
    parameters.check_actions(SPEC)
