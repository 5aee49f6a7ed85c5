"""Named schemes as layers: Coach's tables for embedders and middlewares, and the network of IMPALA."""

from typing import Literal

from distrl.config.layers import (
    ActivationLayer,
    Conv2DLayer,
    DenseLayer,
    FlattenLayer,
    LayerParameters,
    Pool2DLayer,
    ResidualLayer,
)
from distrl.errors import ConfigError

SchemeKind = Literal["vector", "image", "middleware"]


def resolve(scheme: str | tuple[int | LayerParameters, ...], kind: SchemeKind) -> tuple[LayerParameters, ...]:
    """The layers of a scheme.

    Args:
        scheme: A name, or layers as they are written; bare numbers become dense layers.
        kind: Which table the name is looked up in.

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
