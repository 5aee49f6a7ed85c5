"""Every layer of Keras in a policy: exported, or refused by its name. docs/networks.md has the same lists."""

import re
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

from distrl.errors import ConfigError, MissingExtraError
from distrl.networks.policy import bundle

VECTOR, SEQUENCE, IMAGE, VOLUME, SOUND = (6,), (6, 4), (8, 8, 3), (6, 6, 6, 2), (64,)
OF_AXES = {1: SEQUENCE, 2: IMAGE, 3: VOLUME}


class Case(NamedTuple):
    """Shapes of the inputs, how the layer is applied to them, and its arguments."""

    shapes: tuple
    apply: object
    arguments: object = dict


def one(layer, x):
    return layer(x)


def twice(layer, x):
    return layer(x, x)


def together(layer, *inputs):
    return layer(list(inputs))


def step(layer, x, *states):
    return layer(x, list(states))[0]


def tokens(layer, *inputs):
    whole = [ops.cast(ops.round(ops.sigmoid(x)), "int32") for x in inputs]
    return layer(whole[0] if len(whole) == 1 else tuple(whole))


def texts(layer, x):
    return layer(ops.cast(x, "string"))


def pixels(layer, x):
    return layer(ops.sigmoid(x) * 255.0)


def every(names, *shapes, apply=one, **arguments):
    return {name: Case(shapes, apply, lambda: arguments) for name in names.split()}


def by_axes(names, axes=(1, 2, 3), **arguments):
    return {
        f"{stem}{axis}D{rest}": Case((OF_AXES[axis],), one, lambda: arguments)
        for stem, _, rest in (name.partition("*") for name in names.split())
        for axis in axes
    }


def within(shape, make):
    return Case((shape,), one, make)


EXPORTED = (
    every(
        "ActivityRegularization BatchNormalization ELU Flatten Identity LayerNormalization LeakyReLU Masking PReLU "
        "ReLU RMSNormalization Softmax UnitNormalization",
        SEQUENCE,
    )
    | every("Activation", VECTOR, activation="gelu")
    | every("AlphaDropout Dropout GaussianDropout", VECTOR, rate=0.5)
    | every("GaussianNoise", VECTOR, stddev=0.5)
    | every("Dense", VECTOR, units=3)
    | every("EinsumDense", VECTOR, equation="ab,bc->ac", output_shape=3)
    | every("Embedding ReversibleEmbedding", VECTOR, apply=tokens, input_dim=3, output_dim=2)
    | every("CategoryEncoding", VECTOR, apply=tokens, num_tokens=3)
    | every("GroupNormalization", SEQUENCE, groups=2)
    | every("Lambda", VECTOR, function=lambda x: 2.0 * x)
    | every("Normalization", VECTOR, mean=1.0, variance=2.0)
    | every("Permute", SEQUENCE, dims=(2, 1))
    | every("RepeatVector", VECTOR, n=3)
    | every("Rescaling", VECTOR, scale=2.0)
    | every("Reshape", VECTOR, target_shape=(2, 3))
    | every("Add Average Concatenate Maximum Minimum Multiply Subtract", VECTOR, VECTOR, apply=together)
    | every("Dot", VECTOR, VECTOR, apply=together, axes=1)
    | every("AdditiveAttention Attention", SEQUENCE, SEQUENCE, apply=together)
    | every("MultiHeadAttention", SEQUENCE, apply=twice, num_heads=2, key_dim=3)
    | every("GroupQueryAttention", SEQUENCE, apply=twice, head_dim=3, num_query_heads=4, num_key_value_heads=2)
    | by_axes("AdaptiveAveragePooling AdaptiveMaxPooling", output_size=2)
    | by_axes("AveragePooling MaxPooling", pool_size=2)
    | by_axes("GlobalAveragePooling GlobalMaxPooling")
    | by_axes("Conv Conv*Transpose", filters=3, kernel_size=2)
    | by_axes("SeparableConv", (1, 2), filters=3, kernel_size=2)
    | by_axes("DepthwiseConv", (1, 2), kernel_size=2)
    | by_axes("Cropping", cropping=1)
    | by_axes("UpSampling", size=2)
    | by_axes("ZeroPadding", padding=1)
    | by_axes("SpatialDropout", rate=0.5)
    | every("ConvLSTM1D", (3, *SEQUENCE), filters=2, kernel_size=2)
    | every("ConvLSTM2D", (3, *IMAGE), filters=2, kernel_size=2)
    | every("ConvLSTM3D", (3, *VOLUME), filters=2, kernel_size=2)
    | every("GRU LSTM SimpleRNN", SEQUENCE, units=3)
    | every("GRUCell SimpleRNNCell", VECTOR, (3,), apply=step, units=3)
    | every("LSTMCell", VECTOR, (3,), (3,), apply=step, units=3)
    | {
        "Bidirectional": within(SEQUENCE, lambda: {"layer": keras.layers.LSTM(3, name="inner")}),
        "Pipeline": within(VECTOR, lambda: {"layers": [keras.layers.Dense(3), keras.layers.ReLU()]}),
        "RNN": within(SEQUENCE, lambda: {"cell": keras.layers.LSTMCell(3)}),
        "TimeDistributed": within(SEQUENCE, lambda: {"layer": keras.layers.Dense(3)}),
        "StackedRNNCells": Case(
            (VECTOR, (3,), (4,)), step, lambda: {"cells": [keras.layers.GRUCell(3), keras.layers.GRUCell(4)]}
        ),
    }
    | every("STFTSpectrogram", (64, 1), frame_length=16)
    | every("CenterCrop RandomCrop Resizing", IMAGE, height=4, width=4)
    | every("MaxNumBoundingBoxes", IMAGE, max_number=3)
    | every(
        "AugMix AutoContrast ContrastLimitedAdaptiveHistogramEqualization CutMix MixUp RandAugment RandomColorJitter "
        "RandomElasticTransform RandomErasing RandomFlip RandomGaussianBlur RandomGrayscale RandomInvert "
        "RandomPerspective RandomShear Solarization",
        IMAGE,
        apply=pixels,
    )
    | every(
        "RandomBrightness RandomColorDegeneration RandomContrast RandomHue RandomRotation RandomSaturation "
        "RandomSharpness",
        IMAGE,
        apply=pixels,
        factor=0.5,
    )
    | every("RandomPosterization", IMAGE, apply=pixels, factor=4)
    | every("RandomTranslation RandomZoom", IMAGE, apply=pixels, height_factor=0.2, width_factor=0.2)
)
if keras.backend.backend() == "jax":
    del EXPORTED["ContrastLimitedAdaptiveHistogramEqualization"], EXPORTED["MixUp"]  # docs/networks.md says so
