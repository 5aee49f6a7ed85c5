"""Layers that the configuration names by their class: Keras' own, or the user's."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from distrl.config.layers import CustomLayer
from distrl.errors import ConfigError
from distrl.user_classes import own_class


def custom_layer(parameters: CustomLayer, *, name: str) -> Any:
    """An instance of the class that `parameters` names.

    Args:
        parameters: package.module:Class and its keyword arguments.
        name: Passed as `name`; unique within the network.

    Raises:
        ConfigError: The class cannot be imported, is no keras.layers.Layer, or does not take the arguments.
    """
    class_ = own_class(parameters.layer, "layer")
    if not (isinstance(class_, type) and issubclass(class_, keras.layers.Layer)):
        raise ConfigError(f"layer {parameters.layer} is no keras.layers.Layer")
    try:
        return class_(**parameters.arguments, name=name)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"layer {parameters.layer}: {' '.join(str(error).split())}") from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While it lasts, seeds that Keras makes up follow from `seed`.

    Keras takes them from Python's generator, whose state is put back: nothing else notices. Layers of ours are given
    their seeds; those of others need not know that there are any.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
