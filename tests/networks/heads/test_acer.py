import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from scipy.special import log_softmax, softmax

from distrl.config.heads import ACERPolicyHeadParameters
from distrl.errors import ConfigError
from distrl.networks.heads import acer

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3, 4)).astype(np.float32)


def numpy(tensor):
    return np.asarray(ops.convert_to_tensor(tensor))


def targets(rows=3, choices=3, **changed):
    rng = np.random.default_rng(1)
    given = {
        "actions": {"action": rng.integers(0, choices, rows).astype(np.int32)},
        "behaviour_probabilities": rng.dirichlet([0.5] * choices, rows).astype(np.float32),
        "q_values": rng.standard_normal((rows, choices)).astype(np.float32),
        "retrace": rng.standard_normal(rows).astype(np.float32),
        "average_probabilities": rng.dirichlet([1.0] * choices, rows).astype(np.float32),
    } | changed
    return {name: value for name, value in given.items() if value is not None}


def spread(built):
    """Logits that differ from row to row."""
    built.model.weights[0].assign(np.random.default_rng(2).standard_normal(built.model.weights[0].shape))


@pytest.mark.row("D07.16")
def test_weights_are_truncated_and_the_rest_is_corrected():
    np.testing.assert_array_equal(numpy(acer.truncated_weights(np.array([0.5, 12.0], np.float32), 10.0)), [0.5, 10.0])
    pi, mu = np.array([0.5, 0.3, 0.2], np.float32), np.array([0.02, 0.98, 0.0], np.float32)
    # rho is 25, .306 and infinite
    expected = [(1 - 10 / 25) * 0.5, 0.0, 0.2]
    np.testing.assert_allclose(numpy(acer.correction_weights(pi, mu, 10.0)), expected, rtol=1e-5)


@pytest.mark.row("D07.16")
@pytest.mark.parametrize("delta", [0.01, 0.5, 3.0])
def test_trust_region_keeps_the_linearised_kl_within_delta(delta):
    g, k = RNG.standard_normal((2, 200, 3)).astype(np.float32)
    k[0] = 0.0  # where the policy is the average one, every direction is allowed
    z = numpy(acer.trust_region(g, k, delta))
    asked, growth = (k * g).sum(axis=-1), (k * z).sum(axis=-1)
    kept = asked <= delta
    assert 20 < kept.sum() < 200
    np.testing.assert_array_equal(z[kept], g[kept])
    np.testing.assert_allclose(growth[~kept], delta, atol=1e-4)
    # what is taken away points along k
    np.testing.assert_allclose(np.cross(g - z, k), np.zeros((200, 3)), atol=1e-4)


@pytest.mark.row("D07.16")
def test_trust_region_goes_to_the_nearest_direction():
    # k.g = 4, |k|^2 = 4: one quarter of the excess 3 times k is taken away
    np.testing.assert_allclose(numpy(acer.trust_region(np.array([2.0, 5.0]), np.array([2.0, 0.0]), 1.0)), [0.5, 5.0])


@pytest.mark.row("D07.16")
def test_loss_and_its_parts(build, choices):
    parameters = ACERPolicyHeadParameters(importance_weight_truncation=1.5, trust_region_delta=None, beta_entropy=0.1)
    built = build(parameters, choices(3))
    spread(built)
    aims = targets(average_probabilities=None)
    logits = built.outputs(observation=ROWS)["policy/action"].astype(np.float64)
    pi, log_pi, mu, q = softmax(logits, -1), log_softmax(logits, -1), aims["behaviour_probabilities"], aims["q_values"]
    gains, corrections = np.zeros(3), np.zeros(3)
    for row, action in enumerate(aims["actions"]["action"]):
        value = sum(pi[row] * q[row])
        rho = pi[row] / mu[row]
        gains[row] = min(1.5, rho[action]) * log_pi[row, action] * (aims["retrace"][row] - value)
        for b in range(3):
            corrections[row] += max(0.0, 1 - 1.5 / rho[b]) * pi[row, b] * log_pi[row, b] * (q[row, b] - value)
    entropy = -(pi * log_pi).sum(axis=-1)
    assert np.abs(corrections).max() > 0.1
    np.testing.assert_allclose(
        built.loss(aims, observation=ROWS), -gains - corrections - 0.1 * entropy, rtol=1e-4, atol=1e-5
    )
    fetched = built.head.fetches(built.model({"observation": ROWS}), aims)
    expected = {
        "entropy": entropy.mean(),
        "probability_loss": -gains.mean(),
        "bias_correction_loss": -corrections.mean(),
    }
    assert {name: float(value) for name, value in fetched.items()} == pytest.approx(expected, rel=1e-4)


