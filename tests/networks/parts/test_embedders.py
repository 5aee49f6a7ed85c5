import re

import keras
import numpy as np
import pytest

from distrl.config.network import EmbedderParameters
from distrl.errors import ConfigError
from distrl.networks.parts.embedders import embed, layer_name
from distrl.networks.policy import bundle


def model_of(shape, dtype="float32", normalization=None, name="camera", seed=1, highest=None, **parameters):
    observation = keras.Input(shape, dtype=dtype, name="x")
    embedded = embed(
        observation,
        EmbedderParameters(**parameters),
        name=name,
        seed=seed,
        normalization=normalization,
        highest=highest,
    )
    return keras.Model({"x": observation}, {"y": embedded})


def embedding(values, **parameters):
    return np.asarray(model_of(values.shape[1:], str(values.dtype), **parameters)({"x": values})["y"])


@pytest.mark.row("D02")
def test_images_of_bytes_are_rescaled_and_all_else_is_not():
    image = np.array([[[[0], [51]], [[102], [255]]]], np.uint8)
    np.testing.assert_allclose(embedding(image, scheme="Empty"), [[0.0, 0.2, 0.4, 1.0]], rtol=1e-6)
    assert embedding(image, scheme="Empty")[0, -1] == 1.0
    np.testing.assert_array_equal(embedding(image, scheme="Empty", kind="vector"), [[0, 51, 102, 255]])
    np.testing.assert_array_equal(embedding(image.astype(np.float32), scheme="Empty"), [[0, 51, 102, 255]])
    np.testing.assert_array_equal(embedding(image, scheme="Empty", input_rescaling=51.0), [[0, 1, 2, 5]])


@pytest.mark.row("D02")
def test_rescaling_comes_before_the_offset_and_the_clipping_last():
    values = np.float32([[0, 10, 40]])
    np.testing.assert_array_equal(
        embedding(values, input_rescaling=10.0, input_offset=1.0, input_clipping=(-0.5, 2.0)), [[-0.5, 0.0, 2.0]]
    )


@pytest.mark.parametrize(
    ("highest", "parameters", "expected"),
    [
        (1.0, {}, [0, 1, 1, 0]),
        (255.0, {}, [0, np.float32(1) / 255, np.float32(1) / 255, 0]),
        (4.0, {}, [0, 0.25, 0.25, 0]),
        (0.0, {}, [0, np.float32(1) / 255, np.float32(1) / 255, 0]),
        (1.0, {"input_rescaling": 2.0}, [0, 0.5, 0.5, 0]),
    ],
)
def test_images_of_bytes_are_divided_by_their_bound(highest, parameters, expected):
    planes = np.array([[[[0], [1]], [[1], [0]]]], np.uint8)
    found = embedding(planes, scheme="Empty", highest=highest, **parameters)
    np.testing.assert_array_equal(found, np.float32([expected]))


def test_the_bound_scales_neither_vectors_nor_real_numbers():
    planes = np.array([[[[0], [1]], [[1], [0]]]], np.uint8)
    np.testing.assert_array_equal(embedding(planes, scheme="Empty", kind="vector", highest=4.0), [[0, 1, 1, 0]])
    np.testing.assert_array_equal(embedding(planes.astype(np.float32), scheme="Empty", highest=4.0), [[0, 1, 1, 0]])


def test_normalisation_comes_first_and_replaces_the_255_of_bytes():
    image = np.full((1, 1, 1, 1), 30, np.uint8)
    halved = lambda x: x / 2.0  # noqa: E731
    assert embedding(image, scheme="Empty", normalization=halved) == [[15.0]]
    assert embedding(image, scheme="Empty", normalization=halved, input_offset=1.0, input_rescaling=3.0) == [[4.0]]


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool", "int8"])
def test_every_numeric_dtype_becomes_float32(dtype):
    computed = embedding(np.array([[0, 1]], dtype))
    np.testing.assert_array_equal(computed, [[0.0, 1.0]])
    assert computed.dtype == np.float32


def test_a_scalar_observation_becomes_a_vector_of_one():
    np.testing.assert_array_equal(embedding(np.array([3.0, 4.0], np.float32)), [[3.0], [4.0]])


