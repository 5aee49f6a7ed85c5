from typing import get_args

import keras
import numpy as np
import pytest
from pydantic import TypeAdapter

from distrl.config.layers import Layer, LayerDefaults, LayerParameters
from distrl.config.network import BlockParameters
from distrl.errors import ConfigError
from distrl.networks.parts import layers
from distrl.networks.parts.schemes import resolve
from distrl.networks.policy import bundle

_LAYERS = TypeAdapter(tuple[Layer, ...])


def build(*described, shape=(2,), dtype="float32", seed=1, **block):
    """A model of layers as a configuration has them."""
    parsed = resolve(_LAYERS.validate_python(list(described)), "middleware")
    x = keras.Input(shape, dtype=dtype, name="x")
    x32 = keras.ops.cast(x, "float32")
    y = layers.apply_scheme(x32, parsed, block=LayerDefaults(**block), prefix="p", seed=seed, path="network.scheme")
    return keras.Model({"x": x}, {"y": y}, name="m")


def run(model, x, dtype=np.float32, **arguments):
    return np.asarray(model({"x": np.asarray(x, dtype)}, **arguments)["y"])


def weights(model):
    return {weight.path: tuple(weight.shape) for weight in model.weights}


def test_same_seed_and_name_give_the_same_bits():
    every = ({"kind": "noisy_dense", "units": 3}, 3, {"kind": "custom", "layer": "keras.layers:Dense"})
    every = (*every[:2], {**every[2], "arguments": {"units": 2}})
    first, second, other = build(*every), build(*every), build(*every, seed=2)
    for weight, again, different in zip(first.weights, second.weights, other.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(weight), np.asarray(again))
        if weight.path.endswith("kernel"):
            assert np.abs(np.asarray(weight) - np.asarray(different)).max() > 0.01


def test_another_place_in_the_scheme_gives_other_weights():
    model = build(8, 8, shape=(8,))
    assert np.abs(np.asarray(model.weights[0]) - np.asarray(model.weights[2])).max() > 0.1


def kernel(name="layer", seed=1, gain=1.0):
    layer = layers.dense(8, "none", name=name, seed=seed, gain=gain)
    layer.build((None, 8))
    return np.asarray(layer.kernel)


@pytest.mark.parametrize("gain", [1.0, 0.01, 2**0.5])
def test_kernel_is_orthogonal_times_gain(gain):
    scaled = kernel(gain=gain)
    np.testing.assert_allclose(scaled.T @ scaled, gain**2 * np.eye(8), atol=1e-5)


def test_dense_applies_its_activation_and_none_is_linear():
    x = np.array([[-3.0]], np.float32)
    for activation, expected in (("none", lambda y: y), ("tanh", np.tanh), ("relu", lambda y: np.maximum(y, 0.0))):
        layer = layers.dense(1, activation, name="layer", seed=1)
        computed = np.asarray(layer(x))
        np.testing.assert_allclose(computed, expected(x @ np.asarray(layer.kernel)), rtol=1e-6)


def test_a_noisy_dense_layer_of_a_head_has_its_name_and_weights():
    layer = layers.dense(3, "none", name="q_head", seed=1, kind="noisy_dense")
    layer(np.ones((1, 4), np.float32))
    assert [weight.path for weight in layer.weights] == [
        "q_head/kernel",
        "q_head/kernel_sigma",
        "q_head/bias",
        "q_head/bias_sigma",
    ]


@pytest.mark.row("L04.3", "L12.6")
@pytest.mark.parametrize(("given", "x", "expected"), [(1.0, [1, 2], 3.0), ([[1], [2]], [1, 1], 3.0)])
def test_given_kernels(given, x, expected):
    layer = {"units": 1, "kernel_initializer": given, "bias": False, "activation": "none"}
    model = build(layer)
    assert run(model, [x]) == [[expected]]
    assert weights(model) == {"p_dense_0/kernel": (2, 1)}


@pytest.mark.row("D08")
@pytest.mark.parametrize(
    ("name", "deviation"),
    [("glorot_uniform", (2 / 300) ** 0.5), ("he_normal", (2 / 200) ** 0.5), ("lecun_uniform", (1 / 200) ** 0.5)],
)
def test_initialisers_by_name(name, deviation):
    model = build({"units": 100, "kernel_initializer": name}, shape=(200,))
    assert np.std(np.asarray(model.weights[0])) == pytest.approx(deviation, rel=0.03)


def test_a_given_kernel_of_another_shape_is_refused():
    with pytest.raises(ConfigError, match=r"^network.scheme.0 \(dense\) does not fit its input of shape \[2\]: the"):
        build({"units": 1, "kernel_initializer": [[1.0]]})


