import keras
import numpy as np
import pytest

from distrl.networks.parts.own_layers import Dropout, NoisyDense


def built(inputs=4, units=3, **arguments):
    layer = NoisyDense(units, seed=1, name="layer", **arguments)
    layer.build((None, inputs))
    return layer


def noise(count, generator):
    """f(x) = sgn(x) sqrt|x| of the layer's next draw, the slow way."""
    drawn = np.asarray(keras.random.normal((count,), seed=generator))
    return np.array([np.sign(x) * np.sqrt(abs(x)) for x in drawn])


@pytest.mark.row("D88")
def test_initial_weights_are_the_paper_s():
    layer = built()  # fan-in 4: bound 1/2, sigma 0.5/2
    for sigma in layer.sigmas:
        np.testing.assert_array_equal(np.asarray(sigma), np.full(sigma.shape, 0.25, np.float32))
    layer = built(inputs=400, units=100)
    mean = np.asarray(layer.kernel)
    assert np.abs(mean).max() == pytest.approx(1 / 20, rel=1e-3)
    assert np.std(mean) == pytest.approx(1 / 20 / np.sqrt(3), rel=0.01)
    assert 0.0 < np.abs(np.asarray(layer.bias)).max() <= 1 / 20
    np.testing.assert_allclose(np.asarray(layer.kernel_sigma), 0.5 / 20)


@pytest.mark.row("D88")
def test_inference_uses_the_means():
    layer, x = built(), np.float32([[1, 2, 3, 4]])
    np.testing.assert_allclose(
        np.asarray(layer(x, training=False)), x @ np.asarray(layer.kernel) + np.asarray(layer.bias), rtol=1e-6
    )
    np.testing.assert_array_equal(np.asarray(layer(x)), np.asarray(layer(x, training=False)))


@pytest.mark.parametrize("use_bias", [True, False])
def test_training_adds_factorised_noise(use_bias):
    layer = built(use_bias=use_bias, activation=keras.activations.tanh)
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(rng.standard_normal(weight.shape) / 4)
    x = rng.standard_normal((5, 4)).astype(np.float32)
    computed = np.asarray(layer(x, training=True))
    twin = keras.random.SeedGenerator(1)
    rows, columns = noise(4, twin), noise(3, twin)
    expected = np.zeros((5, 3))
    for j in range(3):
        for i in range(4):
            weight = np.asarray(layer.kernel)[i, j] + np.asarray(layer.kernel_sigma)[i, j] * rows[i] * columns[j]
            expected[:, j] += x[:, i] * weight
        if use_bias:
            expected[:, j] += np.asarray(layer.bias)[j] + np.asarray(layer.bias_sigma)[j] * columns[j]
    np.testing.assert_allclose(computed, np.tanh(expected), rtol=1e-4, atol=1e-5)
    assert np.abs(np.asarray(layer(x, training=True)) - computed).max() > 0.01  # drawn anew


def test_noise_goes_on_from_its_state():
    x = np.ones((1, 4), np.float32)
    layer = built()
    layer(x, training=True)
    state = np.asarray(layer.noise.state)
    drawn = np.asarray(layer(x, training=True))
    layer.noise.state.assign(state)
    np.testing.assert_array_equal(np.asarray(layer(x, training=True)), drawn)


def test_without_sigma_there_is_no_noise():
    layer, x = built(sigma0=0.0), np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(np.asarray(layer(x, training=True)), np.asarray(layer(x, training=False)))


def test_noise_learns():
    """The gradient reaches the means and how strong the noise is."""
    layer = built()
    model = keras.Sequential([keras.Input((4,)), layer])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    before = [np.array(np.asarray(weight)) for weight in layer.weights]
    model.train_on_batch(np.ones((2, 4), np.float32), np.ones((2, 3), np.float32))
    assert all(np.abs(np.asarray(new) - old).max() > 0 for new, old in zip(layer.weights, before, strict=True))


def test_dropout_follows_from_its_seed():
    x = np.ones((4, 50), np.float32)
    first, again, other = (np.asarray(Dropout(0.5, seed=seed, name="d")(x, training=True)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() == 2.0
    np.testing.assert_array_equal(np.asarray(Dropout(0.0, seed=1, name="d")(x, training=True)), x)
