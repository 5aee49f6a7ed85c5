"""Batch renormalisation by hand and against a slow NumPy twin. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest
from keras import ops

from distrl.config.layers import BatchRenormLayer
from distrl.config.network import BlockParameters
from distrl.networks.framework.backend import Gradients
from distrl.networks.parts import layers
from distrl.networks.parts.own_layers import BatchRenormalization
from distrl.networks.weights import to_numpy

X = np.float32([[1.0, 30.0], [3.0, 10.0]])  # means 2 and 20, variances 1 and 100


def built(mean=(0.0, 0.0), variance=(1.0, 1.0), gamma=(1.0, 1.0), beta=(0.0, 0.0), **arguments):
    layer = BatchRenormalization(**({"epsilon": 1e-9, "warm_up_updates": 0} | arguments), name="layer")
    layer.build((None, 2))
    for variable, value in zip(layer.weights, (gamma, beta, mean, variance), strict=False):
        variable.assign(np.float32(value))
    return layer


def test_inference_is_by_running_moments_and_moves_nothing():
    layer = built(mean=(1.0, 20.0), variance=(4.0, 25.0), gamma=(2.0, 1.0), beta=(0.0, 0.5))
    np.testing.assert_allclose(to_numpy(layer(X)), [[0.0, 2.5], [2.0, -1.5]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(to_numpy(layer.moving_mean), [1.0, 20.0])
    assert float(layer.updates.value) == 0.0


def test_training_gives_the_same_as_inference_where_nothing_is_clipped():
    """r = 1/2 and d = (2 - 1)/2 for the first column; 2 and 0 for the second."""
    layer = built(mean=(1.0, 20.0), variance=(4.0, 25.0))
    np.testing.assert_allclose(to_numpy(layer(X, training=True)), [[0.0, 2.0], [1.0, -2.0]], rtol=1e-5, atol=1e-6)


def test_corrections_are_clipped():
    """r is 10 in the second column, clipped to 3; d is 20, clipped to 5. The first has r 1 and d 2."""
    layer = built()
    normal = to_numpy(layer(X, training=True))
    np.testing.assert_allclose(normal, [[-1.0 + 2.0, 3.0 + 5.0], [1.0 + 2.0, -3.0 + 5.0]], rtol=1e-5)
    narrow = built(mean=(2.0, 20.0), variance=(100.0, 1.0), r_max=2.0, d_max=0.0)  # r .1 and 10
    np.testing.assert_allclose(to_numpy(narrow(X, training=True)), [[-0.5, 2.0], [0.5, -2.0]], rtol=1e-5)


def test_the_beginning_is_batch_normalisation():
    layer = built(warm_up_updates=2)
    for _ in range(2):
        np.testing.assert_allclose(to_numpy(layer(X, training=True)), [[-1.0, 1.0], [1.0, -1.0]], rtol=1e-5)
    assert float(layer.updates.value) == 2.0
    assert np.abs(to_numpy(layer(X, training=True)) - [[-1.0, 1.0], [1.0, -1.0]]).min() > 0.1


def test_running_moments_move_by_the_rest_of_the_momentum():
    layer = built(mean=(1.0, 0.0), variance=(2.0, 50.0), momentum=0.75)
    layer(X, training=True)
    np.testing.assert_allclose(to_numpy(layer.moving_mean), [1.25, 5.0], rtol=1e-6)
    np.testing.assert_allclose(to_numpy(layer.moving_variance), [1.75, 62.5], rtol=1e-6)


@pytest.mark.parametrize("warm_up", [0, 100])
def test_it_is_a_slow_twin_over_several_batches_and_axes(warm_up):
    """Rows [5, 3, 2]; every axis but the last is of the batch."""
    rng = np.random.default_rng(0)
    layer = built(momentum=0.5, epsilon=0.01, r_max=1.2, d_max=0.2, warm_up_updates=warm_up, gamma=(2.0, 0.5))
    mean, variance = np.zeros(2), np.ones(2)
    for _ in range(3):
        x = rng.normal(1.0, 2.0, (5, 3, 2)).astype("float32")
        found = to_numpy(layer(x, training=True))
        rows, expected = x.reshape(-1, 2).astype(float), np.zeros((15, 2))
        for j in range(2):
            column = rows[:, j]
            batch_mean = sum(column) / 15
            batch_variance = sum((value - batch_mean) ** 2 for value in column) / 15
            s, running = (batch_variance + 0.01) ** 0.5, (variance[j] + 0.01) ** 0.5
            r, d = 1.0, 0.0
            if not warm_up:
                r = min(1.2, max(1 / 1.2, s / running))
                d = min(0.2, max(-0.2, (batch_mean - mean[j]) / running))
            expected[:, j] = (2.0, 0.5)[j] * ((column - batch_mean) / s * r + d)
            mean[j], variance[j] = 0.5 * (mean[j] + batch_mean), 0.5 * (variance[j] + batch_variance)
        np.testing.assert_allclose(found.reshape(-1, 2), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_numpy(layer.moving_mean), mean, rtol=1e-5)
    np.testing.assert_allclose(to_numpy(layer.moving_variance), variance, rtol=1e-5)


def test_corrections_are_constants_to_the_gradient():
    """The gradient of the kernel before it is that of batch normalisation, times r: 1/2 and 2."""

    def gradient(layer):
        kernel = keras.Variable(np.float32([[1.0, 0.5], [0.3, 1.0]]), name="kernel")
        weights = np.float32([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]])
        x = np.float32([[1.0, 2.0], [0.0, -1.0], [2.0, 0.5]])

        def loss(data):
            return ops.sum(weights * layer(ops.matmul(data, kernel.value), training=True)), {}

        others = [layer.moving_mean, layer.moving_variance, layer.updates]
        _, _, (found,) = Gradients(loss, [kernel], [*others, layer.gamma, layer.beta])(x)
        spread = np.var(x @ np.asarray(kernel), axis=0)
        return found, spread

    plain, spread = gradient(built(warm_up_updates=9))
    corrected, _ = gradient(built(mean=(0.4, -0.3), variance=spread * (4.0, 0.25)))
    np.testing.assert_allclose(corrected, plain * [0.5, 2.0], rtol=1e-3, atol=1e-5)
    assert np.abs(plain).min() > 1e-3


def test_settings_are_the_layers():
    section = BatchRenormLayer(momentum=0.5, epsilon=0.1, r_max=2.0, d_max=1.0, warm_up_updates=7)
    inputs = keras.Input((2,))
    x = layers.apply_scheme(inputs, (section,), block=BlockParameters(), prefix="p", seed=1)
    layer = keras.Model(inputs, x).layers[-1]
    names = ("momentum", "epsilon", "r_max", "d_max", "warm_up_updates")
    assert {name: getattr(layer, name) for name in names} == section.model_dump(exclude={"kind"})
    assert layer.name == "p_batch_renorm_0"


def test_only_training_reads_the_count():
    inputs = keras.Input((2,))
    layer = BatchRenormalization(name="layer")
    model = keras.Model(inputs, layer(inputs))
    assert [variable.path for variable in layers.training_only(model)] == ["layer/updates"]
