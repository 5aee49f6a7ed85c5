"""IMPALA's loss: by hand, by finite differences, and by what it does to a policy."""

import math

import numpy as np
import pytest
import tensorflow as tf

from distrl.algorithms import impala, make_algorithm
from distrl.config import RunConfig
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.joint import JointDistribution
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

LOGITS = "policy/action"


def make(network=None, actions=None, **algorithm):
    algorithm = make_algorithm(RunConfig.model_validate({"algorithm": algorithm, "network": network or {}}))
    algorithm.distribution = JointDistribution(actions or {"action": CategoricalSpec(2)})  # which `build` knows
    return algorithm


def make_batch(rewards, **fields):
    rewards = np.array(rewards, "float32")
    given = {
        "observations": {"observation": np.zeros((len(rewards) + 1, rewards.shape[1], 1), "float32")},
        "actions": {"action": np.zeros(rewards.shape, "int32")},
        "rewards": rewards,
        "terminated": np.zeros(rewards.shape, bool),
        "truncated": np.zeros(rewards.shape, bool),
        "valid": np.ones(rewards.shape, bool),
        "behaviour_log_probabilities": np.full(rewards.shape, math.log(0.5), "float32"),
        "recurrent_state": {},
    }
    return Batch(**(given | fields))


def compute(algorithm, logits, values, batch):
    """The sum of the heads' terms, and the metrics."""
    terms, metrics = algorithm.loss({LOGITS: tf.constant(logits), "value": tf.constant(values)}, batch)
    assert list(terms) == ["policy", "value"]
    return float(sum(terms.values())), {name: float(value) for name, value in metrics.items()}


UNIFORM = np.zeros((3, 1, 2), "float32")
VALUES = np.array([[1.0], [2.0], [3.0]], "float32")


@pytest.mark.row("H03", "H12")
def test_loss_by_hand():
    """gamma .5, V = [1, 2], bootstrap 3, rewards [1, 1] x reward_scale 2, a uniform policy over two actions.

    Differences 2 + .5 x 2 - 1 = 2 and 2 + .5 x 3 - 2 = 1.5; on-policy, so targets are 1 + 2 + .5 x 1.5 = 3.75 and 3.5,
    advantages 2.75 and 1.5. policy: ln 2 x 4.25 / 2; value: .5 x (2.75^2 + 1.5^2) / 2 = 2.453125; entropy: ln 2.
    """
    algorithm = make(discount=0.5, reward_scale=2.0, value_loss_weight=0.5, entropy_weight=0.1)
    total, metrics = compute(algorithm, UNIFORM, VALUES, make_batch([[1.0], [1.0]]))
    ln2 = math.log(2.0)
    terms, _ = algorithm.loss({LOGITS: UNIFORM, "value": VALUES}, make_batch([[1.0], [1.0]]))
    assert float(terms["policy"]) == pytest.approx(2.125 * ln2 - 0.1 * ln2, rel=1e-5)
    assert float(terms["value"]) == pytest.approx(0.5 * 2.453125, rel=1e-5)
    assert metrics == pytest.approx(
        {
            "policy_loss": 2.125 * ln2,
            "value_loss": 2.453125,
            "entropy": ln2,
            "mean_value": 1.5,
            "mean_rho": 1.0,
            "kl": 0.0,
            "explained_variance": 1.0 - 0.390625 / 0.015625,
            "mean_advantage": 2.125,
            "std_advantage": 0.625,
        },
        rel=1e-5,
    )
    assert total == pytest.approx(2.125 * ln2 + 0.5 * 2.453125 - 0.1 * ln2, rel=1e-5)


def test_off_policy_weights_are_truncated_for_the_loss_and_for_mean_rho():
    """pi = .5; mu = .25 makes weight 2, truncated to 1; mu = 1 makes weight .5.

    Differences as above without the scale: 1 + 1 - 1 = 1, and 1 + 1.5 - 2 = .5 weighted by .5 = .25. Targets
    1 + 1 + .5 x .25 = 2.125 and 2.25; advantages 1 + .5 x 2.25 - 1 = 1.125 and .25.
    """
    behaviour = np.log(np.array([[0.25], [1.0]], "float32"))
    batch = make_batch([[1.0], [1.0]], behaviour_log_probabilities=behaviour)
    _, metrics = compute(make(discount=0.5), UNIFORM, VALUES, batch)
    assert metrics["policy_loss"] == pytest.approx(math.log(2.0) * (1.125 + 0.25) / 2, rel=1e-5)
    assert metrics["value_loss"] == pytest.approx(0.5 * (1.125**2 + 0.25**2) / 2, rel=1e-5)
    assert metrics["mean_rho"] == pytest.approx(0.75)


