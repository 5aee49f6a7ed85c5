"""Whether an image fits is known by arithmetic as it is to Keras."""

import keras
import pytest

from distrl.config.network import EmbedderParameters, NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.parts.embedders import embed
from distrl.networks.parts.schemes import check_windows
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

PADDED = [{"kind": "pool2d", "pool_size": [3, 2], "padding": "same"}, {"kind": "conv2d", "filters": 2, "strides": 2}]
POOLED = [{"kind": "conv2d", "filters": 2, "kernel_size": [2, 3]}, {"kind": "pool2d"}, {"kind": "pool2d"}]


def refusal(parameters, shape):
    """The message with which the arithmetic refuses, or None."""
    spec = EnvSpec("E", {"camera": ArraySpec(shape, "uint8")}, {"action": DiscreteSpec(2)})
    network = NetworkParameters.model_validate({"input_embedders_parameters": {"camera": parameters}})
    try:
        check_windows(network, spec)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("scheme", ["Shallow", "Medium", "Deep", "ImpalaResNet", PADDED, POOLED])
@pytest.mark.parametrize("shape", [(2, 40, 3), (3, 3, 3), (4, 6, 3), (7, 7, 3), (35, 36, 1), (36, 36, 1), (61, 61, 1)])
def test_it_is_as_keras_finds_it(scheme, shape):
    parameters = EmbedderParameters.model_validate({"scheme": scheme})
    try:
        embed(keras.Input(shape, dtype="uint8"), parameters, name="camera", seed=1)
        expected = None
    except ConfigError as error:
        expected = str(error)
    found = refusal({"scheme": scheme}, shape)
    assert (found is None) == (expected is None)
    assert expected is None or found.startswith(expected)


@pytest.mark.parametrize(("shape", "remedy"), [((35, 35, 3), "Shallow"), ((7, 7, 3), "Shallow"), ((2, 9, 3), "Empty")])
def test_the_remedy_is_named_and_fits(shape, remedy):
    assert refusal({"scheme": "Medium"}, shape).endswith(
        f"observation 'camera' is {list(shape)}: set network.input_embedders_parameters.camera.scheme: {remedy}"
    )
    assert refusal({"scheme": remedy}, shape) is None


@pytest.mark.parametrize(("shape", "width"), [((36, 36, 1), 64), ((35, 36, 1), 33 * 34 * 32), ((7, 7, 3), 5 * 5 * 32)])
def test_auto_takes_a_scheme_that_fits(shape, width):
    assert refusal({}, shape) is None
    embedded = embed(keras.Input(shape, dtype="uint8"), EmbedderParameters(), name="camera", seed=1)
    assert embedded.shape == (None, width)


def test_what_is_no_image_or_not_embedded_is_left_alone():
    spec = EnvSpec("E", {"a": ArraySpec((2, 2, 1), "uint8"), "b": ArraySpec((2,), "float32")}, {"x": DiscreteSpec(2)})
    check_windows(NetworkParameters(model="own:Model"), spec)
    check_windows(NetworkParameters.model_validate({"input_embedders_parameters": {"a": {"kind": "vector"}}}), spec)
    check_windows(NetworkParameters.model_validate({"input_embedders_parameters": {"a": None}}), spec)
