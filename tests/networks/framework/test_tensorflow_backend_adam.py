"""Adam in one operation per weight: by hand, beside Keras', and not taken; every other optimizer stays Keras'."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from distrl.config.optimizers import OptimizerParameters
from distrl.networks.framework import tensorflow_backend
from distrl.networks.framework.optimizers import create_optimizer

SHAPES = ((3, 2), ())
ONE = "ResourceApplyAdam"


class Stepped:
    """Weights of these values and an optimizer of their own, stepped in one traced function."""

    def __init__(self, optimizer, values):
        self.optimizer = optimizer
        self.weights = [keras.Variable(np.float32(value), name=f"w{index}") for index, value in enumerate(values)]
        optimizer.build(self.weights)
        # Traced once, for what these numbers are, as in a learner.
        self._step = tf.function(
            lambda gradients, goes: tensorflow_backend._apply(optimizer, gradients, self.weights, goes), autograph=False
        )

    def step(self, gradients, goes=True):
        self._step([tf.constant(gradient, tf.float32) for gradient in gradients], tf.constant(goes))

    @property
    def values(self):
        return [np.array(variable) for variable in (*self.weights, *self.optimizer.variables)]

    def operations(self):
        """Names of the kinds of operations that a step is made of, branches included."""
        gradients = [tf.zeros(weight.shape) for weight in self.weights]
        graph = self._step.get_concrete_function(gradients, tf.constant(True)).graph.as_graph_def()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        return [node.op for node in nodes]


def random_arrays(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def test_two_steps_by_hand():
    """Kingma and Ba 2015, algorithm 1, with gradients 1 and -2:

    m = 0.1, then 0.9 * 0.1 - 0.1 * 2 = -0.11;  v = 0.01, then 0.99 * 0.01 + 0.01 * 4 = 0.0499
    the first step is -rate; of the second, m / 0.19 = -0.578947 and sqrt(v / 0.0199) = 1.583520, so 0.1 * 0.365608
    """
    adam = Stepped(keras.optimizers.Adam(0.1, beta_1=0.9, beta_2=0.99, epsilon=1e-9), [1.0])
    adam.step([1.0])
    np.testing.assert_allclose(adam.values, [0.9, 1, 0.1, 0.1, 0.01], rtol=1e-6)  # weight, count, rate, m, v
    adam.step([-2.0])
    np.testing.assert_allclose(adam.values, [0.9 + 0.0365608, 2, 0.1, -0.11, 0.0499], rtol=1e-5)


def test_epsilon_is_outside_the_root():
    """g = 3: m = 0.3, v = 0.09, and alpha = 0.1 * sqrt(0.01) / 0.1 = 0.1, so the step is 0.1 * 0.3 / (0.3 + 0.7)."""
    adam = Stepped(keras.optimizers.Adam(0.1, beta_1=0.9, beta_2=0.99, epsilon=0.7), [1.0])
    adam.step([3.0])
    np.testing.assert_allclose(adam.values[0], 1.0 - 0.1 * 0.3 / (0.3 + 0.7), rtol=1e-5)


COSINE = {
    "learning_rate_warm_up_updates": 3,
    "learning_rate_schedule": "cosine",
    "learning_rate_schedule_updates": 10,
    "learning_rate_final": 0.01,
}


@pytest.mark.parametrize("schedule", [{}, COSINE])
def test_it_goes_where_keras_goes(schedule):
    parameters = OptimizerParameters.model_validate({"learning_rate": 0.05} | schedule)
    ours, theirs = (Stepped(create_optimizer(parameters), random_arrays(0)) for _ in range(2))
    for seed in range(1, 13):
        ours.step(random_arrays(seed))
        theirs.optimizer.apply([tf.constant(gradient) for gradient in random_arrays(seed)], theirs.weights)
    for own, other in zip(ours.values, theirs.values, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=1e-7)
    assert (ours.operations().count(ONE), int(ours.optimizer.iterations)) == (len(SHAPES), 12)


@pytest.mark.parametrize(("epsilon", "bad", "steps_before"), [(1e-7, np.nan, 2), (0.0, np.inf, 0), (0.0, 1.0, 2)])
def test_a_step_that_is_not_taken_changes_nothing(epsilon, bad, steps_before):
    adam, twin = (Stepped(keras.optimizers.Adam(0.1, epsilon=epsilon), random_arrays(0)) for _ in range(2))
    for seed in range(steps_before):
        for one in (adam, twin):
            one.step(random_arrays(seed))
    before = adam.values
    for _ in range(2):
        adam.step([np.full(shape, bad, np.float32) for shape in SHAPES], goes=False)
    for old, new in zip(before, adam.values, strict=True):
        np.testing.assert_array_equal(old, new)
    for one in (adam, twin):  # and the next one goes as if nothing had been
        one.step(random_arrays(7))
    for one, other in zip(adam.values, twin.values, strict=True):
        np.testing.assert_array_equal(one, other)


OTHERS = {
    "amsgrad": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    "weight_decay": lambda: keras.optimizers.Adam(0.1, weight_decay=0.1),
    "use_ema": lambda: keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "loss_scale": lambda: keras.optimizers.Adam(0.1, loss_scale_factor=4.0),
    "accumulation": lambda: keras.optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "clipnorm": lambda: keras.optimizers.Adam(0.1, clipnorm=0.1),
    "clipvalue": lambda: keras.optimizers.Adam(0.1, clipvalue=0.1),
    "global_clipnorm": lambda: keras.optimizers.Adam(0.1, global_clipnorm=0.1),
    **{
        kind: lambda kind=kind: create_optimizer(OptimizerParameters(optimizer_type=kind, learning_rate=0.1))
        for kind in ("AdamW", "Nadam", "RMSProp", "SGD", "Adagrad", "Adadelta", "Muon")
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_optimizer_is_keras_own(name):
    ours, theirs = (Stepped(OTHERS[name](), random_arrays(0)) for _ in range(2))
    for seed in (1, 2):
        ours.step(random_arrays(seed))
        theirs.optimizer.apply([tf.constant(gradient) for gradient in random_arrays(seed)], theirs.weights)
    for own, other in zip(ours.values, theirs.values, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    before = ours.values
    ours.step([np.full(shape, np.nan, np.float32) for shape in SHAPES], goes=False)
    for old, new in zip(before, ours.values, strict=True):
        np.testing.assert_array_equal(old, new)
    assert ONE not in ours.operations()


def test_constrained_weights_are_keras_own():
    adam = Stepped(keras.optimizers.Adam(0.5), [[0.1, 3.0]])
    adam.weights[0].constraint = keras.constraints.NonNeg()  # as a layer sets it
    adam.step([[1.0, 1.0]])
    np.testing.assert_allclose(adam.values[0], [0.0, 2.5], rtol=1e-5)
    assert ONE not in adam.operations()


NETWORKS = {
    "bfloat16": {"compute_dtype": "bfloat16"},
    "lstm": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 3}},
    "noisy": {"middleware_parameters": {"scheme": [8], "dense_layer": "noisy_dense"}},
}


@pytest.mark.parametrize(
    ("name", "minibatches"), [("bfloat16", 1), ("noisy", 2), pytest.param("lstm", 2, marks=pytest.mark.long)]
)
def test_networks_are_trained_as_by_keras(monkeypatch, wrap, batch_for, name, minibatches):
    """Steps alone and in the loop of a compiled call; a batch that is not finite comes between, and is not learned."""

    def loss(outputs, batch):
        error = outputs["value"][:-1] - batch.rewards
        return {"policy": ops.mean(outputs["policy/action"] ** 2), "value": ops.mean(error * error)}, {}

    def trained():
        network = wrap(learning_rate=0.05, optimizer_epsilon=1e-3, clip_gradients=1.0, **NETWORKS[name])
        step = network.train_step(loss, minibatches=minibatches)
        for seed in range(3):
            batch = batch_for(network.online, seed=seed)
            if seed == 1:
                batch.rewards[0, 0] = np.nan
            assert step(batch)["finite"] == (seed != 1)
        assert int(network.optimizer.iterations) == 2 * minibatches
        return network.state_arrays()

    ours = trained()
    monkeypatch.setattr(tensorflow_backend, "_is_plain", lambda *_: False)
    theirs = trained()
    for group in ("online", "optimizer"):
        for path, array in ours[group].items():
            np.testing.assert_allclose(array, theirs[group][path], rtol=1e-3, atol=1e-4, err_msg=path)
            assert array.dtype == theirs[group][path].dtype
