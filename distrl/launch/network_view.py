"""`distrl network show`: the networks that a configuration gives, without training them."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distrl.config import RunConfig
from distrl.environments.probe import probe
from distrl.errors import DistrlError, printable
from distrl.launch.one_process import standard_error_in
from distrl.roles.framework import import_framework, require_framework

if TYPE_CHECKING:
    from distrl.networks.network import Network

_PARTS = {"embedder": ("embedder_", "normalization_"), "merger": ("merger",), "middleware": ("middleware_",)}
"""Part -> words in the names of its layers. All other layers, such as a user's own model, are "other"."""


def network_view(config: RunConfig) -> str:
    """Return every network as a tree of layers with shapes and numbers of weights, and the copies there are of it.

    Of layers of the user's own it also says whether they can be exported.
    """
    require_framework(config.learner.backend)
    making_s = config.making_timeout_s
    spec = probe(config.environment, action_mask=config.network.action_mask, making_s=making_s)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with tempfile.TemporaryDirectory() as folder, standard_error_in(Path(folder) / "framework.log"):
        import_framework(config.learner.backend)
        # Imported here: they bring the framework, with all that has to say for itself.
        from distrl.algorithms import built, make_algorithm

        networks = built(make_algorithm(config), spec)
        shown = [f"{tree(network.online)}\n\n{network}" for network in networks.values()]
        if config.network.has_own_layers:
            shown.append(_exported(networks["main"].online))
    return "\n\n".join(shown)


def _exported(network: "Network") -> str:
    from distrl.networks.policy.bundle import export_bundle

    try:
        export_bundle(network)
    except DistrlError as error:
        return f"A training refuses it: {error}"
    return "Export to ONNX: tried, and right"


class NetworkLine(NamedTuple):
    """One line of the tree; `depth` is 0 for the network, 1 for its parts, 2 for their layers."""

    depth: int
    name: str
    kind: str
    shape: tuple[int, ...] | None
    parameters: int | None


def tree(network: "Network") -> str:
    """Return the network's parts, their layers, output shapes and numbers of weights, in aligned columns."""
    lines = list(_lines(network))
    names = [printable(f"{'  ' * line.depth}{line.name}") for line in lines]  # inputs are the environment's
    shapes = ["" if line.shape is None else str(list(line.shape)) for line in lines]
    counts = ["" if line.parameters is None else f"{line.parameters:,}" for line in lines]
    columns = [(names, "<"), ([line.kind for line in lines], "<"), (shapes, "<"), (counts, ">")]
    widths = [max(map(len, column)) for column, _ in columns]
    rows = zip(*(column for column, _ in columns), strict=True)
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, (_, side), width in zip(row, columns, widths, strict=True)).rstrip()
        for row in rows
    )


def _lines(network: "Network") -> Iterator[NetworkLine]:
    model = network.model
    yield NetworkLine(0, network.name, "network", None, model.count_params())
    yield NetworkLine(1, "inputs", "", None, None)
    for name, tensor in model.input.items():
        kind = "recurrent state" if name in network.recurrent_state else str(tensor.dtype)
        yield NetworkLine(2, name, kind, tuple(tensor.shape[1:]), None)
    parts: dict[str, list[Any]] = {}  # Keras' order alternates between the layers of several inputs
    for layer in model.layers:
        if type(layer).__name__ != "InputLayer":
            parts.setdefault(_part(layer.name, network), []).append(layer)
    for part, layers in parts.items():
        yield NetworkLine(1, part, "", None, None)
        for layer in layers:
            yield NetworkLine(2, layer.name, _kind(layer, network), _shape(layer.output), layer.count_params())
    yield NetworkLine(1, "outputs", "", None, None)
    for name, tensor in model.output.items():
        yield NetworkLine(2, name, str(tensor.dtype), tuple(tensor.shape[1:]), None)


def _kind(layer: Any, network: "Network") -> str:
    frozen = [name in network.frozen for name in network.names_of(layer.weights)]
    how = " (frozen)" if frozen and all(frozen) else " (partly frozen)" if any(frozen) else ""
    return f"{type(layer).__name__}{how}"


def _part(layer: str, network: "Network") -> str:
    if any(layer.startswith(f"{head.name}_head") for head in network.heads):
        return "heads"
    for part, words in _PARTS.items():
        if any(word in layer for word in words):
            return part
    return "other"


def _shape(output: Any) -> tuple[int, ...]:
    # A recurrent cell returns its features and its state.
    first = output[0] if isinstance(output, list | tuple) else output
    return tuple(first.shape[1:])