@pytest.mark.row("L12.7")
def test_skip_adds_the_input_after_the_activation():
    model = build({"skip": True, "kernel_initializer": 0.0, "activation": "tanh"})
    np.testing.assert_array_equal(run(model, [[-3.0, 5.0]]), [[-3.0, 5.0]])
    model = build({"units": 2, "skip": True, "kernel_initializer": [[1, 0], [0, 1]]})
    np.testing.assert_array_equal(run(model, [[-3.0, 5.0]]), [[-3.0, 10.0]])
    with pytest.raises(ConfigError, match="units must be 2, not 3"):
        build({"units": 3, "skip": True})


@pytest.mark.row("L01", "L04.2", "L04.4", "L12.3", "L12.4", "L12.9", "L12.10")
@pytest.mark.parametrize(
    ("layer", "shape", "result"),
    [
        ({"kind": "conv2d", "filters": 32, "kernel_size": 8, "strides": 4}, (84, 84, 4), (20, 20, 32)),
        ({"kind": "conv2d", "filters": 32, "padding": "same"}, (84, 84, 4), (84, 84, 32)),
        ({"kind": "conv2d", "filters": 5, "kernel_size": [3, 1], "strides": [1, 2]}, (7, 9, 2), (5, 5, 5)),
        ({"kind": "conv1d", "filters": 8, "padding": "same"}, (10, 4), (10, 8)),
        ({"kind": "conv1d", "filters": 8, "strides": 2}, (10, 4), (4, 8)),
        ({"kind": "pool2d"}, (4, 4, 1), (2, 2, 1)),
        ({"kind": "pool2d", "padding": "same"}, (5, 5, 2), (3, 3, 2)),
        ({"kind": "pool2d", "pool_size": [2, 3], "strides": 1}, (5, 5, 2), (4, 3, 2)),
        ({"kind": "flatten"}, (2, 3), (6,)),
        ({"kind": "embedding", "indices": 9, "units": 4}, (7,), (7, 4)),
        ({"kind": "lstm", "units": 5}, (7, 3), (5,)),
        ({"kind": "lstm", "units": 5, "return_sequences": True}, (7, 3), (7, 5)),
        ({"kind": "dueling", "units": 3}, (2,), (3,)),
        (6, (2,), (6,)),
        (6, (4, 2), (4, 6)),
    ],
)
def test_the_shape_after_a_layer_is_known_without_data(layer, shape, result):
    model = build(layer, shape=shape)
    assert model.output["y"].shape == (None, *result)
    assert run(model, np.zeros((3, *shape))).shape == (3, *result)


@pytest.mark.row("L04.4", "L12.4")
def test_pooling_values():
    image = np.arange(16.0).reshape(1, 4, 4, 1)
    np.testing.assert_array_equal(run(build({"kind": "pool2d"}, shape=(4, 4, 1)), image)[0, ..., 0], [[5, 7], [13, 15]])
    average = build({"kind": "pool2d", "pooling": "average", "padding": "same"}, shape=(3, 3, 1))
    np.testing.assert_array_equal(
        run(average, np.arange(9.0).reshape(1, 3, 3, 1))[0, ..., 0], [[2, 3.5], [6.5, 8]]
    )  # padding does not count


@pytest.mark.row("L12.9", "L12.10")
def test_convolutions_of_ones_sum_their_window():
    line = build(
        {"kind": "conv1d", "filters": 1, "padding": "same", "kernel_initializer": 1.0}, shape=(4, 1), activation="none"
    )
    np.testing.assert_array_equal(run(line, [[[1], [2], [4], [8]]])[0, :, 0], [3, 7, 14, 12])
    image = build({"kind": "conv2d", "filters": 1, "kernel_size": [1, 2], "kernel_initializer": 1.0}, shape=(2, 3, 1))
    np.testing.assert_array_equal(run(image, np.arange(6.0).reshape(1, 2, 3, 1))[0, ..., 0], [[1, 3], [7, 9]])


@pytest.mark.row("L12.3")
def test_flatten_keeps_the_batch_and_the_order():
    model = build({"kind": "flatten"}, shape=(2, 3))
    np.testing.assert_array_equal(run(model, np.arange(12).reshape(2, 2, 3)), np.arange(12).reshape(2, 6))


