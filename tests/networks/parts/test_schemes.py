import keras
import numpy as np
import pytest

from distrl.config.layers import DenseLayer, FlattenLayer, LayerDefaults
from distrl.config.load import load
from distrl.errors import ConfigError
from distrl.networks.parts.layers import apply_scheme
from distrl.networks.parts.schemes import resolve


def convolutions(layers):
    return [(layer.filters, layer.kernel_size, layer.strides) for layer in layers]


def widths(layers):
    return [layer.units for layer in layers]


@pytest.mark.row("D01", "D04")
def test_the_tables_are_coach_s():
    assert widths(resolve("Shallow", "vector")) == [128]
    assert widths(resolve("Medium", "vector")) == [256]
    assert widths(resolve("Deep", "vector")) == [128, 128, 128]
    assert widths(resolve("Shallow", "middleware")) == [64]
    assert widths(resolve("Medium", "middleware")) == [512]
    assert widths(resolve("Deep", "middleware")) == [128, 128, 128]
    assert convolutions(resolve("Shallow", "image")) == [(32, 3, 1)]
    assert convolutions(resolve("Medium", "image")) == [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    deep = [(32, 5, 2), (32, 3, 1), (64, 3, 2), (64, 3, 1), (128, 3, 2), (128, 3, 1), (256, 3, 2), (256, 3, 1)]
    assert convolutions(resolve("Deep", "image")) == deep
    assert [resolve("Empty", kind) for kind in ("vector", "image", "middleware")] == [(), (), ()]


@pytest.mark.row("D01")
def test_a_list_stands_for_itself_and_numbers_for_dense_layers():
    assert resolve((3, FlattenLayer()), "image") == (DenseLayer(units=3), FlattenLayer())


def test_a_name_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="ImpalaResNet is no scheme of a vector; there are Empty, Shallow, Medium,"):
        resolve("ImpalaResNet", "vector")


def impala():
    x = keras.Input((21, 16, 3), name="x")
    layers = resolve("ImpalaResNet", "image")
    return keras.Model(x, apply_scheme(x, layers, block=LayerDefaults(activation="tanh"), prefix="p", seed=1))


def test_the_residual_network_is_impala_s():
    model = impala()
    kernels = [tuple(weight.shape) for weight in model.weights if weight.path.endswith("kernel")]
    expected, channels = [], 3
    for filters in (16, 32, 32):
        expected += [(3, 3, channels, filters)] + [(3, 3, filters, filters)] * 4
        channels = filters
    # 21 x 16 -> 11 x 8 -> 6 x 4 -> 3 x 2
    assert kernels == [*expected, (3 * 2 * 32, 256)]
    assert model.output.shape == (None, 256)


def test_the_residual_network_computes_what_the_figure_shows():
    model = impala()
    weights = {weight.path: np.asarray(weight) for weight in model.weights}
    image = np.random.default_rng(0).standard_normal((1, 21, 16, 3)).astype(np.float32)

    def convolve(x, name):
        y = keras.ops.conv(x, weights[f"{name}/kernel"], padding="same")
        return y + weights[f"{name}/bias"]

    x = image
    for section in range(3):
        x = convolve(x, f"p_conv2d_{3 * section}")
        x = keras.ops.max_pool(x, 3, 2, padding="same")
        for unit in range(2):
            name = f"p_residual_{3 * section + 2}_{unit}"
            y = convolve(keras.ops.relu(x), f"{name}_conv2d_1")
            x = x + convolve(keras.ops.relu(y), f"{name}_conv2d_3")
    flat = np.maximum(np.asarray(x), 0).reshape(1, -1)
    expected = np.maximum(flat @ weights["p_dense_11/kernel"] + weights["p_dense_11/bias"], 0)
    np.testing.assert_allclose(np.asarray(model(image)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.row("L15")
@pytest.mark.parametrize(
    "text",
    [
        "network: {middleware_parameters: {scheme: [64, {units: 32, activation: tanh}]}}",
        '{"network": {"middleware_parameters": {"scheme": [{"kind": "dense", "units": 64}, '
        '{"kind": "dense", "units": 32, "activation": "tanh"}]}}}',
    ],
    ids=["YAML", "JSON"],
)
def test_a_network_given_as_text_is_the_one_given_in_python(text, tmp_path):
    (tmp_path / "network.yaml").write_text(text)
    block = load(file=tmp_path / "network.yaml").config.network.middleware_parameters
    models = []
    for layers in (
        resolve(block.scheme, "middleware"),
        (DenseLayer(units=64), DenseLayer(units=32, activation="tanh")),
    ):
        x = keras.Input((5,))
        models.append(keras.Model(x, apply_scheme(x, layers, block=block, prefix="middleware", seed=1)))
    given, coded = models
    assert [(weight.path, tuple(weight.shape)) for weight in given.weights] == [
        ("middleware_dense_0/kernel", (5, 64)),
        ("middleware_dense_0/bias", (64,)),
        ("middleware_dense_1/kernel", (64, 32)),
        ("middleware_dense_1/bias", (32,)),
    ]
    for weight, twin in zip(given.weights, coded.weights, strict=True):
        assert weight.path == twin.path
        np.testing.assert_array_equal(np.asarray(weight), np.asarray(twin))
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(given(x)), np.asarray(coded(x)))
