"""The compiled step, gradients and application of gradients. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest
from keras import ops

from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.backend import NAME, Apply, Gradients, Step
from distrl.networks.network_wrapper import NetworkWrapper
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
T, N = 3, 4


def batch(value=1.0, rows=3, sequences=2):
    """Observations hold `value`; everything else is empty of meaning."""
    shape = (rows, sequences)
    return Batch(
        observations={"x": np.full((rows + 1, sequences), value, np.float32)},
        actions={"action": np.zeros(shape, np.int32)},
        rewards=np.zeros(shape, np.float32),
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        valid=np.ones(shape, bool),
        behaviour_log_probabilities=np.zeros(shape, np.float32),
        recurrent_state={},
    )


class Line:
    """loss = mean(slope * x), so the gradient of slope is mean(x); `unused` has none, `seen` counts the calls."""

    def __init__(self, optimizer=None, function=None, clip=list):
        self.slope = keras.Variable(np.float32(2.0), name="slope")
        self.unused = keras.Variable(np.float32(7.0), name="unused")
        self.seen = keras.Variable(np.float32(0.0), name="seen", trainable=False)
        self.optimizer = optimizer or keras.optimizers.SGD(0.5)
        self.optimizer.build([self.slope, self.unused])
        self.step = Step(function or self.loss, [self.slope, self.unused], [self.seen], self.optimizer, clip)

    def loss(self, batch):
        self.seen.assign(self.seen + 1.0)
        y = self.slope * batch.observations["x"]
        return ops.mean(y), {"top": ops.max(y), "bottom": ops.min(y)}

    @property
    def values(self):
        return [np.array(variable) for variable in (self.slope, self.unused, self.seen, *self.optimizer.variables)]


def test_one_step_by_hand():
    line = Line()
    metrics = line.step(batch(value=3.0))
    known = {"top": 6.0, "bottom": 6.0, "loss": 6.0, "gradient_norm": 3.0, "learning_rate": 0.5, "finite": True}
    assert metrics == known
    assert list(metrics) == list(known)
    assert float(line.slope) == 0.5  # 2 - 0.5 * 3
    assert float(line.unused) == 7.0
    assert float(line.seen) == 1.0
    assert int(line.optimizer.iterations) == 1


def test_the_loss_sees_the_whole_batch():
    line = Line()

    def loss(batch):
        weights = ops.cast(batch.valid, "float32") * (batch.rewards + ops.cast(batch.actions["action"], "float32"))
        return ops.sum(line.slope * batch.observations["x"][:-1] * weights), {}

    step = Step(loss, [line.slope, line.unused], [], line.optimizer, list)
    given = batch()._replace(
        rewards=np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        actions={"action": np.ones((3, 2), np.int32)},
        valid=np.array([[1, 0], [0, 0], [0, 1]], bool),
    )
    assert step(given)["loss"] == 2.0 * ((1 + 1) + (6 + 1))


def test_the_norm_is_reported_before_clipping():
    line = Line(keras.optimizers.SGD(1.0), clip=lambda gradients: [0.2 * gradient for gradient in gradients])
    assert line.step(batch(value=5.0))["gradient_norm"] == 5.0
    assert float(line.slope) == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_an_update_that_is_not_finite_changes_nothing(bad):
    line = Line(keras.optimizers.Adam(0.1))
    line.step(batch())
    before = line.values
    metrics = line.step(batch(value=bad))
    assert metrics["finite"] is False
    for old, new in zip(before, line.values, strict=True):
        np.testing.assert_array_equal(old, new)
    assert line.step(batch())["finite"] is True
    assert float(line.slope) != before[0]
    assert float(line.seen) == 2.0


def test_traced_once_per_shape():
    line = Line()
    assert line.step.traces == 0
    for value in range(5):
        line.step(batch(value=float(value)))
    assert line.step.traces == 1
    line.step(batch(rows=4))
    line.step(batch())
    assert line.step.traces == 2


def test_the_learning_rate_is_that_of_the_update():
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.5, staircase=True)
    line = Line(keras.optimizers.SGD(schedule))
    assert [line.step(batch())["learning_rate"] for _ in range(3)] == [1.0, 0.5, 0.25]


def test_gradients_change_nothing():
    line = Line()
    gradients = Gradients(line.loss, [line.slope, line.unused], [line.seen])
    before = line.values
    for value in (3.0, 5.0):
        loss, named, found = gradients(batch(value=value))
        assert (loss, float(named["top"])) == (2.0 * value, 2.0 * value)
        assert [float(gradient) for gradient in found] == [value, 0.0]
    assert gradients.traces == 1
    assert all(np.array_equal(old, new) for old, new in zip(before, line.values, strict=True))


def test_gradients_are_clipped_where_they_are_computed():
    line, seen = Line(), []

    def clip(gradients):
        seen.append(len(gradients))
        return [0.5 * gradient for gradient in gradients]

    gradients = Gradients(line.loss, [line.slope, line.unused], [line.seen], clip)
    for value in (3.0, 5.0):
        assert [float(gradient) for gradient in gradients(batch(value=value))[2]] == [0.5 * value, 0.0]
    assert seen == [2]  # while tracing, and never again


def test_given_gradients_are_scaled_and_applied():
    line = Line()
    given = [np.float32(4.0), np.float32(-2.0)]
    apply = Apply(line.optimizer, [line.slope, line.unused])
    apply(given)
    assert [float(line.slope), float(line.unused)] == [0.0, 8.0]
    apply(given, 0.5)
    assert [float(line.slope), float(line.unused)] == [-1.0, 8.5]
    assert given == [4.0, -2.0]
    assert int(line.optimizer.iterations) == 2


def wrap(seed=1, **parameters):
    small = {"middleware_parameters": {"scheme": [8]}, "learning_rate": 0.05} | parameters
    heads = (PolicyHeadParameters(), ValueHeadParameters())
    return NetworkWrapper(
        NetworkParameters.model_validate(small), SPEC, heads, has_target=True, has_global=False, name="main", seed=seed
    )


def loss(outputs, batch):
    error = outputs["value"][:-1] - batch.rewards
    terms = {"policy": ops.mean(outputs["policy/action"] ** 2), "value": ops.mean(error * error)}
    return terms, {"error": ops.mean(error)}


def batches(network, count, seed=0):
    rng = np.random.default_rng(seed)
    state = network.online.assembly.recurrent_state
    for _ in range(count):
        yield Batch(
            observations={"observation": rng.standard_normal((T + 1, N, 4)).astype(np.float32)},
            actions={"action": np.zeros((T, N), np.int32)},
            rewards=rng.standard_normal((T, N)).astype(np.float32),
            terminated=np.zeros((T, N), bool),
            truncated=np.zeros((T, N), bool),
            valid=rng.random((T, N)) < 0.8,
            behaviour_log_probabilities=np.zeros((T, N), np.float32),
            recurrent_state={name: np.zeros((N, *spec.shape), np.float32) for name, spec in state.items()},
        )


def assert_same(left, right):
    assert left.keys() == right.keys()
    for group in left:
        assert left[group].keys() == right[group].keys()
        for path in left[group]:
            np.testing.assert_array_equal(left[group][path], right[group][path], err_msg=f"{group} {path}")


RANDOM = {
    "input_embedders_parameters": {"observation": {"scheme": [6], "normalize": True, "batchnorm": True}},
    "middleware_parameters": {"scheme": [8], "dense_layer": "noisy_dense", "dropout_rate": 0.2},
}
NETWORKS = {
    "random": RANDOM,
    "lstm": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 5}},
    "schedule": {"learning_rate_decay_rate": 0.5, "learning_rate_decay_steps": 2, "optimizer_type": "RMSProp"},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_restored_training_goes_on_bit_by_bit_and_is_traced_once(name):
    network, other = wrap(**NETWORKS[name]), wrap(seed=2, **NETWORKS[name])
    step, other_step = network.train_step(loss), other.train_step(loss)
    for given in batches(network, 2, seed=1):
        step(given)
        network.observe(given)
        network.update_target_network(0.3)
    saved = network.state_arrays()
    expected = [step(given) for given in batches(network, 3, seed=2)]
    for given in batches(other, 1, seed=3):
        other_step(given)  # somewhere else entirely
    other.restore(saved)
    assert_same(other.state_arrays(), saved)
    assert [other_step(given) for given in batches(other, 3, seed=2)] == expected
    assert_same(other.state_arrays(), network.state_arrays())
    assert (step.traces, other_step.traces) == (1, 1)


def test_states_of_layers_come_out_of_the_step():
    network = wrap(**RANDOM)
    step = network.train_step(loss)
    seen = []
    for given in batches(network, 3):
        step(given)
        state = network.state_arrays()["online"]
        seen.append({name: array for name, array in state.items() if "moving" in name or "noise" in name})
    kinds = {name.rpartition("/")[2] for name in seen[0]}
    assert {"moving_mean", "moving_variance"} < kinds
    assert any("dropout_noise" in name for name in seen[0])
    for name in seen[0]:
        assert not np.array_equal(seen[0][name], seen[1][name]), name
        assert not np.array_equal(seen[1][name], seen[2][name]), name


def test_a_network_is_left_as_it_was_by_a_batch_that_is_not_finite():
    network = wrap(**RANDOM)
    step = network.train_step(loss)
    good, bad = batches(network, 2)
    step(good)
    before = network.state_arrays()
    bad.rewards[1, 2] = np.nan
    assert step(bad)["finite"] is False
    assert_same(network.state_arrays(), before)


def test_arrays_that_become_weights_are_copied():
    network = wrap()
    arrays = [np.array(array) for array in network.online.get_weights()]
    network.set_weights(arrays)
    for array in arrays:
        array[...] = 9.0
    assert not any((array == 9.0).any() for array in network.online.get_weights())


def test_the_framework_is_the_one_that_keras_runs_on():
    assert keras.backend.backend() == NAME
