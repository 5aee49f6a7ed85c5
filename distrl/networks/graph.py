"""A middleware of named blocks, given as configuration: embeddings by name in, one vector out."""

from collections.abc import Mapping
from typing import Any

from distrl.config.graph import OUTPUT, GraphMiddlewareParameters, order
from distrl.errors import ConfigError
from distrl.networks import mergers
from distrl.networks.layers import apply_scheme
from distrl.networks.schemes import resolve

PATH = "network.middleware_parameters.blocks"


def build(embeddings: Mapping[str, Any], parameters: GraphMiddlewareParameters, *, seed: int, prefix: str = "") -> Any:
    """The result of the block `output`.

    Args:
        embeddings: Observation name -> Keras tensor float32 [batch, width].
        parameters: The blocks; layers are called ``<prefix>middleware_<block>_…``.
        seed: The network's seed.
        prefix: For networks that have the graph several times.

    Returns:
        Keras tensor float32 [batch, features].

    Raises:
        ConfigError: A block takes what there is not, has the name of an observation, or does not fit its inputs; an
            observation is taken by no block.
    """
    _check_names(embeddings, parameters)
    values = dict(embeddings)
    for name in order(parameters.blocks):
        block, own_prefix = parameters.blocks[name], f"{prefix}middleware_{name}"
        try:
            merged = mergers.merge({given: values[given] for given in block.inputs}, block.merger, f"{own_prefix}_")
        except ConfigError as error:
            raise ConfigError(f"{PATH}.{name}: {error}") from error
        layers = resolve(block.layers, "middleware")
        path = f"{PATH}.{name}.layers"
        values[name] = apply_scheme(merged, layers, block=parameters, prefix=own_prefix, seed=seed, path=path)
    return values[OUTPUT]


def _check_names(embeddings: Mapping[str, Any], parameters: GraphMiddlewareParameters) -> None:
    blocks = parameters.blocks
    if double := sorted(blocks.keys() & embeddings.keys()):
        raise ConfigError(f"{PATH}.{double[0]} has the name of an observation")
    valid = [*embeddings, *(name for name in blocks if name != OUTPUT)]
    for name, block in blocks.items():
        if unknown := [given for given in block.inputs if given not in valid]:
            raise ConfigError(f"{PATH}.{name}.inputs: there is no {unknown[0]!r}; there are {', '.join(valid)}")
    taken = {given for block in blocks.values() for given in block.inputs}
    if idle := [name for name in embeddings if name not in taken]:
        raise ConfigError(f"{PATH}: no block takes the observation {idle[0]!r}")
