"""Layers from their configuration, named and seeded; Keras' own layers do the work."""

import random
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import keras

from distrl.config import layers as config
from distrl.config.layers import Activation, DenseKind, LayerDefaults, LayerParameters
from distrl.config.network import InitialWeights
from distrl.errors import ConfigError
from distrl.networks.parts.initializers import HIDDEN_GAIN, initializers, layer_seed
from distrl.networks.parts.own_layers import BatchRenormalization, Dropout, NoisyDense, SequenceLSTM
from distrl.networks.parts.schemes import resolve, window_of
from distrl.user_classes import own_class


def regularization(l1: float, l2: float) -> Any:
    """``l1 * sum |w| + l2 * sum w² / 2`` as a Keras regulariser; None where both are 0.

    `model.losses` then has one scalar for each such kernel, in the network's order.
    """
    # Keras' L2 lacks the half.
    return keras.regularizers.L1L2(l1=l1, l2=l2 / 2.0) if l1 or l2 else None


def _tanh_gelu(x: Any) -> Any:
    # The tanh form differs from the exact one by less than 0.001 (Hendrycks & Gimpel 2016). Trained weights are of it.
    return keras.activations.gelu(x, approximate=True)


def activation_function(
    activation: Activation | Callable[[Any], Any] | None, negative_slope: float | None = None
) -> Callable[[Any], Any]:
    """Return the function of an activation's name.

    Args:
        activation: A name; None and "none" are linear, "gelu" is the tanh approximation. A function is returned as is.
        negative_slope: Slope of leaky_relu below 0, in place of Keras' 0.2.

    Raises:
        ValueError: There is no such activation, or it has no slope.
    """
    if negative_slope is not None:
        if activation != "leaky_relu":
            raise ValueError(f"negative_slope belongs to leaky_relu, not to {activation}")
        return lambda x: keras.activations.leaky_relu(x, negative_slope=negative_slope)
    if callable(activation):
        return activation
    if activation is None or activation == "none":
        return keras.activations.linear  # type: ignore[no-any-return]
    if activation not in get_args(Activation):
        raise ValueError(f"unknown activation {activation!r}; choose one of {', '.join(get_args(Activation))}")
    return _tanh_gelu if activation == "gelu" else keras.activations.get(activation)


def custom_layer(parameters: config.CustomLayer, *, name: str) -> Any:
    """Return an instance of the class that the configuration names: one of Keras, or the user's own.

    Raises:
        ConfigError: The class cannot be imported, is no keras.layers.Layer, or does not take the arguments.
    """
    class_ = own_class(parameters.layer, "layer")
    if not (isinstance(class_, type) and issubclass(class_, keras.layers.Layer)):
        raise ConfigError(f"layer {parameters.layer} is no keras.layers.Layer")
    try:
        return class_(**parameters.arguments, name=name)
    except (TypeError, ValueError) as error:
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        # An argument that the class does not take has no traceback of the user's code.
        raise ConfigError(f"layer {parameters.layer}: {' '.join(str(error).split())}") from (error if inside else None)


_WITHIN = (
    r"Error encountered:\s*(.*?)\s*(?:Arguments received|$)",
    r"Exception encountered .*?\n\n(.*?)\s*Arguments received",
)
"""Patterns of the text of an exception that Keras raises again with other text."""


def own_words(error: Exception) -> str:
    """Return, in one line, the text of an error of the user's code without Keras' text around it, and its place."""
    text = str(error.args[0]) if error.args else str(error)
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    found = [words[1] for pattern in _WITHIN if (words := re.search(pattern, text, re.DOTALL)) is not None]
    text = found[0] if found else text
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{' '.join(text.split())} ({Path(place.filename).name}, line {place.lineno})"


def users_model(path: str, arguments: Mapping[str, Any], inputs: Mapping[str, Any], name: str, seed: int) -> Any:
    """Apply the user's own keras.Model to all inputs: [batch, width].

    Raises:
        ConfigError: The model cannot be made or called, or returns something else.
    """
    try:
        with seeded(layer_seed(seed, name)):
            merged = custom_layer(config.CustomLayer(layer=path, arguments=dict(arguments)), name=name)(dict(inputs))
    except ConfigError as error:
        raise ConfigError(f"network.model: {error}") from error.__cause__
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(f"network.model: {path}: {type(error).__name__}: {own_words(error)}") from error
    shape = getattr(merged, "shape", None)
    if shape is None or len(shape) != 2 or shape[1] is None:
        what = f"a tensor [batch, {', '.join(map(str, shape[1:]))}]" if shape is not None else type(merged).__name__
        raise ConfigError(f"network.model: {path} must return [batch, width] of one width, not {what}")
    return merged


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Make the seeds that Keras draws inside follow from `seed`.

    Keras draws them from Python's generator, whose state is restored at the end. distrl's own layers get their seeds as
    an argument; layers of others need no such argument.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def dense(
    units: int,
    activation: Activation,
    *,
    name: str,
    seed: int,
    gain: float = HIDDEN_GAIN,
    kind: DenseKind = "dense",
    initial: InitialWeights = "orthogonal",
) -> Any:
    """Return a dense layer, or a noisy one.

    Args:
        gain: Scale of an orthogonal kernel. Noisy layers start at the scale of their paper.
        initial: How kernel and bias of a dense layer begin.
    """
    function, own_seed = activation_function(activation), layer_seed(seed, name)
    if kind == "noisy_dense":
        return NoisyDense(units, function, seed=own_seed, name=name)
    begins = initializers(initial, seed=own_seed, gain=gain)
    return keras.layers.Dense(units, activation=function, name=name, **begins)


