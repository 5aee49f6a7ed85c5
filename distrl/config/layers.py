"""Layers as configuration: the building blocks of embedders, middlewares and heads.

A scheme is a name or a list of layers. A layer is a mapping with a `kind` (dense where none is given), or a bare
number: a dense layer of that width. Names and defaults follow Keras where Keras has the layer.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from distrl.config.section import Section

Activation = Literal[
    "none", "relu", "tanh", "elu", "selu", "gelu", "silu", "leaky_relu", "sigmoid", "softplus", "softmax"
]
DenseKind = Literal["dense", "noisy_dense"]
SchemeName = Literal["Empty", "Shallow", "Medium", "Deep"]
InitializerName = Literal[
    "orthogonal", "glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal"
]

MOST_UNITS = 2**24
"""Most units of one layer, as many as choices of an observation: a greater number is a slip, and no memory has room."""

# Strict: inside lists, nothing else would notice true or 3.7 in the place of a number.
Count = Annotated[int, Field(ge=1, le=MOST_UNITS, strict=True)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=0.0, strict=True, allow_inf_nan=False)]


def number_or_list(value: Any) -> str:
    """Return the tag of a value that is one number or a list."""
    return "list" if isinstance(value, list | tuple) else "number"


def _initializer_form(value: Any) -> str:
    return "name" if isinstance(value, str) else number_or_list(value)


Pair = Annotated[
    Annotated[Count, Tag("number")] | Annotated[tuple[Count, Count], Tag("list")], Discriminator(number_or_list)
]
"""One number for both axes, or [height, width]."""

KernelInitializer = Annotated[
    Annotated[InitializerName, Tag("name")] | Annotated[Real, Tag("number")],
    Discriminator(_initializer_form),
]
"""A name, or one number for every element."""

MatrixInitializer = Annotated[
    Annotated[InitializerName, Tag("name")]
    | Annotated[Real, Tag("number")]
    | Annotated[tuple[tuple[Real, ...], ...], Tag("list")],
    Discriminator(_initializer_form),
]
"""A name, one number for every element, or the kernel itself: one list for each input."""


class WeightedLayer(Section):
    """A layer with a kernel."""

    activation: Activation | None = None
    """null: the block's."""
    bias: bool = True
    l1: Penalty = 0.0
    """Adds l1 * sum |w| of the kernel to the loss."""
    l2: Penalty = 0.0
    """Adds l2 * sum w² / 2 of the kernel to the loss."""


class _AnyDenseLayer(WeightedLayer):
    """Fields of dense and noisy layers. Both act on the last axis; to flatten before them, add a flatten layer."""

    units: Count | None = None
    """null, with `skip`: as wide as the input."""
    skip: bool = False
    """Add the input to the output of the activation."""

    @model_validator(mode="after")
    def _width_is_known(self) -> Self:
        if self.units is None and not self.skip:
            raise ValueError("units: null takes the width of the input and needs skip: true")
        return self


class DenseLayer(_AnyDenseLayer):
    """activation(x · kernel + bias)."""

    kind: Literal["dense"] = "dense"
    kernel_initializer: MatrixInitializer | None = None
    """null: as `network.initial_weights` has it."""


class NoisyDenseLayer(_AnyDenseLayer):
    """A dense layer with learned noise on its weights while training (Fortunato et al. 2018)."""

    kind: Literal["noisy_dense"] = "noisy_dense"
    sigma0: Real = Field(0.5, ge=0.0)
    """Initial deviation of the noise, times 1 / sqrt(inputs)."""


class Conv1DLayer(WeightedLayer):
    """A convolution along [length, channels]."""

    kind: Literal["conv1d"] = "conv1d"
    filters: Count
    kernel_size: Count = 3
    strides: Count = 1
    padding: Literal["valid", "same"] = "valid"
    kernel_initializer: KernelInitializer | None = None
    """null: as `network.initial_weights` has it."""