RARE = re.compile(r".*[13]D|ConvLSTM|Random|AugMix|AutoContrast|Contrast|CutMix|MixUp|RandAugment|Solar|MaxNum|STFT")
"""Layers over one or three axes, as those over two, and changes of training images, which a policy does not make."""
REFUSED = {
    "Discretization": (Case((VECTOR,), one, lambda: {"bin_boundaries": [0.0, 1.0]}), "Bucketize"),
    "HashedCrossing": (Case(((1,), (1,)), tokens, lambda: {"num_bins": 5}), "SparseCross"),
    "Hashing": (Case((VECTOR,), tokens, lambda: {"num_bins": 5}), "StringToHashBucketFast"),
    "IntegerLookup": (Case((VECTOR,), tokens, lambda: {"vocabulary": [1, 2]}), "LookupTableFindV2"),
    "MelSpectrogram": (
        Case((SOUND,), one, lambda: {"fft_length": 16, "sequence_stride": 8, "sampling_rate": 100, "num_mel_bins": 4}),
        "RFFT",
    ),
    "SpectralNormalization": (
        Case((VECTOR,), one, lambda: {"layer": keras.layers.Dense(3)}),
        r"layer tried \(SpectralNormalization\) has a weight, tried/vector_u, that reaches no output",
    ),
    "StringLookup": (Case((VECTOR,), texts, lambda: {"vocabulary": ["a"]}), "LookupTableFindV2"),
    "TextVectorization": (Case(((1,),), texts, lambda: {"vocabulary": ["a"]}), ""),
}
NO_LAYERS = {
    "Equalization",  # Keras builds no model with it
    "FlaxLayer",
    "InputLayer",
    "JaxLayer",
    "Layer",
    "TFSMLayer",
    "TorchModuleWrapper",
    "Wrapper",
}
"""Base classes, and wrappers of other frameworks' models."""


def model_of(apply, *shapes, stem="x"):
    names = [f"{stem}{index}" for index in range(len(shapes))]
    inputs = {name: keras.Input(shape, name=name) for name, shape in zip(names, shapes, strict=True)}
    output = apply(*inputs.values())
    output = output[0] if isinstance(output, list | tuple) else output
    return keras.Model(inputs, {"y": ops.cast(output, "float32")}, name="whole")


def check(model):
    bundle.verify_graph(bundle.export_graph(model), model)