def test_kl_is_how_much_likelier_the_actions_were_to_who_took_them():
    behaviour = np.log(np.array([[0.75], [0.6]], "float32"))  # of pi = .5: log 1.5 and log 1.2
    batch = make_batch([[1.0], [1.0]], behaviour_log_probabilities=behaviour)
    _, metrics = compute(make(), UNIFORM, VALUES, batch)
    assert metrics["kl"] == pytest.approx((math.log(1.5) + math.log(1.2)) / 2, rel=1e-5)


@pytest.mark.row("H03")
def test_without_advantage_only_the_entropy_is_left():
    values = np.full((3, 1), 2.0, "float32")  # V = r + gamma V everywhere
    total, metrics = compute(make(discount=0.5, entropy_weight=0.1), UNIFORM, values, make_batch([[1.0], [1.0]]))
    assert metrics["policy_loss"] == 0.0
    assert metrics["value_loss"] == 0.0
    assert total == pytest.approx(-0.1 * math.log(2.0))


def test_termination_and_truncation_differ_by_the_bootstrap():
    """One step, V = 1, V of the final observation 3, reward 1, gamma .5: the error is 1 - 1 or 1 + 1.5 - 1."""
    values = np.array([[1.0], [3.0]], "float32")
    yes = np.ones((1, 1), bool)
    _, terminated = compute(make(discount=0.5), UNIFORM[:2], values, make_batch([[1.0]], terminated=yes))
    _, truncated = compute(make(discount=0.5), UNIFORM[:2], values, make_batch([[1.0]], truncated=yes))
    _, both = compute(make(discount=0.5), UNIFORM[:2], values, make_batch([[1.0]], terminated=yes, truncated=yes))
    assert terminated["value_loss"] == both["value_loss"] == 0.0
    assert truncated["value_loss"] == pytest.approx(0.5 * 1.5**2)


def test_what_was_ignored_does_not_count():
    """Nothing in an invalid row's action or log-probability changes the loss, and nothing valid is no NaN."""
    valid = np.array([[True], [False]])
    quiet = make_batch([[1.0], [0.0]], valid=valid)
    loud = quiet._replace(
        actions={"action": np.array([[0], [1]], "int32")},
        behaviour_log_probabilities=np.array([[-0.7], [-80.0]], "float32"),
    )
    quiet = quiet._replace(behaviour_log_probabilities=np.array([[-0.7], [0.0]], "float32"))
    assert compute(make(), UNIFORM, VALUES, quiet) == compute(make(), UNIFORM, VALUES, loud)
    total, metrics = compute(make(), UNIFORM, VALUES, quiet._replace(valid=np.zeros((2, 1), bool)))
    assert total == 0.0
    assert all(value == 0.0 for value in metrics.values())


def test_gradient_against_finite_differences(monkeypatch):
    """Targets and advantages are constants to the gradient, so the differences are taken with them held fixed."""
    rng = np.random.default_rng(0)
    shape = (4, 3)
    batch = make_batch(
        rng.normal(size=shape),
        actions={"action": rng.integers(0, 3, shape).astype("int32")},
        valid=rng.random(shape) < 0.8,
        terminated=rng.random(shape) < 0.2,
        behaviour_log_probabilities=rng.normal(-1.0, 0.3, shape).astype("float32"),
    )
    logits, values = (rng.normal(size=size).astype("float32") for size in ((5, 3, 3), (5, 3)))
    algorithm = make(entropy_weight=0.3, actions={"action": CategoricalSpec(3)})
    with tf.GradientTape() as tape:
        outputs = {LOGITS: tf.constant(logits), "value": tf.constant(values)}
        tape.watch(outputs)
        terms, _ = algorithm.loss(outputs, batch)
        total = sum(terms.values())
    gradients = tape.gradient(total, outputs)

    fixed = []
    vtrace = impala.vtrace
    monkeypatch.setattr(impala, "vtrace", lambda **arrays: fixed.append(vtrace(**arrays)) or fixed[0])
    compute(algorithm, logits, values, batch)
    for array, name in ((logits, LOGITS), (values, "value")):
        expected = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            sides = []
            for step in (1e-2, -1e-2):
                moved = {LOGITS: logits.copy(), "value": values.copy()}
                moved[name][index] += step
                sides.append(compute(algorithm, moved[LOGITS], moved["value"], batch)[0])
            expected[index] = (sides[0] - sides[1]) / 2e-2
        np.testing.assert_allclose(gradients[name].numpy(), expected, atol=2e-4)
    assert not gradients["value"].numpy()[-1].any()  # the bootstrap row is no training example
    assert not gradients[LOGITS].numpy()[-1].any()