@pytest.mark.row("L12.5")
def test_embedding_looks_rows_up_and_stays_inside_its_table():
    model = build({"kind": "embedding", "indices": 4, "units": 3}, shape=(2,), dtype="int32")
    table = np.asarray(model.weights[0])
    np.testing.assert_array_equal(run(model, [[2, 0]], np.int32), table[None, [2, 0]])
    np.testing.assert_array_equal(run(model, [[9, -1]], np.int32), table[None, [3, 0]])
    assert weights(model) == {"p_embedding_0/embeddings": (4, 3)}


@pytest.mark.row("L12.8")
def test_dueling_joins_its_streams_and_lets_both_be_read():
    np.testing.assert_array_equal(
        np.asarray(layers.dueling(np.float32([[1.0]]), np.float32([[1.0, 2.0, 3.0]]))), [[0.0, 1.0, 2.0]]
    )
    model = build({"kind": "dueling", "units": 3}, shape=(2,))
    model.get_layer("p_dueling_0_value").set_weights([np.float32([[1.0], [0.0]])])
    model.get_layer("p_dueling_0_advantages").set_weights([np.float32([[0, 0, 0], [1, 2, 3]])])
    np.testing.assert_allclose(run(model, [[1.0, 1.0]]), [[0.0, 1.0, 2.0]], atol=1e-6)
    streams = {name: model.get_layer(f"p_dueling_0_{name}").output for name in ("value", "advantages")}
    read = keras.Model(model.input, streams)({"x": np.float32([[1.0, 1.0]])})
    np.testing.assert_array_equal(np.asarray(read["value"]), [[1.0]])
    np.testing.assert_array_equal(np.asarray(read["advantages"]), [[1.0, 2.0, 3.0]])


def test_dueling_along_another_axis():
    value, advantages = np.float32([[[10.0, 20.0]]]), np.float32([[[1.0, 0.0], [3.0, 4.0]]])  # [B, A, atoms]
    np.testing.assert_array_equal(np.asarray(layers.dueling(value, advantages, axis=1)), [[[9.0, 18.0], [11.0, 22.0]]])


@pytest.mark.row("L04.5")
def test_a_residual_unit_of_zeros_is_the_identity_and_has_weights_for_each_repeat():
    unit = [{"units": 2, "kernel_initializer": 0.0}]
    model = build({"kind": "residual", "layers": unit, "repeats": 2})
    np.testing.assert_array_equal(run(model, [[-3.0, 5.0]]), [[-3.0, 5.0]])
    assert list(weights(model)) == [
        f"p_residual_0_{repeat}_dense_0/{name}" for repeat in (0, 1) for name in ("kernel", "bias")
    ]
    doubled = build({"kind": "residual", "layers": [{"units": 2, "kernel_initializer": [[1, 0], [0, 1]]}]})
    np.testing.assert_array_equal(run(doubled, [[-3.0, 5.0]]), [[-3.0, 20.0]])  # x + relu(x), twice
    with pytest.raises(ConfigError, match=r"network.scheme.0 \(residual\) .* its layers end in \[3\], which cannot"):
        build({"kind": "residual", "layers": [3]})


@pytest.mark.row("L12.2", "D03")
def test_dropout_is_active_in_training_alone_and_keeps_the_mean():
    model = build({"kind": "dropout", "rate": 0.5}, shape=(10000,))
    x = np.ones((10, 10000))
    np.testing.assert_array_equal(run(model, x, training=False), x)
    dropped = run(model, x, training=True)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert dropped.mean() == pytest.approx(1.0, abs=0.02)
    assert np.abs(run(model, x, training=True) - dropped).max() == 2.0  # drawn anew


@pytest.mark.row("D03")
def test_flags_add_their_layer_after_every_dense_layer_and_convolution():
    described = ({"kind": "conv2d", "filters": 2}, {"kind": "flatten"}, 3)
    plain, flagged = (
        build(*described, shape=(4, 4, 1)),
        build(*described, shape=(4, 4, 1), batchnorm=True, dropout_rate=0.5),
    )
    assert [layer.name for layer in plain.layers] == [
        "x",
        "p_conv2d_0",
        "p_conv2d_0_activation",
        "p_flatten_1",
        "p_dense_2",
        "p_dense_2_activation",
    ]
    extra = [f"p_{name}_{layer}" for name in ("conv2d_0", "dense_2") for layer in ("batch_norm", "dropout")]
    order = [layer.name for layer in flagged.layers]
    assert order[1:5] == ["p_conv2d_0", extra[0], "p_conv2d_0_activation", extra[1]]
    assert order[6:] == ["p_dense_2", extra[2], "p_dense_2_activation", extra[3]]
    x = np.random.default_rng(0).standard_normal((5, 4, 4, 1))
    np.testing.assert_array_equal(run(flagged, x), run(flagged, x, training=False))
    # Running moments start at mean 0 and variance 1: nothing but epsilon of Keras, 0.001, between the two.
    np.testing.assert_allclose(run(flagged, x) * 1.001, run(plain, x), rtol=1e-5, atol=1e-6)


