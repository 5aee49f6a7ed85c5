"""Heads on a trunk that does nothing: features are the observations (and the action, where a head takes it), flat."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from distrl.config.network import NetworkParameters
from distrl.networks.heads import make_heads
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec


class Built:
    """One head and the Keras model that ends in it."""

    def __init__(self, parameters, spec, *, seed=1, **network):
        network = NetworkParameters(**network)
        (self.head,) = make_heads([parameters], spec, network, seed=seed)
        inputs = {
            name: keras.Input(array.shape, dtype=array.dtype, name=name) for name, array in spec.observations.items()
        }
        trunk = dict(inputs)
        if self.head.takes_action:
            (action,) = spec.actions.values()
            inputs["action"] = trunk["action"] = keras.Input(
                action.array.shape, dtype=action.array.dtype, name="action"
            )
        flat = [keras.layers.Flatten()(keras.ops.cast(tensor, "float32")) for tensor in trunk.values()]
        features = keras.ops.concatenate(flat, axis=-1)
        with keras.name_scope("main"):
            self.model = keras.Model(inputs, self.head.build(features, inputs), name="main")

    def outputs(self, **inputs):
        return {name: np.asarray(output) for name, output in self.model(inputs).items()}

    def set_constant(self, **biases):
        """Zero kernels, and these biases by layer: the outputs no longer depend on the input."""
        given = dict(biases)
        for weight in self.model.weights:
            layer, kind = weight.path.split("/")[-2:]
            weight.assign(
                np.reshape(given.pop(layer), weight.shape) if kind == "bias" and layer in given else 0.0 * weight
            )
        assert not given, f"no layer {given}; there are {[weight.path for weight in self.model.weights]}"

    def loss(self, targets, **inputs):
        return np.asarray(self.head.loss(self.model(inputs), targets))

    def train(self, targets, *, steps, rate, **inputs):
        """Plain gradient descent on the head's mean loss."""
        variables = self.model.trainable_variables

        @tf.function(autograph=False)
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.head.loss(self.model(inputs), targets))
            for variable, gradient in zip(
                variables, tape.gradient(loss, [one.value for one in variables]), strict=True
            ):
                variable.assign(variable - rate * gradient)

        for _ in range(steps):
            step()

    def gradients(self, function, **inputs):
        """Return gradients of function(outputs) by the trainable weights by path and by the outputs by name."""
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            outputs = self.model(inputs)
            value = tf.reduce_sum(function(outputs))
        gradients = tape.gradient(value, [*(variable.value for variable in variables), *outputs.values()])
        names = [*(variable.path for variable in variables), *outputs]
        return {name: None if one is None else np.asarray(one) for name, one in zip(names, gradients, strict=True)}


def choices(n, **observations):
    observations = observations or {"observation": ArraySpec((4,), "float32")}
    return EnvSpec("Choices-v0", observations, {"action": DiscreteSpec(n)})


def box(low, high):
    observations = {"observation": ArraySpec((4,), "float32")}
    return EnvSpec("Box-v0", observations, {"action": BoxSpec((len(low),), tuple(low), tuple(high))})


@pytest.fixture
def build():
    """build(parameters, spec, seed=1, **network): one head on its model."""
    return Built


@pytest.fixture(name="choices")
def _choices():
    """choices(n, **observations): the spec of an environment with one discrete action."""
    return choices


@pytest.fixture(name="box")
def _box():
    """box(low, high): the spec of an environment with one continuous action."""
    return box