def dueling(value: Any, advantages: Any, axis: int = -1) -> Any:
    """``E + A - mean A`` (Wang et al. 2016, equation 9).

    Args:
        value: E [batch, 1], or a shape that broadcasts with the advantages.
        advantages: A [batch, A].
        axis: Axis of the actions, along which the mean is taken.

    Returns:
        The shape of `advantages`.
    """
    return value + advantages - keras.ops.mean(advantages, axis=axis, keepdims=True)


def with_gradient(x: Any, factor: float) -> Any:
    """Return x, through which `factor` times the gradient flows."""
    return x if factor == 1.0 else factor * x + (1.0 - factor) * keras.ops.stop_gradient(x)


def random_states(model: Any) -> list[Any]:
    """Return the state of every generator that the model draws from while training; a resumed training needs them."""
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def random_layers(model: Any) -> list[str]:
    """Return the names of layers that draw random numbers while training, such as dropout."""
    return [layer.name for layer in model._flatten_layers() if layer._seed_generators and _draws(layer)]


def _draws(layer: Any) -> bool:
    """Return False for recurrent layers without dropout, which have a generator all the same."""
    rates = [getattr(layer, name) for name in ("dropout", "recurrent_dropout") if hasattr(layer, name)]
    return not rates or any(rates)


def training_only(model: Any) -> list[Any]:
    """Return the variables that reach no output in inference: random states, scales of noise, counts of batches."""
    sigmas = [sigma for layer in noisy_layers(model) for sigma in layer.sigmas]
    renormalizations = [layer for layer in model._flatten_layers() if isinstance(layer, BatchRenormalization)]
    counts = {id(layer): layer.updates for layer in renormalizations}
    return [*random_states(model), *sigmas, *counts.values()]


def noisy_layers(model: Any) -> list[NoisyDense]:
    """Return every noisy layer once, in the model's order."""
    found = [layer for layer in model._flatten_layers() if isinstance(layer, NoisyDense)]
    return list({id(layer): layer for layer in found}.values())


def is_activated(layer: Any) -> bool:
    """Return whether the layer ends in an activation; recurrent layers do not count."""
    function = getattr(layer, "activation", None)
    recurrent = hasattr(layer, "state_size")
    return is_relu(layer) or not (function is None or function is keras.activations.linear or recurrent)


def is_relu(layer: Any) -> bool:
    """Return whether the layer ends in a relu."""
    return isinstance(layer, keras.layers.ReLU) or getattr(layer, "activation", None) is keras.activations.relu


def check_block(block: LayerDefaults, layers: Sequence[LayerParameters], path: str) -> None:
    """Raise ConfigError, which names the option, if a block without layers sets an option for all its layers."""
    changed = [name for name in LayerDefaults.model_fields if block.is_changed(name)]
    if changed and not layers:
        raise ConfigError(f"{path}.{changed[0]} has no effect: the scheme has no layers")


def apply_scheme(
    x: Any,
    layers: Sequence[LayerParameters],
    *,
    block: LayerDefaults,
    prefix: str,
    seed: int,
    path: str = "scheme",
    initial: InitialWeights = "orthogonal",
) -> Any:
    """Apply layers in order.

    Args:
        layers: The result of `schemes.resolve`.
        prefix: Layers are called ``<prefix>_<kind>_<index>``, and so are their weights.
        path: Where the configuration has these layers, for errors.
        initial: How dense layers and convolutions begin.

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
        place = _Place(name, layer_seed(seed, name), seed, block, f"{path}.{index}", initial)
        try:
            _check_shape(x.shape[1:], parameters)
            x = _APPLY[type(parameters)](x, parameters, place)
        except ValueError as error:
            what = f"{place.path} ({parameters.kind}) does not fit its input of shape {list(x.shape[1:])}"
            raise ConfigError(f"{what}: {' '.join(str(error).split())}") from error
    return x


@dataclass(frozen=True)
class _Place:
    """Names and seeds of one layer; `seed` is the layer's own."""

    name: str
    seed: int
    network_seed: int
    block: LayerDefaults
    path: str
    initial: InitialWeights