@pytest.mark.row("D01")
@pytest.mark.parametrize(
    ("shape", "parameters", "width"),
    [
        ((84, 84, 4), {}, 7 * 7 * 64),
        ((84, 84, 4), {"scheme": "Medium"}, 3136),
        ((84, 84, 4), {"scheme": "ImpalaResNet"}, 256),
        ((84, 84, 4), {"scheme": "Shallow"}, 82 * 82 * 32),
        ((8,), {}, 8),
        ((8,), {"scheme": "Medium"}, 256),
        ((2, 4), {"scheme": "Deep"}, 128),
        ((6, 4), {"scheme": [5], "kind": "tensor"}, 6 * 5),
        ((6, 4), {"scheme": [5]}, 5),
        ((6, 4), {"scheme": [{"kind": "lstm", "units": 5}], "kind": "tensor"}, 5),
    ],
)
def test_width_of_an_embedding(shape, parameters, width):
    assert model_of(shape, **parameters).output["y"].shape == (None, width)


@pytest.mark.row("A10")
def test_the_kind_follows_from_the_observation():
    vector, image = model_of((8,), scheme="Medium"), model_of((84, 84, 4), "uint8")
    assert [tuple(weight.shape) for weight in vector.weights] == [(8, 256), (256,)]
    assert [tuple(weight.shape) for weight in image.weights][::2] == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)]


def test_layers_are_named_after_the_observation():
    model = model_of((2,), name="left/camera 1", scheme=[3, 5])
    assert [weight.path for weight in model.weights] == [
        "embedder_left_camera_1_dense_0/kernel",
        "embedder_left_camera_1_dense_0/bias",
        "embedder_left_camera_1_dense_1/kernel",
        "embedder_left_camera_1_dense_1/bias",
    ]
    assert layer_name("left/camera 1") == "left_camera_1"


def test_names_in_any_script_are_layers_of_their_own():
    names = ["высота", "скорость", "🚀", "🛸", "é", "e\u0301", "e", "観測"]
    layers = [layer_name(name) for name in names]
    assert len({*layers}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", layer) for layer in layers)  # as TensorFlow wants it
    assert layer_name("высота") == "_______bce6418d68f3"
    model = model_of((2,), name="высота", scheme=[3])
    assert model({"x": np.ones((1, 2), np.float32)})["y"].shape == (1, 3)


def test_several_copies_are_told_apart_by_a_prefix():
    x = keras.Input((2,))
    copies = [embed(x, EmbedderParameters(scheme=(3,)), name="a", seed=1, prefix=prefix) for prefix in ("p_", "v_")]
    model = keras.Model(x, copies)
    assert [weight.path for weight in model.weights][::2] == [
        "p_embedder_a_dense_0/kernel",
        "v_embedder_a_dense_0/kernel",
    ]


@pytest.mark.parametrize(
    ("shape", "parameters", "message"),
    [
        (
            (16, 84, 4),
            {"scheme": "Medium"},
            r"\.1 \(conv2d\) does not fit its input of shape \[3, 20, 32\]: its window of 4 x 4 is l",
        ),
        (
            (6, 84, 4),
            {"scheme": "Medium"},
            r"\.0 \(conv2d\) does not fit its input of shape \[6, 84, 4\]: its window of 8 x 8 is larger",
        ),
        ((8,), {"scheme": "ImpalaResNet"}, ": ImpalaResNet is no scheme of a vector; there are Empty, Shallow"),
        ((8,), {"scheme": "Medium", "kind": "image"}, r"\.0 \(conv2d\) .* shape \[8\]: it takes \[height, width, ch"),
    ],
)
def test_a_scheme_that_does_not_fit_names_its_path(shape, parameters, message):
    with pytest.raises(ConfigError, match=f"^network.input_embedders_parameters.camera.scheme{message}") as caught:
        model_of(shape, **parameters)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "dtype", "parameters"),
    [
        ((36, 36, 2), "uint8", {"input_offset": 0.5, "input_clipping": (-0.2, 0.3)}),
        ((16, 16, 3), "uint8", {"scheme": "ImpalaResNet"}),
        ((3, 2), "float64", {"scheme": [4]}),
        ((), "int64", {"scheme": [4]}),
    ],
)
def test_embedders_export_and_compute_the_same(shape, dtype, parameters):
    model = model_of(shape, dtype, **parameters)
    bundle.verify_graph(bundle.export_graph(model), model)
