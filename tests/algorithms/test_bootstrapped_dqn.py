"""Bootstrapped DQN's loss by hand and by a slow twin, and what an update does to the members."""

import numpy as np
import pytest
import tensorflow as tf

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.networks.actions.ensemble import EnsembleSpec
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

SPEC = EnvSpec("toy", {"observation": ArraySpec((3,), "float32")}, {"action": DiscreteSpec(2)})


def make(members=2, network=None, head=None, **algorithm):
    network = {
        "middleware_parameters": {"scheme": [8]},
        "learning_rate": 0.01,
        "heads_parameters": [{"kind": "ensemble_q", "members": members, **(head or {})}],
    } | (network or {})
    tree = {"algorithm": {"name": "bootstrapped_dqn", **algorithm}, "network": network}
    return make_algorithm(RunConfig.model_validate(tree))


def transitions(rewards, made, terminated, **fields):
    count = len(rewards)
    given = {
        "observations": {"observation": np.random.default_rng(0).standard_normal((2, count, 3)).astype(np.float32)},
        "actions": {"action": np.array([made], np.int32)},
        "rewards": np.array([rewards], np.float32),
        "terminated": np.array([terminated], bool),
        "truncated": np.zeros((1, count), bool),
        "valid": np.ones((1, count), bool),
        "behaviour_log_probabilities": np.zeros((1, count), np.float32),
        "recurrent_state": {},
        "bootstrap_steps": np.ones((1, count), np.int32),
    }
    return Batch(**(given | fields))


def compute(algorithm, batch, online, target):
    """Loss, metrics and the gradient of the online values; values are [2, N, K, A]."""
    members, choices = online.shape[-2:]
    algorithm.action, algorithm.ensemble = "action", EnsembleSpec(choices, members, "ensemble_q/q")  # `build` knows
    flat = [np.asarray(values, np.float32).reshape(*values.shape[:2], -1) for values in (online, target)]
    given = tf.constant(flat[0])
    with tf.GradientTape() as tape:
        tape.watch(given)
        terms, metrics = algorithm.loss({"ensemble_q/q": given, "target/ensemble_q/q": tf.constant(flat[1])}, batch)
    gradient = tape.gradient(terms["ensemble_q"], given).numpy().reshape(online.shape)
    return float(terms["ensemble_q"]), {name: np.asarray(value).tolist() for name, value in metrics.items()}, gradient