def test_the_rewarded_action_becomes_likely():
    """A bandit: one step, action 1 is rewarded, action 0 is not; both were tried equally often."""
    network = {"middleware_parameters": {"scheme": "Empty"}, "optimizer_type": "SGD", "learning_rate": 1.0}
    algorithm = make(network)
    spec = EnvSpec(
        id="bandit", observations={"observation": ArraySpec((1,), "float32")}, actions={"action": DiscreteSpec(2)}
    )
    networks = algorithm.build(spec)
    observation = {"observation": np.ones((1, 1), "float32")}

    def probability():
        logits = networks["main"].online.predict(observation, [LOGITS])[0]
        return 1.0 / (1.0 + math.exp(logits[0] - logits[1]))

    batch = make_batch(
        [[0.0, 1.0]],
        observations={"observation": np.ones((2, 2, 1), "float32")},
        actions={"action": np.array([[0, 1]], "int32")},
        terminated=np.ones((1, 2), bool),
    )
    before = probability()
    algorithm.update(networks, batch)
    once = probability()
    assert once > before
    for _ in range(60):
        metrics = algorithm.update(networks, batch).metrics
    assert probability() > 0.9
    assert metrics["entropy"] < 0.4


def test_several_actions_count_together():
    """log pi of three actions is a sum: ln .5 of the choice, 2 ln .5 of the switches, and a normal at its mean."""
    actions = {"steer": CategoricalSpec(2), "lights": BernoulliSpec(2), "gas": GaussianSpec(1)}
    outputs = {
        "policy/steer": np.zeros((2, 1, 2), "float32"),
        "policy/lights": np.zeros((2, 1, 2), "float32"),
        "policy/gas": np.zeros((2, 1, 2), "float32"),
        "value": np.float32([[1.0], [3.0]]),
    }
    taken = {
        "steer": np.ones((1, 1), "int32"),
        "lights": np.int32([[[0, 1]]]),
        "gas": np.zeros((1, 1, 1), "float32"),
    }
    log_probability = 3.0 * math.log(0.5) - 0.5 * math.log(2.0 * math.pi)
    behaviour = np.full((1, 1), log_probability - math.log(0.5), "float32")  # twice as likely then: rho is .5
    batch = make_batch([[1.0]], actions=taken, behaviour_log_probabilities=behaviour)
    _, metrics = make(actions=actions, discount=0.5).loss(outputs, batch)
    # difference 1 + .5 x 3 - 1 = 1.5, weighted by rho .5
    assert float(metrics["mean_rho"]) == pytest.approx(0.5, rel=1e-5)
    assert float(metrics["policy_loss"]) == pytest.approx(-log_probability * 0.5 * 1.5, rel=1e-5)
    entropy = math.log(2.0) * 3.0 + 0.5 * math.log(2.0 * math.pi * math.e)
    assert float(metrics["entropy"]) == pytest.approx(entropy, rel=1e-5)


@pytest.mark.row("A20")
def test_values_may_be_learned_by_hubers_loss():
    """Errors 2.75 and 1.5 as above: 2.75 - .5 and 1.5 - .5 in place of half their squares."""
    algorithm = make({"replace_mse_with_huber_loss": True}, discount=0.5, reward_scale=2.0)
    _, metrics = compute(algorithm, UNIFORM, VALUES, make_batch([[1.0], [1.0]]))
    assert metrics["value_loss"] == pytest.approx((2.25 + 1.0) / 2, rel=1e-5)


@pytest.mark.row("H04")
@pytest.mark.parametrize(("clipping", "reward"), [("clamp_one", 1.0), ("soft_asymmetric", 3.80797), (None, 5.0)])
def test_the_loss_is_of_clipped_rewards(clipping, reward):
    """One step that pays 5 and terminates, V = 0: the value loss is half the square of what it counts for."""
    algorithm = make(reward_clipping=clipping)
    batch = make_batch([[5.0]], terminated=np.ones((1, 1), bool))
    _, metrics = compute(algorithm, UNIFORM[:2], np.zeros((2, 1), "float32"), batch)
    assert metrics["value_loss"] == pytest.approx(0.5 * reward**2, rel=1e-5)
    assert metrics["policy_loss"] == pytest.approx(math.log(2.0) * reward, rel=1e-5)


@pytest.mark.row("H03")
def test_without_advantage_the_value_and_entropy_terms_are_left():
    """rho_bar_policy_gradient near 0 takes the policy's advantages away, and leaves the others theirs."""
    algorithm = make(discount=0.5, entropy_weight=0.1, rho_bar_policy_gradient=1e-30)
    total, metrics = compute(algorithm, UNIFORM, VALUES, make_batch([[2.0], [2.0]]))
    assert metrics["policy_loss"] == pytest.approx(0.0, abs=1e-20)
    assert metrics["value_loss"] == pytest.approx(2.453125, rel=1e-5)  # as by hand above
    assert total == pytest.approx(0.5 * 2.453125 - 0.1 * math.log(2.0), rel=1e-5)
