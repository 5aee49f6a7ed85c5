"""Several networks in one step: whose weights move, and what does not. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest
from keras import ops

from distrl.config.heads import QValueHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.copies import Copies
from distrl.networks.framework.backend import Gradients
from distrl.networks.framework.differentiation import Part
from distrl.networks.steps import Minibatches, Step, TrainedNumber, held, sequences_of
from distrl.types import ArraySpec, Batch, BoxSpec, EnvSpec
from tests.traces import traces

SPEC = EnvSpec("x", {"observation": ArraySpec((2,), "float32")}, {"action": BoxSpec((1,), (-1.0,), (1.0,))})
ROWS = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)


def network_of(head, name, *, target=False, **parameters):
    given = {"middleware_parameters": {"scheme": "Empty"}, "optimizer_type": "SGD", "learning_rate": 0.1} | parameters
    parameters = NetworkParameters.model_validate(given)
    return Copies(parameters, SPEC, [head], has_target=target, has_global=False, name=name, seed=1)


def test_each_network_moves_by_its_own_optimizer_and_clipping():
    """Losses are the means of values, so the gradients of the kernels are the means of the rows, of the biases 1."""
    one = network_of(ValueHeadParameters(), "one")
    other = network_of(ValueHeadParameters(), "other", learning_rate=1.0, clip_gradients=0.5)
    before = [network.online.get_weights() for network in (one, other)]

    def function(rows):
        return sum(ops.mean(network.online.model({"observation": rows})["value"]) for network in (one, other)), {}

    told = Step(function, [one.part(), other.part()], [*one.step_states, *other.step_states])(ROWS)
    slope = ROWS.mean(axis=0)[:, None]
    norm = np.sqrt(np.square(slope).sum() + 1.0)
    assert told["gradient_norm"] == pytest.approx(np.sqrt(2.0) * norm)
    assert told["learning_rate"] == pytest.approx(0.1)
    for network, old, factor in zip((one, other), before, (0.1, 0.5 / norm), strict=True):
        kernel, bias = network.online.get_weights()
        np.testing.assert_allclose(old[0] - kernel, factor * slope, rtol=1e-5)
        np.testing.assert_allclose(old[1] - bias, factor, rtol=1e-5)


def test_a_target_copy_follows_within_the_step():
    network = network_of(ValueHeadParameters(), "one", target=True)
    first = network.online.get_weights()

    def function(rows):
        network.follow(0.25)
        return ops.mean(network.online.model({"observation": rows})["value"]), {}

    step = Step(function, [network.part()], network.step_states)
    step(ROWS)
    second = network.online.get_weights()
    for given, target in zip(first, network.target.get_weights(), strict=True):
        np.testing.assert_array_equal(target, given)  # at the first update both copies were still equal
    step(ROWS)
    for old, new, target in zip(first, second, network.target.get_weights(), strict=True):
        np.testing.assert_allclose(target, 0.75 * old + 0.25 * new, rtol=1e-6)
    assert traces(step) == 1


def test_what_is_held_is_a_constant_through_which_gradients_pass():
    """Q is w . (observation, action) + b, so its gradient by the action is the action's weight."""
    critic = network_of(QValueHeadParameters(), "critic")
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
    policy, critic = network_of(ValueHeadParameters(), "policy"), network_of(QValueHeadParameters(), "critic")
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
    one, other = (network_of(ValueHeadParameters(), name, **normalized, **middleware) for name in ("one", "other"))
    networks = [one, other]

    def function(rows):
        with held(one.online):
            values = [network.online.model({"observation": rows}, training=True)["value"] for network in networks]
        return sum(map(ops.sum, values)), {}

    def averages(network):
        return [np.array(variable) for variable in network.online.state_variables]

    before = [averages(network) for network in networks]
    Step(function, [other.part()], [*one.step_states, *other.step_states])(ROWS)
    after = [averages(network) for network in networks]
    assert all((old == new).all() for old, new in zip(before[0], after[0], strict=True))
    assert any((old != new).any() for old, new in zip(before[1], after[1], strict=True))


class Periods:
    """loss = mean(x) (a + 10 b): a moves with every update by 1 x mean(x), b with every third by 0.1 x 10 x mean(x)."""

    def __init__(self, **arguments):
        self.a, self.b = (keras.Variable(np.float32(0.0), name=name) for name in "ab")
        self.optimizers = keras.optimizers.SGD(1.0), keras.optimizers.SGD(0.1)
        for optimizer, variable in zip(self.optimizers, (self.a, self.b), strict=True):
            optimizer.build([variable])
        # The count is of the part that moves with every update, wherever it stands.
        parts = [Part([self.b], self.optimizers[1], every=3), Part([self.a], self.optimizers[0])]
        self.step = Step(self.loss, parts, [], **arguments)

    def loss(self, rows):
        return ops.mean(rows) * (self.a.value + 10.0 * self.b.value), {}

    @property
    def moved(self):
        return (-float(self.a), -float(self.b), *(int(optimizer.iterations) for optimizer in self.optimizers))


