"""Layers: from their configuration to Keras, named and seeded. Keras' layers do the work; here is the assembly."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from distrl.config import layers as config
from distrl.config.layers import Activation, DenseKind, LayerDefaults, LayerParameters
from distrl.errors import ConfigError
from distrl.networks.parts.activations import HIDDEN_GAIN, activation_function, initializer
from distrl.networks.parts.custom import custom_layer, seeded
from distrl.networks.parts.noisy import Dropout, NoisyDense
from distrl.networks.parts.schemes import resolve
from distrl.networks.parts.sequences import SequenceLSTM
from distrl.networks.parts.windows import window_of


def layer_seed(seed: int, name: str) -> int:
    """Seed of one layer's initialiser, from the network's seed and the layer's name.

    Layers are independent of each other, and adding one leaves the others' initial weights as they were.

    Returns:
        An integer in [0, 2**31).
    """
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0] >> 1)


def regularization(l1: float = 0.0, l2: float = 0.0) -> Any:
    """``l1 * sum |w| + l2 * sum w² / 2`` as a Keras regulariser; None where both are 0.

    `model.losses` then has one scalar for each such kernel, in the network's order.
    """
    # Keras' L2 lacks the half.
    return keras.regularizers.L1L2(l1=l1, l2=l2 / 2.0) if l1 or l2 else None


def dense(
    units: int,
    activation: Activation,
    *,
    name: str,
    seed: int,
    gain: float = HIDDEN_GAIN,
    kind: DenseKind = "dense",
    l1: float = 0.0,
    l2: float = 0.0,
) -> Any:
    """A dense layer with an orthogonal kernel and zero bias, or a noisy one.

    Args:
        units: Width of the output.
        activation: Name of the activation; "none" is linear, "gelu" the tanh approximation.
        name: Unique within the network; the weights' paths start with it.
        seed: The network's seed; equal seeds and names give bit-equal weights.
        gain: Scale of the orthogonal kernel. Noisy layers start as their paper says, at no other scale.
        kind: Whether its weights carry noise while training.
        l1: Adds l1 * sum |kernel| to the model's losses.
        l2: Adds l2 * sum kernel² / 2 to the model's losses.
    """
    function, regularizer = activation_function(activation), regularization(l1, l2)
    own_seed = layer_seed(seed, name)
    if kind == "noisy_dense":
        return NoisyDense(units, function, kernel_regularizer=regularizer, seed=own_seed, name=name)
    return keras.layers.Dense(
        units,
        activation=function,
        kernel_initializer=initializer(None, gain=gain, seed=own_seed),
        kernel_regularizer=regularizer,
        name=name,
    )


def dueling(value: Any, advantages: Any, axis: int = -1) -> Any:
    """``E + A - mean A`` (Wang et al. 2016, equation 9).

    Args:
        value: E [batch, 1], or whatever broadcasts with the advantages.
        advantages: A [batch, A]. Its mean is taken along `axis`.
        axis: Of the actions.

    Returns:
        Like `advantages`.
    """
    return value + advantages - keras.ops.mean(advantages, axis=axis, keepdims=True)


def random_states(model: Any) -> list[Any]:
    """State of every generator that the model draws from while training; a training that goes on needs them back."""
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def training_only(model: Any) -> list[Any]:
    """Variables that reach no output in inference: states of random generators, and how strong noise is."""
    return [*random_states(model), *(sigma for layer in noisy_layers(model) for sigma in layer.sigmas)]


def noisy_layers(model: Any) -> list[NoisyDense]:
    """Every noisy layer once, in the model's order."""
    found = [layer for layer in model._flatten_layers() if isinstance(layer, NoisyDense)]
    return list({id(layer): layer for layer in found}.values())


def is_activated(layer: Any) -> bool:
    """Whether what the layer puts out has gone through an activation last; memory is no such layer."""
    function = getattr(layer, "activation", None)
    memory = hasattr(layer, "state_size")  # recurrent layers and cells
    return is_relu(layer) or not (function is None or function is keras.activations.linear or memory)


def is_relu(layer: Any) -> bool:
    """Whether what the layer puts out has gone through a relu last."""
    return isinstance(layer, keras.layers.ReLU) or getattr(layer, "activation", None) is keras.activations.relu


def check_block(block: LayerDefaults, layers: Sequence[LayerParameters], path: str) -> None:
    """Refuses what holds for all layers of a block that has none.

    Raises:
        ConfigError: An option of the block is set and there are no layers; names it.
    """
    changed = [name for name, field in LayerDefaults.model_fields.items() if getattr(block, name) != field.default]
    if changed and not layers:
        raise ConfigError(f"{path}.{changed[0]} has no use: the scheme has no layers")


