"""Whether an image is as large as the windows of an embedder's layers, by arithmetic and without a framework."""

import math
from collections.abc import Sequence
from typing import Any

from distrl.config.layers import Conv2DLayer, LayerParameters, Pool2DLayer
from distrl.config.network import EmbedderParameters, NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.parts.schemes import resolve
from distrl.types import EnvSpec

_KEEP_SHAPE = ("activation", "dropout", "batch_norm", "layer_norm", "dense", "noisy_dense", "residual")


def check_windows(network: NetworkParameters, spec: EnvSpec) -> None:
    """Check every image of the environment against the scheme of its embedder.

    Raises:
        ConfigError: An image is smaller than a window. The message names the observation and a scheme that fits.
    """
    if network.model is not None:
        return
    for name, array in spec.observations.items():
        parameters = network.input_embedders_parameters.get(name, EmbedderParameters())
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
