import keras
import numpy as np
import pytest

from distrl.networks.parts.initializers import initializers, layer_seed

LAYERS = {
    "dense": (keras.layers.Dense, {"units": 500}, (16,), 16),
    "conv1d": (keras.layers.Conv1D, {"filters": 500, "kernel_size": 4}, (9, 4), 16),
    "conv2d": (keras.layers.Conv2D, {"filters": 500, "kernel_size": (2, 4)}, (9, 9, 2), 16),
}


def drawn(name="dense", initial="uniform", seed=1, given=None):
    """Kernel and bias of a layer."""
    class_, arguments, shape, _ = LAYERS[name]
    layer = class_(**arguments, **initializers(initial, seed=seed, given=given))
    layer.build((None, *shape))
    return [np.asarray(weight) for weight in layer.weights]


@pytest.mark.parametrize("name", LAYERS)
def test_uniform_weights_are_within_the_root_of_the_inputs(name):
    inputs = LAYERS[name][-1]
    kernel, bias = drawn(name)
    bound = 1.0 / inputs**0.5
    for weights in (kernel, bias):
        assert 0.95 * bound < np.abs(weights).max() <= bound
        assert np.std(weights) == pytest.approx(bound / 3**0.5, rel=0.1)
    assert np.abs(np.corrcoef(kernel.reshape(inputs, -1)[0], bias)[0, 1]) < 0.2
    np.testing.assert_array_equal(bias, drawn(name)[1])
    assert np.abs(bias - drawn(name, seed=2)[1]).max() > 0.1 * bound


def test_orthogonal_weights_begin_without_biases():
    kernel, bias = drawn(initial="orthogonal")
    np.testing.assert_allclose(kernel @ kernel.T, 2.0 * np.eye(16), atol=1e-5)
    assert not bias.any()


def test_a_layers_own_initialiser_replaces_its_kernel_alone():
    kernel, bias = drawn(given=2.0)
    assert (kernel == 2.0).all()
    assert 0.0 < np.abs(bias).max() <= 0.25
    kernel, bias = drawn(given="orthogonal")
    np.testing.assert_allclose(kernel @ kernel.T, 2.0 * np.eye(16), atol=1e-5)
    assert bias.any()


def test_kernels_as_given():
    def kernel(given, shape, seed=1):
        return np.asarray(initializers("orthogonal", seed=seed, given=given)["kernel_initializer"](shape, "float32"))

    assert kernel(2.5, (2, 2)).tolist() == [[2.5, 2.5], [2.5, 2.5]]
    assert kernel(((1.0, 2.0),), (1, 2)).tolist() == [[1.0, 2.0]]
    with pytest.raises(ValueError, match=r"the given kernel has shape \[1, 1\], this layer needs \[2, 1\]"):
        kernel(((1.0,),), (2, 1))
    one, again, other = (kernel("he_normal", (9, 9), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1


def test_layer_seed_fits_every_backend():
    assert all(0 <= layer_seed(seed, "x" * seed) < 2**31 for seed in range(50))