def apply_scheme(
    x: Any,
    layers: Sequence[LayerParameters],
    *,
    block: LayerDefaults,
    prefix: str,
    seed: int,
    path: str = "scheme",
) -> Any:
    """Applies layers in order.

    Args:
        x: Keras tensor [batch, ...].
        layers: As `schemes.resolve` gives them.
        block: What holds for all of them: activation, batch normalisation, dropout, noise.
        prefix: Layers are called ``<prefix>_<kind>_<index>``, and so are their weights.
        seed: The network's seed.
        path: Where the configuration has these layers, for errors.

    Returns:
        Keras tensor [batch, ...], whose shape is known without data.

    Raises:
        ConfigError: A layer does not fit its input; names the layer and the shape.
        ValueError: `x` is a mapping or has no batch axis.
    """
    if isinstance(x, Mapping) or not getattr(x, "shape", ()):
        raise ValueError("layers take one tensor with a batch axis; several inputs need a merger")
    for index, parameters in enumerate(layers):
        if block.dense_layer == "noisy_dense" and isinstance(parameters, config.DenseLayer):
            parameters = _as_noisy(parameters, f"{path}.{index}")
        name = f"{prefix}_{parameters.kind}_{index}"
        place = _Place(name, layer_seed(seed, name), seed, block, f"{path}.{index}")
        try:
            _check_shape(x.shape[1:], parameters)
            x = _APPLY[type(parameters)](x, parameters, place)
        except ValueError as error:
            what = f"{place.path} ({parameters.kind}) does not fit its input of shape {list(x.shape[1:])}"
            raise ConfigError(f"{what}: {' '.join(str(error).split())}") from error
    return x


@dataclass(frozen=True)
class _Place:
    """Where a layer stands."""

    name: str
    seed: int
    """Of this layer."""
    network_seed: int
    block: LayerDefaults
    path: str


def _as_noisy(parameters: config.DenseLayer, path: str) -> config.NoisyDenseLayer:
    given = parameters.model_dump(exclude={"kind"}, exclude_unset=True)
    if given.pop("kernel_initializer", None) is not None:
        raise ConfigError(f"{path}.kernel_initializer has no use with dense_layer: noisy_dense")
    return config.NoisyDenseLayer(**given)


_RANKS = {"conv1d": 2, "conv2d": 3, "pool2d": 3, "lstm": 2}
_AXES = {2: "[length, channels]", 3: "[height, width, channels]"}


def _check_shape(shape: tuple[int, ...], parameters: Any) -> None:
    """Says in words what Keras would say in a paragraph; raises ValueError."""
    rank = _RANKS.get(parameters.kind)
    if rank is not None and len(shape) != rank:
        raise ValueError(f"it takes {_AXES[rank]}")
    sizes = window_of(parameters, len(shape) - 1)
    if sizes is not None and any(size > axis for size, axis in zip(sizes, shape, strict=False)):
        raise ValueError(f"its window of {' x '.join(map(str, sizes))} is larger")


def _finish(x: Any, activation: Activation | None, place: _Place) -> Any:
    """What follows a dense layer or a convolution: batch normalisation, activation, dropout."""
    if place.block.batchnorm:
        x = keras.layers.BatchNormalization(name=f"{place.name}_batch_norm")(x)
    activation = place.block.activation if activation is None else activation
    if activation != "none":
        x = keras.layers.Activation(activation_function(activation), name=f"{place.name}_activation")(x)
    if place.block.dropout_rate > 0.0:
        name = f"{place.name}_dropout"
        x = Dropout(place.block.dropout_rate, seed=layer_seed(place.network_seed, name), name=name)(x)
    return x


def _dense(x: Any, parameters: config.DenseLayer | config.NoisyDenseLayer, place: _Place) -> Any:
    width = x.shape[-1]
    units = width if parameters.units is None else parameters.units
    if parameters.skip and units != width:
        raise ValueError(f"skip adds the input, so units must be {width}, not {units}")
    shared: dict[str, Any] = {
        "use_bias": parameters.bias,
        "kernel_regularizer": regularization(parameters.l1, parameters.l2),
        "name": place.name,
    }
    if isinstance(parameters, config.NoisyDenseLayer):
        layer = NoisyDense(units, sigma0=parameters.sigma0, seed=place.seed, **shared)
    else:
        kernel = initializer(parameters.kernel_initializer, gain=HIDDEN_GAIN, seed=place.seed)
        layer = keras.layers.Dense(units, kernel_initializer=kernel, **shared)
    y = _finish(layer(x), parameters.activation, place)
    return keras.layers.Add(name=f"{place.name}_skip")([x, y]) if parameters.skip else y