@pytest.mark.row("D03")
def test_noisy_dense_replaces_the_dense_layers_of_a_block():
    model = build(3, {"units": 2, "bias": False, "activation": "none", "l1": 0.1}, dense_layer="noisy_dense")
    assert list(weights(model)) == [
        *(f"p_noisy_dense_0/{name}" for name in ("kernel", "kernel_sigma", "bias", "bias_sigma")),
        *(f"p_noisy_dense_1/{name}" for name in ("kernel", "kernel_sigma")),
    ]
    assert len(model.losses) == 1
    with pytest.raises(ConfigError, match=r"network.scheme.0.kernel_initializer has no effect with dense_layer: noisy"):
        build({"units": 3, "kernel_initializer": 1.0}, dense_layer="noisy_dense")


@pytest.mark.row("L12.13", "A07")
def test_regularisation_by_layer_comes_out_in_the_networks_order():
    model = build(
        {"units": 1, "kernel_initializer": [[1], [-2]], "l1": 0.1},
        3,
        {"units": 1, "kernel_initializer": 2.0, "l1": 0.5, "l2": 0.1},
    )
    # 0.1 (1 + 2), then 0.5 (2 + 2 + 2) + 0.1 (4 + 4 + 4) / 2
    np.testing.assert_allclose([float(loss) for loss in model.losses], [0.3, 3.6], rtol=1e-6)
    assert layers.regularization(0.0, 0.0) is None


def test_the_block_s_activation_holds_for_layers_that_name_none():
    x = [[-1.0, 2.0]]
    identity = {"units": 2, "kernel_initializer": [[1, 0], [0, 1]]}
    np.testing.assert_allclose(run(build(identity, activation="tanh"), x), np.tanh(x), rtol=1e-6)
    np.testing.assert_allclose(run(build({**identity, "activation": "none"}, activation="tanh"), x), x)


@pytest.mark.row("L12.1", "L02")
def test_an_activation_alone_and_its_slope():
    np.testing.assert_allclose(
        run(build({"kind": "activation", "activation": "leaky_relu", "negative_slope": 0.1}), [[-1, 2]]), [[-0.1, 2]]
    )
    np.testing.assert_array_equal(run(build({"kind": "activation", "activation": "relu"}), [[-1, 2]]), [[0, 2]])


def test_normalisation_layers():
    x = np.float32([[1.0, 3.0], [5.0, 9.0]])
    layer_norm = run(build({"kind": "layer_norm", "epsilon": 1e-9}), x)
    np.testing.assert_allclose(layer_norm, [[-1, 1], [-1, 1]], rtol=1e-5)
    model = build({"kind": "batch_norm", "epsilon": 1e-9, "momentum": 0.0})
    np.testing.assert_allclose(run(model, x, training=True), [[-1, -1], [1, 1]], rtol=1e-5)
    np.testing.assert_allclose(run(model, x), [[-1, -1], [1, 1]], rtol=1e-5)  # momentum 0: the last batch's moments


@pytest.mark.row("L03")
@pytest.mark.parametrize("x", [{"a": np.ones((1, 2))}, 3.0, np.float32(3.0)])
def test_layers_take_one_tensor_with_a_batch_axis(x):
    with pytest.raises(ValueError, match="one tensor with a batch axis"):
        layers.apply_scheme(x, (), block=BlockParameters(), prefix="p", seed=1)


@pytest.mark.row("F05")
@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (
            {"kind": "conv2d", "filters": 2},
            (4,),
            r"\(conv2d\) does not fit its input of shape \[4\]: it takes \[height, w",
        ),
        ({"kind": "conv2d", "filters": 2, "kernel_size": 8}, (6, 9, 1), r"\[6, 9, 1\]: its window of 8 x 8 is larger"),
        ({"kind": "pool2d", "pool_size": 3}, (2, 9, 1), "its window of 3 x 3 is larger"),
        ({"kind": "conv1d", "filters": 2}, (2, 1), "its window of 3 is larger"),
        ({"kind": "lstm", "units": 2}, (4,), r"it takes \[length, channels\]"),
    ],
)
def test_a_layer_that_does_not_fit_says_so_in_one_line(layer, shape, message):
    with pytest.raises(ConfigError, match=f"^network.scheme.1 .*{message}") as caught:
        build({"kind": "activation", "activation": "relu"}, layer, shape=shape)
    assert "\n" not in str(caught.value)


