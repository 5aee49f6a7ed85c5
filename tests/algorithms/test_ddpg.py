"""DDPG against a slow NumPy twin, with a critic and a policy by hand. Runs on TensorFlow and JAX."""

import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms import arm
from tests.traces import traces

N, RATE = arm.N, 0.25


fresh = arm.fresh_build("ddpg", target_update_rate=RATE)


def values(copy, observation, actions):
    return copy.predict({"observation": observation, "action": actions.astype("float32")})


def test_every_loss_is_that_of_a_slow_twin(fresh):
    algorithm, networks = fresh
    main, critic, batch = networks["main"], networks["critic"], arm.transitions()
    for network in (main, critic):  # copies that differ, which the update moves towards each other first
        network.target.set_weights([weight + 0.3 for weight in network.target.get_weights()])
    slow = [network.target.get_weights() for network in (main, critic)]
    for network in (main, critic):
        network.update_target_network(RATE)
    before, after = batch.observations["observation"]
    greedy = arm.scaled(main.online.predict({"observation": before}))
    following = arm.scaled(main.target.predict({"observation": after}))
    y = arm.targets(batch, values(critic.target, after, following))
    taken = values(critic.online, before, arm.scaled(batch.actions["action"][0]))
    losses = [batch.importance_weights[i] * 0.5 * (y[i] - taken[i]) ** 2 for i in range(N)]
    worth = [batch.importance_weights[i] * values(critic.online, before, greedy)[i] for i in range(N)]
    for network, weights in zip((main, critic), slow, strict=True):
        network.target.set_weights(weights)
    update = algorithm.update(networks, batch)
    arm.assert_metrics(
        update,
        policy_loss=-np.mean(worth),
        critic_loss=np.mean(losses),
        mean_value=taken.mean(),
        mean_target=np.mean(y),
        mean_td_error=np.mean(np.abs(y - taken)),
        loss=np.mean(losses) - np.mean(worth),
    )
    np.testing.assert_allclose(update.priorities, np.abs(y - taken), rtol=1e-4)


def linear(networks):
    """mu(o) = o_0 in the middle of its range, Q(o, a) = 0.5 o_0 + 2 a_0 - a_1, by weights without hidden layers."""
    main, critic = networks["main"], networks["critic"]
    for network in (main, critic):
        for variable in network.online.model.trainable_variables:
            variable.assign(0.0 * variable.value)
    inputs = [name for name in sorted(critic.online.model.input)]
    assert inputs == ["action", "observation"]
    kernel, _ = critic.online.model.trainable_variables
    kernel.assign(np.float32([[2.0], [-1.0], [0.5], [0.0], [0.0]]))
    for network in (main, critic):
        network.update_target_network()


@pytest.mark.row("D167")
def test_the_policy_moves_along_the_gradient_of_the_action():
    """dQ/da is (2, -1) and mu(o) is 0: with SGD the bias of the tanh moves by rate x (2, -1), in units of [-1, 1].

    The critic's error is y - Q(o, a), with y = r / 2 + .9 Q(o', 0).
    """
    network = {"middleware_parameters": {"scheme": "Empty"}, "optimizer_type": "SGD", "learning_rate": 0.1}
    plain = {"input_embedders_parameters": {}, "clip_gradients": None} | network
    algorithm, networks = arm.make("ddpg", plain)
    linear(networks)
    one = {
        "observations": {"observation": np.float32([[[1.0, 0.0, 0.0]] * N, [[2.0, 0.0, 0.0]] * N])},
        "actions": {"action": np.float32([[[1.0, 0.25]] * N])},  # scaled: (.5, -.5)
        "rewards": np.full((1, N), 4.0, np.float32),
        "terminated": np.zeros((1, N), bool),
        "truncated": np.zeros((1, N), bool),
        "bootstrap_steps": np.ones((1, N), np.int32),
        "importance_weights": np.ones(N, np.float32),
    }
    update = algorithm.update(networks, arm.transitions(**one))
    q, y = 0.5 + 1.0 + 0.5, 2.0 + 0.9 * 1.0
    assert update.metrics["mean_value"] == pytest.approx(q)
    assert update.metrics["critic_loss"] == pytest.approx(0.5 * (y - q) ** 2)
    assert update.metrics["policy_loss"] == pytest.approx(-0.5)
    _, bias = arm.trained(networks["main"].online)
    np.testing.assert_allclose(bias, [0.2, -0.1], rtol=1e-5)
    kernel, bias = arm.trained(networks["critic"].online)
    move = 0.1 * (y - q)
    np.testing.assert_allclose(kernel[:, 0], [2 + 0.5 * move, -1 - 0.5 * move, 0.5 + move, 0.0, 0.0], rtol=1e-5)
    np.testing.assert_allclose(bias, [move], rtol=1e-5)


@pytest.mark.row("D167")
def test_policy_and_targets_move_with_every_update(fresh):
    algorithm, networks = fresh
    expected = {name: arm.trained(network.target) for name, network in networks.items()}
    for seed in range(3):
        for name, network in networks.items():
            fast = arm.trained(network.online)
            expected[name] = [RATE * new + (1 - RATE) * old for new, old in zip(fast, expected[name], strict=True)]
        algorithm.update(networks, arm.transitions(seed))
        for name, network in networks.items():
            for one, other in zip(expected[name], arm.trained(network.target), strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)
    assert [int(network.optimizer.iterations) for network in networks.values()] == [3, 3]
    assert traces(algorithm._step) == 1


def test_a_restored_training_goes_on_bit_by_bit(fresh):
    arm.assert_goes_on_bit_by_bit(*fresh)


@pytest.mark.row("D167")
def test_defaults_are_the_papers():
    parameters = arm.config("ddpg").algorithm
    assert (parameters.target_update_rate, parameters.batch_size) == (0.001, 64)
    assert parameters.replay.samples_per_insert == 64.0  # one update for each step
    noise = arm.config("ddpg").exploring
    # of the range, which is 2 in the paper's environments
    assert (noise.kind, noise.theta, 2.0 * noise.sigma, noise.dt) == ("ornstein_uhlenbeck", 0.15, 0.2, 1.0)


def test_there_is_one_critic_whose_layers_can_be_others_than_the_policys():
    _, networks = arm.make("ddpg", critic_layers=[7, 5])
    shapes = [tuple(weight.shape) for weight in networks["critic"].online.model.trainable_variables]
    assert shapes == [(5, 7), (7,), (7, 5), (5,), (5, 1), (1,)]
    assert networks["main"].online.model.trainable_variables[0].shape == (3, 8)
    assert list(networks["critic"].online.outputs) == ["q_value"]


def test_what_it_cannot_train_is_refused():
    with pytest.raises(ConfigError, match="algorithm ddpg: action 'action' of C is discrete, which it does not take"):
        arm.make("ddpg", spec=EnvSpec("C", arm.OBSERVATIONS, {"action": DiscreteSpec(2)}))
    with pytest.raises(ConfigError, match="algorithm ddpg: action 'action' of U has the bounds"):
        arm.make("ddpg", spec=EnvSpec("U", arm.OBSERVATIONS, {"action": BoxSpec((1,), (None,), (1.0,))}))
    box = BoxSpec((1,), (-1.0,), (1.0,))
    with pytest.raises(
        ConfigError, match="algorithm ddpg: R has the actions arm, hand, and it takes a single one; use algorithm sac"
    ) as refused:
        arm.make("ddpg", spec=EnvSpec("R", arm.OBSERVATIONS, {"arm": box, "hand": box}))
    assert "\n" not in str(refused.value)