def _convolution(x: Any, parameters: config.Conv1DLayer | config.Conv2DLayer, place: _Place) -> Any:
    class_ = keras.layers.Conv1D if isinstance(parameters, config.Conv1DLayer) else keras.layers.Conv2D
    convolution = class_(
        parameters.filters,
        parameters.kernel_size,
        strides=parameters.strides,
        padding=parameters.padding,
        use_bias=parameters.bias,
        kernel_initializer=initializer(parameters.kernel_initializer, gain=HIDDEN_GAIN, seed=place.seed),
        kernel_regularizer=regularization(parameters.l1, parameters.l2),
        name=place.name,
    )
    return _finish(convolution(x), parameters.activation, place)


def _pool(x: Any, parameters: config.Pool2DLayer, place: _Place) -> Any:
    class_ = keras.layers.MaxPooling2D if parameters.pooling == "max" else keras.layers.AveragePooling2D
    return class_(parameters.pool_size, parameters.strides, padding=parameters.padding, name=place.name)(x)


def _embedding(x: Any, parameters: config.EmbeddingLayer, place: _Place) -> Any:
    indices = keras.ops.clip(keras.ops.cast(x, "int32"), 0, parameters.indices - 1)
    return keras.layers.Embedding(
        parameters.indices,
        parameters.units,
        embeddings_initializer=keras.initializers.RandomUniform(seed=place.seed),
        embeddings_regularizer=regularization(parameters.l1, parameters.l2),
        name=place.name,
    )(indices)


def _dueling(x: Any, parameters: config.DuelingLayer, place: _Place) -> Any:
    """Both streams can be read: they are the outputs of the layers ``<name>_value`` and ``<name>_advantages``."""

    def stream(units: int, name: str) -> Any:
        return keras.layers.Dense(
            units,
            use_bias=parameters.bias,
            kernel_initializer=initializer(None, gain=1.0, seed=layer_seed(place.network_seed, name)),
            kernel_regularizer=regularization(parameters.l1, parameters.l2),
            name=name,
        )(x)

    joined = dueling(stream(1, f"{place.name}_value"), stream(parameters.units, f"{place.name}_advantages"))
    return keras.layers.Activation(activation_function(parameters.activation), name=place.name)(joined)


def _residual(x: Any, parameters: config.ResidualLayer, place: _Place) -> Any:
    unit = resolve(parameters.layers, "middleware")
    for repeat in range(parameters.repeats):
        prefix = f"{place.name}_{repeat}"
        y = apply_scheme(
            x, unit, block=place.block, prefix=prefix, seed=place.network_seed, path=f"{place.path}.layers"
        )
        if y.shape != x.shape:
            raise ValueError(f"its layers end in {list(y.shape[1:])}, which cannot be added to it")
        x = keras.layers.Add(name=f"{prefix}_add")([x, y])
    return x


def _custom(x: Any, parameters: config.CustomLayer, place: _Place) -> Any:
    with seeded(place.seed):
        return custom_layer(parameters, name=place.name)(x)


def _activation(x: Any, parameters: config.ActivationLayer, place: _Place) -> Any:
    function = activation_function(parameters.activation, parameters.negative_slope)
    return keras.layers.Activation(function, name=place.name)(x)


def _batch_norm(x: Any, parameters: config.BatchNormLayer, place: _Place) -> Any:
    return keras.layers.BatchNormalization(momentum=parameters.momentum, epsilon=parameters.epsilon, name=place.name)(x)


def _layer_norm(x: Any, parameters: config.LayerNormLayer, place: _Place) -> Any:
    return keras.layers.LayerNormalization(epsilon=parameters.epsilon, name=place.name)(x)


def _lstm(x: Any, parameters: config.LSTMLayer, place: _Place) -> Any:
    return SequenceLSTM(
        parameters.units,
        return_sequences=parameters.return_sequences,
        mask_value=parameters.mask_value,
        dropout=parameters.dropout,
        seed=place.seed,
        name=place.name,
    )(x)


_APPLY: dict[type[LayerParameters], Callable[[Any, Any, _Place], Any]] = {
    config.DenseLayer: _dense,
    config.NoisyDenseLayer: _dense,
    config.Conv1DLayer: _convolution,
    config.Conv2DLayer: _convolution,
    config.Pool2DLayer: _pool,
    config.FlattenLayer: lambda x, parameters, place: keras.layers.Flatten(name=place.name)(x),
    config.ActivationLayer: _activation,
    config.DropoutLayer: lambda x, parameters, place: Dropout(parameters.rate, seed=place.seed, name=place.name)(x),
    config.BatchNormLayer: _batch_norm,
    config.LayerNormLayer: _layer_norm,
    config.EmbeddingLayer: _embedding,
    config.DuelingLayer: _dueling,
    config.LSTMLayer: _lstm,
    config.CustomLayer: _custom,
    config.ResidualLayer: _residual,
}
