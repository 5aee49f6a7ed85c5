"""Weights that training leaves as they are: `network.frozen`."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from typing import Any

from distrl.errors import ConfigError

_MOST_LAYERS = 6
"""Most layers that a message lists."""


def freeze(model: Any, weights: Mapping[str, Any], patterns: Sequence[str]) -> frozenset[str]:
    """Stop the training of all weights whose names match a pattern.

    A layer whose weights all match stays as it is as a whole: its moving averages and statistics keep their values too,
    and batch normalisation computes as in inference.

    Args:
        weights: Those of the model by name.

    Returns:
        The names of all weights that now keep their values.

    Raises:
        ConfigError: No weight of the model is left to train.
    """
    if not patterns:
        return frozenset()
    matching = {id(weight) for name, weight in weights.items() if any(fnmatchcase(name, each) for each in patterns)}
    frozen = set()
    for weight in weights.values():
        if id(weight) in matching and weight.trainable:
            weight.trainable = False
            frozen.add(id(weight))
    for layer in model._flatten_layers(include_self=False):
        of_layer = {id(weight) for weight in layer.weights}
        if of_layer and of_layer <= matching:
            layer.trainable = False
            frozen |= of_layer
    if not model.trainable_variables:
        raise ConfigError(f"network.frozen leaves no weight of network {model.name} to train; leave a pattern out")
    return frozenset(name for name, weight in weights.items() if id(weight) in frozen)


def require_matches(
    patterns: Sequence[str], frozen: Sequence[str], weights: Sequence[str], numbers: Sequence[str] = ()
) -> None:
    """Raise ConfigError if a pattern has frozen nothing.

    Args:
        frozen: Names that `freeze` returned, of all networks.
        weights: Names of all weights of these networks.
        numbers: Names of their heads' numbers, which cannot be frozen: training adjusts them without gradients.
    """
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in frozen):
            continue
        if adjusted := [name for name in numbers if fnmatchcase(name, pattern)]:
            raise ConfigError(
                f"network.frozen: {pattern!r} matches {', '.join(adjusted)} alone, which is a number of a loss and no "
                "weight: it cannot be frozen; leave the pattern out"
            )
        layers = dict.fromkeys(name.rpartition("/")[0] + "/*" for name in weights)
        near = sorted(layers, key=lambda layer: -SequenceMatcher(None, pattern, layer).ratio())
        more = f" and {len(near) - _MOST_LAYERS} more" if len(near) > _MOST_LAYERS else ""
        raise ConfigError(
            f"network.frozen: {pattern!r} matches no weight that training changes; there are "
            f"{', '.join(near[:_MOST_LAYERS])}{more}; distrl network show prints all layers"
        )
