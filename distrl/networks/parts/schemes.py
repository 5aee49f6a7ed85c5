"""Named schemes as layers, and whether an image is as large as their windows, by arithmetic without a framework.

The tables are Coach's for embedders and middlewares, and the network of IMPALA.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

from distrl.config.layers import (
    ActivationLayer,
    Conv2DLayer,
    DenseLayer,
    FlattenLayer,
    LayerParameters,
    Pool2DLayer,
    ResidualLayer,
)
from distrl.config.network import EmbedderParameters, NetworkParameters
from distrl.errors import ConfigError
from distrl.types import EnvSpec

SchemeKind = Literal["vector", "image", "middleware"]


def resolve(scheme: str | tuple[int | LayerParameters, ...], kind: SchemeKind) -> tuple[LayerParameters, ...]:
    """Return the layers of a scheme: those of the table of `kind`, or those given, with numbers as dense layers.

    Raises:
        ConfigError: There is no such scheme for this kind.
    """
    if not isinstance(scheme, str):
        return tuple(DenseLayer(units=layer) if isinstance(layer, int) else layer for layer in scheme)
    table = SCHEMES[kind]
    if scheme not in table:
        raise ConfigError(f"{scheme} is no scheme of a {kind}; there are {', '.join(table)}, or a list of layers")
    return table[scheme]


def _dense(*widths: int) -> tuple[LayerParameters, ...]:
    return tuple(DenseLayer(units=units) for units in widths)


def _convolutions(*shapes: tuple[int, int, int]) -> tuple[LayerParameters, ...]:
    return tuple(Conv2DLayer(filters=filters, kernel_size=size, strides=strides) for filters, size, strides in shapes)


def _impala_section(filters: int) -> tuple[LayerParameters, ...]:
    convolution = Conv2DLayer(filters=filters, kernel_size=3, padding="same", activation="none")
    relu = ActivationLayer(activation="relu")
    return (
        convolution,
        Pool2DLayer(pooling="max", pool_size=3, strides=2, padding="same"),
        ResidualLayer(layers=(relu, convolution, relu, convolution), repeats=2),
    )


_IMPALA_RES_NET: tuple[LayerParameters, ...] = (
    *_impala_section(16),
    *_impala_section(32),
    *_impala_section(32),
    ActivationLayer(activation="relu"),
    FlattenLayer(),
    DenseLayer(units=256, activation="relu"),
)
"""Espeholt et al. 2018, figure 3, right: the deeper of the two, without its LSTM."""

# Coach 1.0, rl_coach/architectures/tensorflow_components: embedders/vector_embedder.py, embedders/image_embedder.py,
# middlewares/fc_middleware.py. Medium of images is the network of Mnih et al. 2015.
SCHEMES: dict[SchemeKind, dict[str, tuple[LayerParameters, ...]]] = {
    "vector": {
        "Empty": (),
        "Shallow": _dense(128),
        "Medium": _dense(256),
        "Deep": _dense(128, 128, 128),
    },
    "image": {
        "Empty": (),
        "Shallow": _convolutions((32, 3, 1)),
        "Medium": _convolutions((32, 8, 4), (64, 4, 2), (64, 3, 1)),
        "Deep": _convolutions(
            (32, 5, 2), (32, 3, 1), (64, 3, 2), (64, 3, 1), (128, 3, 2), (128, 3, 1), (256, 3, 2), (256, 3, 1)
        ),
        "ImpalaResNet": _IMPALA_RES_NET,
    },
    "middleware": {
        "Empty": (),
        "Shallow": _dense(64),
        "Medium": _dense(512),
        "Deep": _dense(128, 128, 128),
    },
}


_KEEP_SHAPE = ("activation", "dropout", "batch_norm", "batch_renorm", "layer_norm", "dense", "noisy_dense", "residual")


def check_windows(network: NetworkParameters, spec: EnvSpec) -> None:
    """Raise ConfigError if an image of the environment is smaller than a window of its embedder's scheme."""
    if network.model is not None:
        return
    for name, array in spec.observations.items():
        parameters = network.input_embedders_parameters.get(name, EmbedderParameters())
        if parameters is None:
            continue
        is_image = parameters.kind == "image" or (parameters.kind == "auto" and array.vocabulary is None)
        if not is_image or len(array.shape) != 3:
            continue
        path = f"network.input_embedders_parameters.{name}.scheme"
        try:
            layers = resolve(image_scheme(parameters.scheme, array.shape), "image")
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
        if (misfit := _misfit(layers, array.shape)) is not None:
            index, shape, window = misfit
            fitting = next(scheme for scheme in ("Shallow", "Empty") if fits(resolve(scheme, "image"), array.shape))
            raise ConfigError(
                f"{path}.{index} ({layers[index].kind}) does not fit its input of shape {list(shape)}: its window of "
                f"{' x '.join(map(str, window))} is larger; observation {name!r} is {list(array.shape)}: set {path}: "
                f"{fitting}"
            )


def image_scheme(scheme: Any, shape: Sequence[int]) -> Any:
    """Return the scheme of an image [height, width, channels]; auto is Medium, or Shallow where Medium does not fit."""
    if scheme != "auto":
        return scheme
    return "Medium" if fits(resolve("Medium", "image"), shape) else "Shallow"


def fits(layers: Sequence[LayerParameters], shape: Sequence[int]) -> bool:
    """Return whether no window of the layers is larger than what it is applied to."""
    return _misfit(layers, shape) is None


def window_of(parameters: Any, axes: int) -> tuple[int, ...] | None:
    """Return the window that must fit into the first axes; None for a layer without one, or one that pads."""
    window = parameters.pool_size if parameters.kind == "pool2d" else getattr(parameters, "kernel_size", None)
    if window is None or parameters.padding == "same":
        return None
    return window if isinstance(window, tuple) else (window,) * axes


def _misfit(
    layers: Sequence[LayerParameters], shape: Sequence[int]
) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """Return (index, shape of its input, window) of the first layer that does not fit, or None."""
    at = tuple(shape)
    for index, layer in enumerate(layers):
        if isinstance(layer, Conv2DLayer | Pool2DLayer):
            window = window_of(layer, 2)
            if window is not None and any(size > axis for size, axis in zip(window, at, strict=False)):
                return index, at, window
            at = _after(layer, at)
        elif layer.kind not in _KEEP_SHAPE:
            return None  # no image any more, or of a shape that only the framework knows
    return None


def _after(layer: Conv2DLayer | Pool2DLayer, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the output's shape of a window that fits."""
    size = layer.kernel_size if isinstance(layer, Conv2DLayer) else layer.pool_size
    strides = layer.strides if layer.strides is not None else size
    sizes, steps = (pair if isinstance(pair, tuple) else (pair, pair) for pair in (size, strides))
    axes = (
        math.ceil((axis if layer.padding == "same" else axis - window + 1) / step)
        for axis, window, step in zip(shape, sizes, steps, strict=False)
    )
    return (*axes, layer.filters if isinstance(layer, Conv2DLayer) else shape[-1])