@pytest.mark.row("D07.16")
@pytest.mark.parametrize("delta", [0.01, 1e6])
def test_trust_region_changes_the_gradient_and_not_the_loss(build, choices, delta):
    options = {"importance_weight_truncation": 1.5, "beta_entropy": 0.1}
    free = build(ACERPolicyHeadParameters(trust_region_delta=None, **options), choices(3))
    bound = build(ACERPolicyHeadParameters(trust_region_delta=delta, **options), choices(3))
    spread(free)
    spread(bound)
    unbound = targets(average_probabilities=None)
    ascent = -free.gradients(lambda given: free.head.loss(given, unbound), observation=ROWS)["policy/action"]
    # an average policy that the policy has left in the very direction in which it is about to go on
    average = softmax(bound.outputs(observation=ROWS)["policy/action"] - 3.0 * ascent, axis=-1)
    aims = targets(average_probabilities=average)
    np.testing.assert_allclose(bound.loss(aims, observation=ROWS), free.loss(unbound, observation=ROWS), rtol=1e-5)
    allowed = -bound.gradients(lambda given: bound.head.loss(given, aims), observation=ROWS)["policy/action"]
    # the gradient of KL(average || pi), by differentiation
    logits = tf.constant(bound.outputs(observation=ROWS)["policy/action"])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        kl = -tf.reduce_sum(aims["average_probabilities"] * tf.nn.log_softmax(logits))
    away = tape.gradient(kl, logits).numpy()
    np.testing.assert_allclose(allowed, numpy(acer.trust_region(ascent, away, delta)), rtol=1e-3, atol=1e-5)
    assert ((away * allowed).sum(axis=-1) <= delta + 1e-5).all()
    assert np.allclose(allowed, ascent, atol=1e-5) == (delta > 1.0)


@pytest.mark.row("D07.16")
def test_kl_to_the_average_policy_is_fetched(build, choices):
    built = build(ACERPolicyHeadParameters(), choices(2))
    built.set_constant(policy_head=np.log([0.9, 0.1]))
    average = np.array([[0.5, 0.5]], np.float32)
    aims = targets(rows=1, choices=2, average_probabilities=average)
    fetched = built.head.fetches(built.model({"observation": ROWS[:1]}), aims)
    assert float(fetched["kl"]) == pytest.approx(0.510826, abs=1e-5)


@pytest.mark.row("A23")
def test_temperature(build, choices):
    built = build(ACERPolicyHeadParameters(), choices(2), softmax_temperature=0.5)
    built.set_constant(policy_head=[1.0, 2.0])
    np.testing.assert_allclose(built.outputs(observation=ROWS[:1])["policy/action"], [[2.0, 4.0]])


def test_average_policy_is_needed_with_a_trust_region_alone(build, choices):
    with pytest.raises(ValueError, match="target 'average_probabilities' is missing"):
        build(ACERPolicyHeadParameters(), choices(3)).loss(targets(average_probabilities=None), observation=ROWS)
    with pytest.raises(ValueError, match="unknown target 'average_probabilities'"):
        build(ACERPolicyHeadParameters(trust_region_delta=None), choices(3)).loss(targets(), observation=ROWS)


def test_continuous_actions_are_refused(build, box):
    with pytest.raises(ConfigError, match="head policy: needs a discrete action"):
        build(ACERPolicyHeadParameters(), box([-1.0], [1.0]))