def test_a_part_with_a_period_moves_with_every_kth_update():
    """x = 1, 2, … 7: the third and the sixth update move b, each by its own gradient."""
    periods = Periods()
    seen = []
    for x in range(1, 8):
        periods.step(np.float32([x, x]))
        seen.append(periods.moved)
    a = np.cumsum(range(1, 8))
    expected = [(a[at], b, at + 1, count) for at, (b, count) in enumerate([(0, 0)] * 2 + [(3, 1)] * 3 + [(9, 2)] * 2)]
    assert [tuple(round(number, 3) for number in row) for row in seen] == expected
    assert traces(periods.step) == 1


def test_an_update_that_is_refused_is_not_counted_for_a_period():
    periods = Periods()
    for x in (1.0, np.nan, 2.0, 3.0):
        periods.step(np.float32([x, x]))
    assert periods.moved == pytest.approx((6.0, 3.0, 3, 1))


def rows_by(order):
    return Minibatches(lambda data, items: ops.take(data, items, axis=0), lambda data: np.int32(order))


def test_periods_count_minibatches():
    periods = Periods(minibatches=rows_by([[0], [1], [2], [3]]))
    metrics = periods.step(np.float32([1, 2, 3, 4]))
    assert periods.moved == pytest.approx((10.0, 3.0, 4, 1))
    periods.step(np.float32([1, 2, 3, 4]))  # its second minibatch is the sixth
    assert (periods.moved, metrics["optimizer_steps"]) == (pytest.approx((20.0, 5.0, 8, 2)), 4)


def test_periods_need_a_part_that_counts():
    number = TrainedNumber("a", 0.0, 1.0)
    with pytest.raises(ValueError, match="one must move with every update"):
        Step(lambda rows: (number.variable.value, {}), [Part([number.variable], number.optimizer, every=2)], [])


@pytest.mark.parametrize("minibatches", [None, rows_by([[0], [1]])])
def test_gradients_are_reduced_before_they_are_clipped_and_applied(minibatches):
    """Another process has seen gradients of zero: the mean over both is half of this one's, in every part."""
    periods = Periods(reduce=lambda gradients: [0.5 * gradient for gradient in gradients], minibatches=minibatches)
    metrics = periods.step(np.float32([2, 4]))
    steps = 1 if minibatches is None else 2
    assert metrics["gradient_norm"] == pytest.approx(np.hypot(0.5 * 3.0, 0.5 * 30.0))
    assert periods.moved == pytest.approx((steps * 1.5 if steps == 1 else 3.0, 0.0, steps, 0))


T, N = 3, 6
LSTM = {"middleware_parameters": {"scheme": [4], "kind": "lstm"}}


def unroll_loss(outputs, batch):
    error = ops.where(batch.valid, outputs["value"][:-1] - batch.rewards, 0.0)
    terms = {"value": ops.mean(error * error), "policy": ops.mean(outputs["policy/action"] ** 2)}
    return terms, {"error": ops.mean(error)}


def make_batch(state=()):
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    return Batch(
        observations={"observation": numbers(T + 1, N, 4)},
        actions={"action": rng.integers(0, 2, (T, N)).astype(np.int32)},
        rewards=numbers(T, N),
        terminated=np.zeros((T, N), bool),
        truncated=np.zeros((T, N), bool),
        valid=rng.random((T, N)) < 0.8,
        behaviour_log_probabilities=numbers(T, N),
        recurrent_state={name: numbers(N, 256) for name in state},
        reward_moments={"count": np.ones(1)},
    )


@pytest.mark.parametrize(("parameters", "state"), [({}, ()), (LSTM, ("lstm_h", "lstm_c"))])
def test_minibatches_are_steps_one_after_the_other(wrap, parameters, state):
    batch, whole, split = make_batch(state), wrap(**parameters), wrap(**parameters)
    assert set(split.online.recurrent_state) == set(state)
    step = whole.train_step(unroll_loss)
    told = [step(sequences_of(batch, np.arange(first, first + 2))) for first in (0, 2, 4)]
    metrics = split.train_step(unroll_loss, minibatches=3)(batch)
    for one, other in zip(whole.online.get_weights(), split.online.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert metrics["optimizer_steps"] == 3
    assert metrics["finite"]
    for name in ("loss", "error", "gradient_norm"):
        assert metrics[name] == pytest.approx(np.mean([one[name] for one in told]), rel=1e-5)


def test_a_minibatch_that_is_not_finite_refuses_the_whole_update(wrap):
    batch, network = make_batch(), wrap()
    before = network.online.get_weights()
    batch.rewards[0, N - 1] = np.nan
    batch.valid[0, N - 1] = True
    metrics = network.train_step(unroll_loss, minibatches=2)(batch)
    assert not metrics["finite"]
    for one, other in zip(before, network.online.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_sequences_keep_their_rows_and_their_state():
    batch = make_batch(("h",))
    taken = sequences_of(batch, np.int32([4, 1]))
    np.testing.assert_array_equal(taken.observations["observation"], batch.observations["observation"][:, [4, 1]])
    np.testing.assert_array_equal(taken.rewards, batch.rewards[:, [4, 1]])
    np.testing.assert_array_equal(taken.recurrent_state["h"], batch.recurrent_state["h"][[4, 1]])
    assert (taken.reward_moments, taken.bootstrap_steps, taken.importance_weights) == ({}, None, None)