class Conv2DLayer(WeightedLayer):
    """A convolution over [height, width, channels]."""

    kind: Literal["conv2d"] = "conv2d"
    filters: Count
    kernel_size: Pair = 3
    strides: Pair = 1
    padding: Literal["valid", "same"] = "valid"
    kernel_initializer: KernelInitializer | None = None
    """null: as `network.initial_weights` has it."""


class Pool2DLayer(Section):
    """Maximum or mean of every window of [height, width, channels]; padding never counts."""

    kind: Literal["pool2d"] = "pool2d"
    pooling: Literal["max", "average"] = "max"
    pool_size: Pair = 2
    strides: Pair | None = None
    """null: as `pool_size`."""
    padding: Literal["valid", "same"] = "valid"


class FlattenLayer(Section):
    """All axes but the batch become one."""

    kind: Literal["flatten"] = "flatten"


class ActivationLayer(Section):
    """An activation alone."""

    kind: Literal["activation"] = "activation"
    activation: Activation
    negative_slope: Real | None = None
    """Slope of leaky_relu below 0; null: 0.2."""

    @model_validator(mode="after")
    def _slope_has_a_use(self) -> Self:
        if self.negative_slope is not None and self.activation != "leaky_relu":
            raise ValueError(f"negative_slope belongs to leaky_relu, not to {self.activation}")
        return self


class DropoutLayer(Section):
    """Zeroes elements while training and scales the others by 1 / (1 - rate)."""

    kind: Literal["dropout"] = "dropout"
    rate: Real = Field(ge=0.0, lt=1.0)


class BatchNormLayer(Section):
    """Batch normalisation over the last axis: the batch's moments while training, running ones otherwise."""

    kind: Literal["batch_norm"] = "batch_norm"
    momentum: Real = Field(0.99, ge=0.0, lt=1.0)
    epsilon: Real = Field(1e-3, gt=0.0)


class BatchRenormLayer(Section):
    """Batch renormalisation over the last axis: the batch's moments, corrected towards running ones, while training;
    running ones otherwise (Ioffe 2017, arXiv:1702.03275)."""

    kind: Literal["batch_renorm"] = "batch_renorm"
    momentum: Real = Field(0.99, ge=0.0, lt=1.0)
    epsilon: Real = Field(1e-3, gt=0.0)
    r_max: Real = Field(3.0, ge=1.0)
    """The batch's deviation over the running one is clipped to [1 / r_max, r_max]."""
    d_max: Real = Field(5.0, ge=0.0)
    """The distance of both means, in running deviations, is clipped to this."""
    warm_up_updates: Annotated[int, Field(ge=0, strict=True)] = 100_000
    """So many batches are normalised by their own moments alone, while the running ones settle."""


class LayerNormLayer(Section):
    """Layer normalisation over the last axis."""

    kind: Literal["layer_norm"] = "layer_norm"
    epsilon: Real = Field(1e-3, gt=0.0)


class EmbeddingLayer(Section):
    """Whole numbers become vectors: [...] -> [..., units]. Numbers beyond the table take its nearest row."""

    kind: Literal["embedding"] = "embedding"
    indices: Count
    """Rows of the table."""
    units: Count
    l1: Penalty = 0.0
    """Adds l1 * sum |w| of the table to the loss."""
    l2: Penalty = 0.0
    """Adds l2 * sum w² / 2 of the table to the loss."""


class DuelingLayer(Section):
    """activation(E + A - mean A), where E of width 1 and A of width `units` are dense (Wang et al. 2016, eq. 9)."""

    kind: Literal["dueling"] = "dueling"
    units: Count
    activation: Activation = "none"
    bias: bool = False
    l1: Penalty = 0.0
    """Adds l1 * sum |w| of both kernels to the loss."""
    l2: Penalty = 0.0
    """Adds l2 * sum w² / 2 of both kernels to the loss."""