def with_layer(name, case, called="tried"):
    layer = getattr(keras.layers, name)(**case.arguments(), name=called)
    return model_of(lambda *inputs: case.apply(layer, *inputs), *case.shapes, stem=f"{called}_x")


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name in EXPORTED if not RARE.match(name)], id="others"),
        pytest.param([name for name in EXPORTED if RARE.match(name)], id="rare"),
    ],
)
def test_layers_that_are_said_to_be_exported_compute_the_same(names):
    """In one model, as each export alone costs more than its layer; a difference is told by the output's name."""
    models = {name: with_layer(name, EXPORTED[name], name) for name in names}
    inputs = {name: tensor for model in models.values() for name, tensor in model.input.items()}
    check(keras.Model(inputs, {name: model.output["y"] for name, model in models.items()}, name="whole"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_every_layer_that_is_said_to_be_exported_computes_the_same_alone(name):
    check(with_layer(name, EXPORTED[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_every_other_layer_is_refused_by_its_name(name):
    case, what = REFUSED[name]
    model = with_layer(name, case)
    with pytest.raises(ConfigError, match=f"^policy export: .*{what}") as raised:
        check(model)
    assert re.search(rf"{name}|tried/", str(raised.value))
    assert "\n" not in str(raised.value)


def test_every_layer_of_keras_is_in_one_list_and_in_the_documentation():
    everything = {name: value for name, value in vars(keras.layers).items() if isinstance(value, type)}
    classes = {value for value in everything.values() if issubclass(value, keras.layers.Layer)}
    assert classes == {everything[name] for name in (*EXPORTED, *REFUSED, *NO_LAYERS)}
    page = (Path(__file__).parents[3] / "docs" / "networks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (exported|refused|no layers) \|[^|]*\| (.*) \|$", page, re.MULTILINE)
    listed = {"exported": set(), "refused": set(), "no layers": set()}
    for kind, names in rows:
        for name in re.findall(r"`([\w*]+)`", names):
            found = {name.replace("*", f"{axis}D") for axis in (1, 2, 3)} & everything.keys()
            assert found, name
            listed[kind] |= found
    assert listed == {"exported": {*EXPORTED}, "refused": {*REFUSED}, "no layers": NO_LAYERS}


class Table(keras.layers.Layer):
    """x @ table, of a tensor that is no weight."""

    def __init__(self, columns, **kwargs):
        super().__init__(**kwargs)
        self.table = ops.convert_to_tensor(np.arange(6.0 * columns, dtype=np.float32).reshape(6, columns))

    def call(self, x):
        return ops.matmul(x, self.table)


@pytest.mark.parametrize("columns", [2, 50])
def test_tensors_that_a_layer_has_made_are_constants_of_the_graph(columns):
    """TensorFlow passes large ones to the function as inputs, and small ones too if a layer holds them."""
    check(model_of(Table(columns), (6,)))


class Loop(keras.layers.Layer):
    """A running mean by `ops.scan`."""

    def call(self, x):
        _, means = ops.scan(lambda mean, now: (0.9 * mean + now,) * 2, ops.zeros_like(x[:, 0]), ops.transpose(x))
        return ops.transpose(means)

    def compute_output_shape(self, shape):
        return shape


class Spectrum(keras.layers.Layer):
    def call(self, x):
        real, imaginary = ops.rfft(x)
        return real + imaginary


@pytest.mark.parametrize(("layer", "operation"), [(Loop, "TensorList"), (Spectrum, "RFFT")])
def test_operations_of_own_layers_are_refused_by_the_layer_s_name(layer, operation):
    model = model_of(lambda x: layer(name="mine")(keras.layers.Dense(6)(x)), (6,))
    with pytest.raises(ConfigError, match=rf"^policy export: layer mine \({layer.__name__}\) computes {operation}"):
        bundle.export_graph(model)


class Inside(keras.Model):
    """A layer inside a layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = keras.layers.Dense(6, name="first")
        self.buckets = keras.layers.Discretization([0.0], name="buckets")

    def call(self, x):
        return ops.cast(self.buckets(self.first(x)), "float32")


def test_the_innermost_layer_is_named():
    model = model_of(Inside(name="outer"), (6,))
    with pytest.raises(ConfigError, match=r"layer (outer/)?buckets \(Discretization\) computes Bucketize"):
        bundle.export_graph(model)


def test_a_missing_converter_names_the_extra(monkeypatch):
    model = model_of(keras.layers.Dense(3), (6,))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"tf2onnx.*pip install '.*\[cpu\]'"):
        bundle.export_graph(model)
