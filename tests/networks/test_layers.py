import math

import numpy as np
import pytest

from distrl.networks import layers


def kernel(name="layer", seed=1, units=8, gain=1.0):
    layer = layers.dense(units, "none", name=name, seed=seed, gain=gain)
    layer.build((None, 8))
    return np.asarray(layer.kernel)


def test_same_seed_and_name_give_the_same_bits():
    np.testing.assert_array_equal(kernel(), kernel())


@pytest.mark.parametrize("other", [{"seed": 2}, {"name": "other"}])
def test_another_seed_or_name_gives_other_weights(other):
    assert np.abs(kernel() - kernel(**other)).max() > 0.1


@pytest.mark.parametrize("gain", [1.0, 0.01, math.sqrt(2)])
def test_kernel_is_orthogonal_times_gain(gain):
    scaled = kernel(gain=gain)
    np.testing.assert_allclose(scaled.T @ scaled, gain**2 * np.eye(8), atol=1e-5)


def test_activation_is_applied_and_none_is_linear():
    x = np.array([[-3.0]], np.float32)
    for activation, expected in (("none", lambda y: y), ("tanh", np.tanh), ("relu", lambda y: np.maximum(y, 0.0))):
        layer = layers.dense(1, activation, name="layer", seed=1)
        computed = np.asarray(layer(x))
        np.testing.assert_allclose(computed, expected(x @ np.asarray(layer.kernel)), rtol=1e-6)


def test_layer_seed_fits_every_backend():
    assert all(0 <= layers.layer_seed(seed, "x" * seed) < 2**31 for seed in range(50))