class LSTMLayer(Section):
    """An LSTM over the sequence inside one input, [length, width]; it keeps no state from step to step."""

    kind: Literal["lstm"] = "lstm"
    units: Count
    return_sequences: bool = False
    """Return the output of every row, [length, units], with zeros for padding; otherwise only that of the last row."""
    mask_value: Real | None = None
    """Rows in which every element is this number are padding: they leave state and output unchanged."""
    dropout: Real = Field(0.0, ge=0.0, lt=1.0)
    """Share of the input that is set to 0 while training."""


class CustomLayer(Section):
    """A keras.layers.Layer: one of Keras that has no kind here, or your own."""

    kind: Literal["custom"] = "custom"
    layer: str = Field(pattern=r"^[\w.]+:\w+$")
    """package.module:Class, for example keras.layers:GaussianNoise."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class, besides `name`."""


class ResidualLayer(Section):
    """x + layers(x), repeated with separate weights (He et al. 2016)."""

    kind: Literal["residual"] = "residual"
    layers: "tuple[Layer, ...]"
    repeats: Count = 2

    @model_validator(mode="after")
    def _there_are_layers(self) -> Self:
        if not self.layers:
            raise ValueError("layers is empty, and x + x is no residual block")
        return self


LayerParameters = (
    Annotated[DenseLayer, Tag("dense")]
    | Annotated[NoisyDenseLayer, Tag("noisy_dense")]
    | Annotated[Conv1DLayer, Tag("conv1d")]
    | Annotated[Conv2DLayer, Tag("conv2d")]
    | Annotated[Pool2DLayer, Tag("pool2d")]
    | Annotated[FlattenLayer, Tag("flatten")]
    | Annotated[ActivationLayer, Tag("activation")]
    | Annotated[DropoutLayer, Tag("dropout")]
    | Annotated[BatchNormLayer, Tag("batch_norm")]
    | Annotated[BatchRenormLayer, Tag("batch_renorm")]
    | Annotated[LayerNormLayer, Tag("layer_norm")]
    | Annotated[EmbeddingLayer, Tag("embedding")]
    | Annotated[DuelingLayer, Tag("dueling")]
    | Annotated[LSTMLayer, Tag("lstm")]
    | Annotated[CustomLayer, Tag("custom")]
    | Annotated[ResidualLayer, Tag("residual")]
)
"""Any layer."""


def _layer_kind(value: Any) -> str | None:
    if isinstance(value, int | float):
        return "number"
    kind = value.get("kind", "dense") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


Layer = Annotated[Annotated[Count, Tag("number")] | LayerParameters, Discriminator(_layer_kind)]
"""A layer as it is written: a mapping, dense unless it has a `kind`, or a number for a dense layer of that width."""

ResidualLayer.model_rebuild()


def _scheme_form(value: Any) -> str | None:
    return "name" if isinstance(value, str) else "layers" if isinstance(value, list | tuple) else None


_NO_SCHEME = "Input should be the name of a scheme or a list of layers"

Scheme = Annotated[
    Annotated[SchemeName, Tag("name")] | Annotated[tuple[Layer, ...], Tag("layers")],
    Discriminator(_scheme_form, custom_error_type="scheme_form", custom_error_message=_NO_SCHEME),
]
"""A named scheme, or layers in order."""

EmbedderScheme = Annotated[
    Annotated[Literal["auto", SchemeName, "ImpalaResNet"], Tag("name")] | Annotated[tuple[Layer, ...], Tag("layers")],
    Discriminator(_scheme_form, custom_error_type="scheme_form", custom_error_message=_NO_SCHEME),
]
"""As `Scheme`, with the additional names of embedders."""


class LayerDefaults(Section):
    """Defaults of all layers of one block: an embedder or a middleware."""

    activation: Activation = "relu"
    """Activation of layers that do not name one."""
    batchnorm: bool = False
    """Batch normalisation after every dense layer and convolution, before its activation."""
    dropout_rate: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout after every dense layer and convolution, while training."""
    dense_layer: DenseKind = "dense"
    """Kind of the block's dense layers."""
