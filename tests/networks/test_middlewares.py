import keras
import numpy as np

from distrl.config.network import MiddlewareParameters
from distrl.networks.middlewares import transform


def test_dense_layers_in_order_equal_the_formula():
    embedding = keras.Input((3,))
    parameters = MiddlewareParameters(units=(4, 2), activation="tanh")
    model = keras.Model(embedding, transform(embedding, parameters, seed=1))
    first, first_bias, second, second_bias = (np.asarray(weight) for weight in model.weights)
    x = np.array([[1.0, -2.0, 0.5]], np.float32)
    expected = np.tanh(np.tanh(x @ first + first_bias) @ second + second_bias)
    np.testing.assert_allclose(np.asarray(model(x)), expected, atol=1e-6)
    assert [weight.path for weight in model.weights][::2] == [
        "middleware_dense_0/kernel",
        "middleware_dense_1/kernel",
    ]


def test_without_layers_the_embedding_stays_as_it_is():
    embedding = keras.Input((3,))
    assert transform(embedding, MiddlewareParameters(units=()), seed=1) is embedding
