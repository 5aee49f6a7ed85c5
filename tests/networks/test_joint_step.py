"""Several networks in one step: whose weights move, and what does not. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest
from keras import ops

from distrl.config.heads import QValueHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.framework.backend import Gradients, Step
from distrl.networks.joint_step import TrainedNumber, follow, held, part_of, states_of
from distrl.networks.wrapper import NetworkWrapper
from distrl.types import ArraySpec, BoxSpec, EnvSpec

SPEC = EnvSpec("x", {"observation": ArraySpec((2,), "float32")}, {"action": BoxSpec((1,), (-1.0,), (1.0,))})
ROWS = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)


def wrap(head, name, *, target=False, **parameters):
    given = {"middleware_parameters": {"scheme": "Empty"}, "optimizer_type": "SGD", "learning_rate": 0.1} | parameters
    parameters = NetworkParameters.model_validate(given)
    return NetworkWrapper(parameters, SPEC, [head], has_target=target, has_global=False, name=name, seed=1)


def test_each_network_moves_by_its_own_optimizer_and_clipping():
    """Losses are the means of values, so the gradients of the kernels are the means of the rows, of the biases 1."""
    one = wrap(ValueHeadParameters(), "one")
    other = wrap(ValueHeadParameters(), "other", learning_rate=1.0, clip_gradients=0.5)
    before = [network.online.get_weights() for network in (one, other)]

    def function(rows):
        return sum(ops.mean(network.online.model({"observation": rows})["value"]) for network in (one, other)), {}

    told = Step(function, [part_of(one), part_of(other)], states_of([one, other]))(ROWS)
    slope = ROWS.mean(axis=0)[:, None]
    norm = np.sqrt(np.square(slope).sum() + 1.0)
    assert told["gradient_norm"] == pytest.approx(np.sqrt(2.0) * norm)
    assert told["learning_rate"] == pytest.approx(0.1)
    for network, old, factor in zip((one, other), before, (0.1, 0.5 / norm), strict=True):
        kernel, bias = network.online.get_weights()
        np.testing.assert_allclose(old[0] - kernel, factor * slope, rtol=1e-5)
        np.testing.assert_allclose(old[1] - bias, factor, rtol=1e-5)


def test_a_target_copy_follows_within_the_step():
    network = wrap(ValueHeadParameters(), "one", target=True)
    first = network.online.get_weights()

    def function(rows):
        follow(network, 0.25)
        return ops.mean(network.online.model({"observation": rows})["value"]), {}

    step = Step(function, [part_of(network)], states_of([network]))
    step(ROWS)
    second = network.online.get_weights()
    for given, target in zip(first, network.target.get_weights(), strict=True):
        np.testing.assert_array_equal(target, given)  # at the first update both copies were still equal
    step(ROWS)
    for old, new, target in zip(first, second, network.target.get_weights(), strict=True):
        np.testing.assert_allclose(target, 0.75 * old + 0.25 * new, rtol=1e-6)
    assert step.traces == 1


def test_what_is_held_is_a_constant_through_which_gradients_pass():
    """Q is w . (observation, action) + b, so its gradient by the action is the action's weight."""
    critic = wrap(QValueHeadParameters(), "critic")
    weights = critic.online.model.trainable_variables
    action = keras.Variable(np.float32([[0.3]]))

    def function(rows):
        given = {"observation": rows, "action": ops.multiply(action.value, 1.0)}
        with held(critic.online):
            value = ops.sum(critic.online.model(given)["q_value"])
        return value, {"value": value}

    _, told, (of_action, *of_weights) = Gradients(function, [action, *weights], [])(ROWS[:1])
    assert not any(gradient.any() for gradient in of_weights)
    zero, one = (
        float(critic.online.predict({"observation": ROWS[:1], "action": np.float32([[a]])})[0]) for a in (0.0, 1.0)
    )
    assert float(of_action[0, 0]) == pytest.approx(one - zero, rel=1e-4)
    assert float(told["value"]) == pytest.approx(zero + 0.3 * (one - zero), rel=1e-4)


def test_a_trained_number_moves_and_is_saved_with_the_moments_of_its_optimizer():
    number = TrainedNumber("log_temperature", 0.5, learning_rate=0.01)
    step = Step(lambda rows: (3.0 * number.variable.value, {}), [number.part], [])
    step(ROWS)
    assert float(number.variable) == pytest.approx(0.49, abs=1e-6)  # Adam's first step is its rate
    names = sorted(name.rpartition("/")[2] for name in number.variables)
    assert names == ["iteration", "log_temperature", "log_temperature_momentum", "log_temperature_velocity"]


@pytest.mark.parametrize("inside", [True, False])
def test_a_network_called_while_another_is_held_is_trained_as_outside(inside):
    """The policy's action goes into a held critic. Where the policy is called makes no difference to its gradient."""
    policy, critic = wrap(ValueHeadParameters(), "policy"), wrap(QValueHeadParameters(), "critic")
    weights = policy.online.model.trainable_variables

    def function(rows):
        action = None if inside else policy.online.model({"observation": rows})["value"][:, None]
        with held(critic.online):
            if inside:
                action = policy.online.model({"observation": rows})["value"][:, None]
            return ops.sum(critic.online.model({"observation": rows, "action": action})["q_value"]), {}

    _, _, gradients = Gradients(function, weights, [])(ROWS)
    zero, one = (
        float(critic.online.predict({"observation": ROWS[:1], "action": np.float32([[a]])})[0]) for a in (0.0, 1.0)
    )
    # Q is linear in the action and the action is w . observation + b.
    np.testing.assert_allclose(gradients[0], (one - zero) * ROWS.sum(axis=0)[:, None], rtol=1e-4)
    np.testing.assert_allclose(gradients[1], [2.0 * (one - zero)], rtol=1e-4)


def test_only_what_the_held_network_assigns_is_discarded():
    """A moving average of another network, assigned inside, is kept; a held network's is not."""
    normalized = {"input_embedders_parameters": {"observation": {"normalize": True}}}
    middleware = {"middleware_parameters": {"scheme": [4], "batchnorm": True}}
    one, other = (wrap(ValueHeadParameters(), name, **normalized, **middleware) for name in ("one", "other"))
    networks = [one, other]

    def function(rows):
        with held(one.online):
            values = [network.online.model({"observation": rows}, training=True)["value"] for network in networks]
        return sum(map(ops.sum, values)), {}

    def averages(network):
        return [np.array(variable) for variable in network.online.state_variables]

    before = [averages(network) for network in networks]
    Step(function, [part_of(other)], states_of(networks))(ROWS)
    after = [averages(network) for network in networks]
    assert all((old == new).all() for old, new in zip(before[0], after[0], strict=True))
    assert any((old != new).any() for old, new in zip(before[1], after[1], strict=True))