@pytest.mark.row("D156")
def test_each_member_has_a_target_of_its_own_by_hand():
    """Gamma .5, r 1: members bootstrap from 4 and 2, so y = 3 and 2; values of the choice made are 1 and 5."""
    online = np.array([[[[1.0, 9.0], [5.0, 9.0]]], [[[0.0, 1.0], [1.0, 0.0]]]])
    target = np.array([[[[7.0, 7.0], [7.0, 7.0]]], [[[8.0, 4.0], [2.0, 9.0]]]])
    loss, metrics, gradient = compute(make(discount=0.5), transitions([1.0], [0], [False]), online, target)
    assert loss == pytest.approx(2.0**2 + 3.0**2)
    assert metrics == {
        "td_loss": pytest.approx(13.0),
        "mean_q": pytest.approx(3.0),
        "mean_target": pytest.approx(2.5),
        "mean_td_error": pytest.approx(2.5),
    }
    np.testing.assert_allclose(gradient[0, 0], [[-4.0, 0.0], [6.0, 0.0]])
    np.testing.assert_array_equal(gradient[1], 0.0)
    loss, _, _ = compute(make(discount=0.5, double=False), transitions([1.0], [0], [False]), online, target)
    assert loss == pytest.approx((1 + 4 - 1.0) ** 2 + (1 + 4.5 - 5.0) ** 2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("double", [False, True])
def test_the_loss_is_that_of_as_many_networks_one_after_another(seed, double):
    rng = np.random.default_rng(seed)
    online, target = rng.normal(0.0, 2.0, (2, 2, 5, 3, 4)).astype(np.float32)
    rewards, made, over = rng.normal(size=5), rng.integers(0, 4, 5), rng.random(5) < 0.4
    batch = transitions(rewards, made, over, importance_weights=rng.random(5).astype(np.float32))
    loss, metrics, _ = compute(make(members=3, double=double, discount=0.9, reward_scale=2.0), batch, online, target)
    losses, errors = np.zeros(5), np.zeros((5, 3))
    for n, k in np.ndindex(5, 3):
        best = int(np.argmax(online[1, n, k] if double else target[1, n, k]))
        y = 2.0 * rewards[n] + 0.9 * (not over[n]) * target[1, n, k, best]
        errors[n, k] = y - online[0, n, k, made[n]]
        losses[n] += errors[n, k] ** 2
    assert loss == pytest.approx(np.mean(batch.importance_weights * losses), rel=1e-4)
    assert metrics["mean_td_error"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)


@pytest.mark.row("D156")
def test_a_mask_leaves_out_the_members_that_do_not_learn_by_hand():
    """As the first test; of two equal transitions, the first teaches member 1 and the second teaches none."""
    online = np.array([[[[1.0, 9.0], [5.0, 9.0]]] * 2, [[[0.0, 1.0], [1.0, 0.0]]] * 2]).reshape(2, 2, 2, 2)
    target = np.array([[[[7.0, 7.0], [7.0, 7.0]]] * 2, [[[8.0, 4.0], [2.0, 9.0]]] * 2]).reshape(2, 2, 2, 2)
    masks = np.array([[[0.0, 1.0], [0.0, 0.0]]], np.float32)
    batch = transitions([1.0, 1.0], [0, 0], [False, False], extras={"bootstrap_masks": masks})
    replay = {"sampler": {"kind": "prioritized"}}
    algorithm = make(discount=0.5, bootstrap_probability=0.5, replay=replay)
    loss, metrics, gradient = compute(algorithm, batch, online, target)
    assert loss == pytest.approx(3.0**2 / 2)  # a mean over transitions
    np.testing.assert_allclose(gradient[0], [[[0.0, 0.0], [3.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    np.testing.assert_allclose(metrics["mean_td_error"], 2.5)  # all members'
    np.testing.assert_allclose(metrics["priorities"], [2.5, 2.5])  # also of what teaches none: no weight is extreme


@pytest.mark.row("D156")
@pytest.mark.parametrize("seed", range(3))
def test_masked_losses_are_those_of_networks_that_learn_from_their_own_transitions(seed):
    rng = np.random.default_rng(seed)
    online, target = rng.normal(0.0, 2.0, (2, 2, 6, 3, 4)).astype(np.float32)
    rewards, made, over = rng.normal(size=6), rng.integers(0, 4, 6), rng.random(6) < 0.4
    masks = (rng.random((1, 6, 3)) < 0.5).astype(np.float32)
    batch = transitions(rewards, made, over, extras={"bootstrap_masks": masks})
    loss, _, gradient = compute(make(members=3, discount=0.9, bootstrap_probability=0.5), batch, online, target)
    expected, moved = 0.0, np.zeros_like(online)
    for k in range(3):  # one network after another, each on its own transitions
        for n in np.flatnonzero(masks[0, :, k]):
            y = rewards[n] + 0.9 * (not over[n]) * target[1, n, k, np.argmax(online[1, n, k])]
            error = y - online[0, n, k, made[n]]
            expected += error**2 / 6
            moved[0, n, k, made[n]] = -2.0 * error / 6
    assert loss == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(gradient, moved, atol=1e-5)


@pytest.mark.row("D156")
def test_an_update_moves_only_the_members_that_learn():
    algorithm = make(members=3, network={"middleware_parameters": {"scheme": []}}, bootstrap_probability=0.5)
    networks = algorithm.build(SPEC)
    assert algorithm.bootstrap == (3, 0.5)
    masks = np.broadcast_to(np.array([1.0, 0.0, 1.0], np.float32), (1, 4, 3))
    batch = transitions([1.0, -1.0, 2.0, 0.5], [0, 1, 0, 1], [True] * 4, extras={"bootstrap_masks": masks})
    model = networks["main"].online.model
    heads = {k: [v for v in model.trainable_variables if f"ensemble_q_head_{k}" in v.path] for k in range(3)}
    before = {k: [np.array(variable) for variable in variables] for k, variables in heads.items()}
    algorithm.update(networks, batch)
    moved = {k: np.abs(np.array(heads[k][0]) - before[k][0]).max() > 0.0 for k in range(3)}
    assert moved == {0: True, 1: False, 2: True}
    assert np.array_equal(heads[1][1], before[1][1])


def test_without_masks_all_members_learn_from_all_transitions():
    algorithm = make()
    algorithm.build(SPEC)
    assert algorithm.bootstrap is None


@pytest.mark.parametrize("probability", [0.0, -0.5, 1.5, float("nan")])
def test_no_other_probability_is_accepted(probability):
    with pytest.raises(ValueError, match=r"bootstrap_probability\n  Input should be (greater|less) than"):
        make(bootstrap_probability=probability)


@pytest.mark.row("D156")
def test_the_trunk_gets_the_mean_of_the_members_gradients():
    """Members of equal weights send K equal gradients into the trunk, which count as one."""
    gradients = {}
    for members in (2, 8):
        algorithm = make(members)
        network = algorithm.build(SPEC)["main"].online
        head = [variable for variable in network.model.trainable_variables if "ensemble_q_head" in variable.path]
        for variable in head:
            variable.assign(np.full(variable.shape, 0.1, np.float32))
        trunk = [variable for variable in network.model.trainable_variables if "ensemble_q_head" not in variable.path]
        rows = {"observation": np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)}
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(network.model(rows)["ensemble_q/q"])
        found = tape.gradient(loss, [*(variable.value for variable in trunk), head[0].value])
        gradients[members] = [np.asarray(gradient) for gradient in found]
    for few, many in zip(gradients[2], gradients[8], strict=True):
        np.testing.assert_allclose(few, many, rtol=1e-5)  # of the head's own layers, too: none is divided there
    assert np.abs(gradients[2][0]).max() > 0


@pytest.mark.row("D156")
def test_an_update_moves_every_member_towards_its_targets():
    algorithm = make(members=4, target_update_every_updates=1)
    networks = algorithm.build(SPEC)
    batch = transitions([1.0, -1.0, 2.0, 0.5], [0, 1, 0, 1], [True] * 4)
    first = algorithm.td_loss(networks, batch)
    for _ in range(300):
        algorithm.update(networks, batch)
    last = algorithm.td_loss(networks, batch)
    assert last.max() < 1e-2 < first.max()
    values = networks["main"].online.predict({"observation": batch.observations["observation"][0]}, ["ensemble_q/q"])
    chosen = values.reshape(4, 4, 2)[np.arange(4), :, [0, 1, 0, 1]]
    np.testing.assert_allclose(chosen, np.repeat([[1.0], [-1.0], [2.0], [0.5]], 4, axis=1), atol=0.1)


@pytest.mark.row("D156")
def test_priors_stay_and_are_the_same_in_the_target_network():
    algorithm = make(head={"prior_scale": 2.0}, target_update_every_updates=2, target_update_rate=0.5)
    networks = algorithm.build(SPEC)
    copies = {"online": networks["main"].online, "target": networks["main"].target}
    before = {name: value for name, value in copies["online"].named_weights().items() if "prior" in name}
    assert len(before) == 4  # kernel and bias of each member
    for _ in range(3):
        algorithm.update(networks, transitions([1.0, -1.0], [0, 1], [True] * 2))
    for copy in copies.values():
        after = copy.named_weights()
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value)
    assert before.keys() <= copies["online"].policy_weights().keys()  # actors need them


def test_members_differ_before_the_first_update():
    network = make(members=3).build(SPEC)["main"].online
    values = network.predict({"observation": np.ones((1, 3), np.float32)}, ["ensemble_q/q"]).reshape(3, 2)
    assert len(np.unique(values.round(6), axis=0)) == 3


def test_a_mask_lowers_the_choice_of_every_member():
    spec = EnvSpec(
        "toy", {"observation": ArraySpec((3,), "float32"), "mask": ArraySpec((2,), "int8", 0, 1)}, SPEC.actions
    )
    network = make(members=3, head={"action_mask": "mask"}).build(spec)["main"].online
    assert network.actions["action"].may_be_masked
    rows = {"observation": np.ones((1, 3), np.float32), "mask": np.array([[1, 0]], np.int8)}
    values = network.predict(rows, ["ensemble_q/q"]).reshape(3, 2)
    assert (values[:, 1] < -5e8).all()
    assert (np.abs(values[:, 0]) < 1e3).all()


@pytest.mark.row("D82", "D156")
def test_the_defaults_are_the_ancestors():
    parameters = make().parameters
    assert parameters.exploration.kind == "member"
    assert RunConfig.model_validate({"algorithm": {"name": "bootstrapped_dqn"}}).algorithm.double is True
    (head,) = make_algorithm(RunConfig.model_validate({"algorithm": {"name": "bootstrapped_dqn"}})).configured_heads()
    assert (head.members, head.decides) == (10, "vote")


@pytest.mark.parametrize("item", [{"kind": "sequence"}])
def test_sequences_are_refused(item):
    with pytest.raises(ValueError, match="bootstrapped_dqn learns from single transitions"):
        make(replay={"item": item})
