"""A3C's loss: the row's numbers, by hand, and what gradients of it do to a policy."""

import math

import numpy as np
import pytest
import tensorflow as tf

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.joint import JointDistribution
from distrl.types import ArraySpec, Batch, Contribution, DiscreteSpec, EnvSpec, UnrollHeader

SPEC = EnvSpec("Bandit", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(2)})
LOGITS = "policy/action"


def make(name="a3c", network=None, **algorithm):
    algorithm = make_algorithm(
        RunConfig.model_validate({"algorithm": {"name": name, **algorithm}, "network": network or {}})
    )
    algorithm.distribution = JointDistribution({"action": CategoricalSpec(2)})
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
        "behaviour_log_probabilities": np.full(rewards.shape, -7.0, "float32"),  # which the loss does not look at
        "recurrent_state": {},
    }
    return Batch(**(given | fields))


def compute(algorithm, logits, values, batch):
    terms, metrics = algorithm.loss({LOGITS: tf.constant(logits), "value": tf.constant(values)}, batch)
    return {name: float(term) for name, term in terms.items()}, {name: float(v) for name, v in metrics.items()}


@pytest.mark.row("D163")
@pytest.mark.parametrize(
    ("terminated", "advantages"), [(None, [2.12648, 1.634, 0.95]), (1, [1.31, 0.5, 0.95])], ids=["whole", "terminated"]
)
@pytest.mark.parametrize("name", ["a3c", "a2c"])
def test_the_policy_loss_is_of_the_rows_advantages(name, terminated, advantages):
    """r = [1, 1, 1], V = .5, the last one too, gamma .9, lambda .8; actions of log-probabilities ln .5, .2, .7."""
    algorithm = make(name, discount=0.9, gae_lambda=0.8, value_loss_weight=1.0, entropy_weight=0.0)
    chosen = np.array([0.5, 0.2, 0.7, 0.5])
    logits = np.log(np.stack([chosen, 1.0 - chosen], axis=-1))[:, None].astype("float32")
    ended = np.zeros((3, 1), bool)
    if terminated is not None:
        ended[terminated] = True
    batch = make_batch([[1.0]] * 3, terminated=ended)
    terms, metrics = compute(algorithm, logits, np.full((4, 1), 0.5, "float32"), batch)
    policy = -np.mean(np.log(chosen[:3]) * advantages)
    value = 0.5 * np.mean(np.square(advantages))  # targets are V + advantage
    assert terms == pytest.approx({"policy": policy, "value": value}, rel=1e-5)
    assert metrics["policy_loss"] == pytest.approx(policy, rel=1e-5)


def test_loss_by_hand():
    """gamma .5, lambda 1, V = [1, 2], bootstrap 3, rewards [1, 1] x reward_scale 2, a uniform policy over two actions.

    Differences 2 + .5 x 2 - 1 = 2 and 2 + .5 x 3 - 2 = 1.5; advantages 2 + .5 x 1.5 = 2.75 and 1.5, targets 3.75 and
    3.5. policy: ln 2 x 4.25 / 2; value: .5 x (2.75^2 + 1.5^2) / 2 = 2.453125; entropy: ln 2.
    """
    algorithm = make(discount=0.5, reward_scale=2.0, value_loss_weight=0.5, entropy_weight=0.1)
    values = np.array([[1.0], [2.0], [3.0]], "float32")
    terms, metrics = compute(algorithm, np.zeros((3, 1, 2), "float32"), values, make_batch([[1.0], [1.0]]))
    ln2 = math.log(2.0)
    expected = {
        "policy_loss": 2.125 * ln2,
        "value_loss": 2.453125,
        "entropy": ln2,
        "mean_value": 1.5,
        "explained_variance": 1.0 - 0.390625 / 0.015625,
        "mean_advantage": 2.125,
        "std_advantage": 0.625,
    }
    assert metrics == pytest.approx(expected, rel=1e-5)
    assert terms == pytest.approx({"policy": 2.125 * ln2 - 0.1 * ln2, "value": 0.5 * 2.453125}, rel=1e-5)


def test_what_was_ignored_does_not_count_and_a_truncated_step_bootstraps():
    """The middle row is padding after a truncation: its reward of the reset, action and value enter nothing."""
    algorithm = make(discount=0.5, value_loss_weight=1.0, entropy_weight=0.0)
    valid = np.array([[True], [False], [True]])
    truncated = np.array([[True], [False], [False]])
    values = np.array([[1.0], [4.0], [2.0], [6.0]], "float32")
    logits = np.zeros((4, 1, 2), "float32")
    logits[1, 0] = [9.0, -9.0]
    batch = make_batch([[1.0], [0.0], [1.0]], valid=valid, truncated=truncated)
    terms, _ = compute(algorithm, logits, values, batch)
    first, last = 1.0 + 0.5 * 4.0 - 1.0, 1.0 + 0.5 * 6.0 - 2.0  # advantages
    assert terms["policy"] == pytest.approx(math.log(2.0) * (first + last) / 2, rel=1e-5)
    assert terms["value"] == pytest.approx(0.5 * (first**2 + last**2) / 2, rel=1e-5)


def test_the_value_loss_can_be_hubers():
    algorithm = make(network={"replace_mse_with_huber_loss": True}, discount=0.0, value_loss_weight=1.0)
    terms, _ = compute(algorithm, np.zeros((2, 1, 2), "float32"), np.zeros((2, 1), "float32"), make_batch([[4.0]]))
    assert terms["value"] == pytest.approx(3.5)  # |4| - 0.5


@pytest.mark.parametrize(
    ("name", "rounds", "asked", "mean"),
    [("a3c", False, {}, True), ("a2c", True, {}, True), ("a2c", True, False, False)],
)
def test_what_the_memory_is_asked_for(name, rounds, asked, mean):
    network = {"scale_down_gradients_by_number_of_workers_for_sync_training": asked} if asked is False else {}
    algorithm = make(name, network)
    parameters = algorithm.parameters
    assert (parameters.ships, parameters.rounds, parameters.batch_size) == ("gradients", rounds, 1)
    assert algorithm._takes_mean is mean


def test_gradients_of_two_workers_make_the_rewarded_action_likely():
    """Action 1 pays 1, action 0 nothing; worker and learner each build their own networks, as in processes."""
    network = {"optimizer_type": "SGD", "learning_rate": 0.5, "middleware_parameters": {"scheme": "Empty"}}
    worker, learner = (make("a2c", network, discount=0.0) for _ in range(2))
    theirs, ours = worker.build(SPEC), learner.build(SPEC)
    rng = np.random.default_rng(0)
    with pytest.raises(RuntimeError, match="before build"):
        make().differentiate({}, make_batch([[0.0]]))
    for update in range(60):
        given = []
        for actor in (0, 1):
            actions = rng.integers(0, 2, (4, 8)).astype("int32")
            batch = make_batch(actions.astype("float32"), actions={"action": actions})
            header = UnrollHeader(actor, 1, update, update + 1, 32)
            none = np.zeros(0, np.float32)
            given.append(Contribution(header, worker.differentiate(theirs, batch), none, none.astype(np.int32)))
        metrics = learner.update(ours, tuple(given)).metrics
        assert metrics["finite"] is True
        theirs["main"].online.set_weights(ours["main"].online.get_weights())
    logits = ours["main"].online.predict({"observation": np.zeros((1, 1), np.float32)}, [LOGITS])[0]
    assert logits[1] - logits[0] > 2.0
    assert metrics.keys() >= {"loss", "entropy", "gradient_norm", "learning_rate", "policy_loss", "mean_value"}