EVERY_KIND = {
    "dense": ({"units": 3, "skip": True}, (3,)),
    "noisy_dense": ({"kind": "noisy_dense", "units": 3}, (2,)),
    "conv1d": ({"kind": "conv1d", "filters": 3, "strides": 2, "padding": "same"}, (7, 2)),
    "conv2d": ({"kind": "conv2d", "filters": 3, "kernel_size": [3, 2]}, (5, 6, 2)),
    "pool2d max": ({"kind": "pool2d", "padding": "same", "pool_size": 3, "strides": 2}, (5, 5, 2)),
    "pool2d average": ({"kind": "pool2d", "pooling": "average", "padding": "same"}, (5, 5, 2)),
    "flatten": ({"kind": "flatten"}, (2, 3)),
    "activation": ({"kind": "activation", "activation": "leaky_relu", "negative_slope": 0.1}, (2,)),
    "dropout": ({"kind": "dropout", "rate": 0.5}, (2,)),
    "batch_norm": ({"kind": "batch_norm"}, (2,)),
    "batch_renorm": ({"kind": "batch_renorm"}, (2,)),
    "layer_norm": ({"kind": "layer_norm"}, (4,)),
    "embedding": ({"kind": "embedding", "indices": 9, "units": 4}, (7,)),
    "dueling": ({"kind": "dueling", "units": 3}, (2,)),
    "lstm": ({"kind": "lstm", "units": 3}, (4, 2)),
    "lstm over words": (
        {"kind": "lstm", "units": 3, "return_sequences": True, "mask_value": 1.0, "dropout": 0.5},
        (4, 1),
    ),
    "residual": ({"kind": "residual", "layers": [{"kind": "conv2d", "filters": 2, "padding": "same"}]}, (3, 3, 2)),
    "custom": ({"kind": "custom", "layer": "keras.layers:Dense", "arguments": {"units": 2}}, (3,)),
}


WHOLE_NUMBERS = {"embedding", "lstm over words"}  # so that rows are found, and padding is


def test_every_kind_is_among_those_that_are_exported():
    kinds = {member.model_fields["kind"].default for member in get_args(LayerParameters)}
    assert {name.partition(" ")[0] for name in EVERY_KIND} == kinds


@pytest.mark.parametrize("name", EVERY_KIND)
def test_every_kind_exports_and_computes_the_same(name):
    described, shape = EVERY_KIND[name]
    model = build(described, shape=shape, dtype="int32" if name in WHOLE_NUMBERS else "float32")
    bundle.verify_graph(bundle.export_graph(model), model)


@pytest.mark.row("D03")
def test_all_flags_together_export():
    described = ({"kind": "conv2d", "filters": 2}, {"kind": "flatten"}, 3)
    model = build(*described, shape=(4, 4, 1), batchnorm=True, dropout_rate=0.5, dense_layer="noisy_dense")
    bundle.verify_graph(bundle.export_graph(model), model)


def test_what_only_training_reads():
    model = build(
        {"kind": "noisy_dense", "units": 4},
        {"kind": "dropout", "rate": 0.5},
        {"kind": "residual", "layers": [{"kind": "noisy_dense", "units": 4, "bias": False}], "repeats": 1},
    )
    assert [state.path for state in layers.random_states(model)] == [
        "p_noisy_dense_0_noise/seed_generator_state",
        "p_dropout_1_noise/seed_generator_state",
        "p_residual_2_0_noisy_dense_0_noise/seed_generator_state",
    ]
    assert [layer.name for layer in layers.noisy_layers(model)] == [
        "p_noisy_dense_0",
        "p_residual_2_0_noisy_dense_0",
    ]
    assert {variable.path for variable in layers.training_only(model)} == {
        *(state.path for state in layers.random_states(model)),
        "p_noisy_dense_0/kernel_sigma",
        "p_noisy_dense_0/bias_sigma",
        "p_residual_2_0_noisy_dense_0/kernel_sigma",
    }
    lstm = build({"kind": "lstm", "units": 2, "dropout": 0.5}, shape=(3, 1))
    drawn, idle = (state.path for state in layers.random_states(lstm))  # Keras' LSTM has one for its own dropout
    assert drawn == "p_lstm_0_dropout_noise/seed_generator_state"
    assert idle.startswith("seed_generator")
    assert len(layers.training_only(lstm)) == len(lstm.variables) - len(lstm.weights) > 0
