from typing import get_args

import numpy as np
import pytest
from scipy import special

from distrl.config.layers import Activation
from distrl.networks.parts.layers import activation_function

X = np.array([[-1.0, 0.0, 1.0]], np.float32)
SELU = (1.6732632423543772, 1.0507009873554805)
EXPECTED = {
    "none": X,
    "relu": np.maximum(X, 0),
    "tanh": np.tanh(X),
    "elu": np.where(X > 0, X, np.expm1(X)),
    "selu": SELU[1] * np.where(X > 0, X, SELU[0] * np.expm1(X)),
    "gelu": X * special.ndtr(X),
    "silu": X * special.expit(X),
    "leaky_relu": np.where(X > 0, X, 0.2 * X),
    "sigmoid": special.expit(X),
    "softplus": np.log1p(np.exp(X)),
    "softmax": special.softmax(X, axis=-1),
}


@pytest.mark.row("L12.1", "D08")
@pytest.mark.parametrize("name", get_args(Activation))
def test_every_activation_has_its_values(name):
    tolerance = 1e-3 if name == "gelu" else 1e-6  # the tanh approximation
    np.testing.assert_allclose(np.asarray(activation_function(name)(X)), EXPECTED[name], atol=tolerance)


@pytest.mark.row("L02")
def test_none_is_linear_a_function_is_itself_and_a_slope_is_leaky_relu_s():
    np.testing.assert_array_equal(np.asarray(activation_function(None)(X)), X)
    assert activation_function(np.sin) is np.sin
    np.testing.assert_allclose(np.asarray(activation_function("leaky_relu", 0.1)(X)), [[-0.1, 0, 1]], rtol=1e-6)
    assert float(np.asarray(activation_function("relu")(np.float32([-1.0])))[0]) == 0.0
    with pytest.raises(ValueError, match="negative_slope belongs to leaky_relu, not to relu"):
        activation_function("relu", 0.1)


@pytest.mark.row("L02", "L12.1")
def test_an_unknown_activation_lists_what_there_is():
    with pytest.raises(ValueError, match="unknown activation 'relv'; choose one of none, relu, tanh, elu"):
        activation_function("relv")
