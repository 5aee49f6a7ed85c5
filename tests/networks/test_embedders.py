import keras
import numpy as np
import pytest

from distrl.config.network import EmbedderParameters
from distrl.networks.embedders import embed


def embedding(values, **parameters):
    observation = keras.Input(values.shape[1:], dtype=str(values.dtype))
    embedded = embed(observation, EmbedderParameters(**parameters), name="camera", seed=1)
    return keras.Model(observation, embedded)(values)


def test_bytes_are_flattened_cast_and_rescaled():
    values = np.array([[[0, 51], [102, 255]]], np.uint8)
    computed = np.asarray(embedding(values, input_rescaling=255.0))
    np.testing.assert_allclose(computed, [[0.0, 0.2, 0.4, 1.0]], rtol=1e-6)
    assert computed.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool", "int8"])
def test_every_numeric_dtype_becomes_float32(dtype):
    computed = np.asarray(embedding(np.array([[0, 1]], dtype)))
    np.testing.assert_array_equal(computed, [[0.0, 1.0]])
    assert computed.dtype == np.float32


def test_a_scalar_observation_becomes_a_vector_of_one():
    np.testing.assert_array_equal(np.asarray(embedding(np.array([3.0, 4.0], np.float32))), [[3.0], [4.0]])


def test_layers_are_named_after_the_observation():
    observation = keras.Input((2,))
    parameters = EmbedderParameters(units=(3, 5), activation="relu")
    model = keras.Model(observation, embed(observation, parameters, name="left/camera 1", seed=1))
    assert [weight.path for weight in model.weights] == [
        "embedder_left_camera_1_dense_0/kernel",
        "embedder_left_camera_1_dense_0/bias",
        "embedder_left_camera_1_dense_1/kernel",
        "embedder_left_camera_1_dense_1/bias",
    ]
    assert model.output.shape == (None, 5)