def _as_noisy(parameters: config.DenseLayer, path: str) -> config.NoisyDenseLayer:
    given = parameters.model_dump(exclude={"kind"}, exclude_unset=True)
    if given.pop("kernel_initializer", None) is not None:
        raise ConfigError(f"{path}.kernel_initializer has no effect with dense_layer: noisy_dense")
    return config.NoisyDenseLayer(**given)


_RANKS = {"conv1d": 2, "conv2d": 3, "pool2d": 3, "lstm": 2}
_AXES = {2: "[length, channels]", 3: "[height, width, channels]"}


def _check_shape(shape: tuple[int, ...], parameters: Any) -> None:
    """Raise a ValueError that is shorter than Keras' own."""
    rank = _RANKS.get(parameters.kind)
    if rank is not None and len(shape) != rank:
        raise ValueError(f"it takes {_AXES[rank]}")
    sizes = window_of(parameters, len(shape) - 1)
    if sizes is not None and any(size > axis for size, axis in zip(sizes, shape, strict=False)):
        raise ValueError(f"its window of {' x '.join(map(str, sizes))} is larger")


def _finish(x: Any, activation: Activation | None, place: _Place) -> Any:
    """Apply what follows a dense layer or a convolution: batch normalisation, activation, dropout."""
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
        begins = initializers(place.initial, seed=place.seed, given=parameters.kernel_initializer)
        layer = keras.layers.Dense(units, **begins, **shared)
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
        kernel_regularizer=regularization(parameters.l1, parameters.l2),
        name=place.name,
        **initializers(place.initial, seed=place.seed, given=parameters.kernel_initializer),
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
    """Both streams can be read as the outputs of the layers ``<name>_value`` and ``<name>_advantages``."""

    def stream(units: int, name: str) -> Any:
        return keras.layers.Dense(
            units,
            use_bias=parameters.bias,
            kernel_regularizer=regularization(parameters.l1, parameters.l2),
            name=name,
            **initializers(place.initial, seed=layer_seed(place.network_seed, name), gain=1.0),
        )(x)

    joined = dueling(stream(1, f"{place.name}_value"), stream(parameters.units, f"{place.name}_advantages"))
    return keras.layers.Activation(activation_function(parameters.activation), name=place.name)(joined)


def _residual(x: Any, parameters: config.ResidualLayer, place: _Place) -> Any:
    unit = resolve(parameters.layers, "middleware")
    for repeat in range(parameters.repeats):
        prefix = f"{place.name}_{repeat}"
        y = apply_scheme(
            x,
            unit,
            block=place.block,
            prefix=prefix,
            seed=place.network_seed,
            path=f"{place.path}.layers",
            initial=place.initial,
        )
        if y.shape != x.shape:
            raise ValueError(f"its layers end in {list(y.shape[1:])}, which cannot be added to it")
        x = keras.layers.Add(name=f"{prefix}_add")([x, y])
    return x


def _custom(x: Any, parameters: config.CustomLayer, place: _Place) -> Any:
    try:
        with seeded(place.seed):
            y = custom_layer(parameters, name=place.name)(x)
    except ConfigError:
        raise
    except Exception as error:  # the user's code may raise anything
        what = f"{place.path}: {parameters.layer} on an input of shape {list(x.shape[1:])}"
        raise ConfigError(f"{what}: {type(error).__name__}: {own_words(error)}") from error
    if not getattr(y, "shape", ()):
        what = f"{place.path}: {parameters.layer} must return one tensor with a batch axis"
        raise ConfigError(f"{what}, not {type(y).__name__}")
    return y


def _activation(x: Any, parameters: config.ActivationLayer, place: _Place) -> Any:
    function = activation_function(parameters.activation, parameters.negative_slope)
    return keras.layers.Activation(function, name=place.name)(x)


def _batch_norm(x: Any, parameters: config.BatchNormLayer, place: _Place) -> Any:
    return keras.layers.BatchNormalization(momentum=parameters.momentum, epsilon=parameters.epsilon, name=place.name)(x)


def _batch_renorm(x: Any, parameters: config.BatchRenormLayer, place: _Place) -> Any:
    return BatchRenormalization(**parameters.model_dump(exclude={"kind"}), name=place.name)(x)


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
    config.BatchRenormLayer: _batch_renorm,
    config.LayerNormLayer: _layer_norm,
    config.EmbeddingLayer: _embedding,
    config.DuelingLayer: _dueling,
    config.LSTMLayer: _lstm,
    config.CustomLayer: _custom,
    config.ResidualLayer: _residual,
}
