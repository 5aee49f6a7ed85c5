"""A network as text: layers in order, with shapes and numbers of weights."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from distrl.errors import printable
from distrl.networks.assembly import Assembly

_PARTS = {"embedder": ("embedder_", "normalization_"), "merger": ("merger",), "middleware": ("middleware_",)}
"""Part -> words in the names of its layers. All other layers, such as a user's own model, are "other"."""


class Line(NamedTuple):
    """One line of the tree; `depth` is 0 for the network, 1 for its parts, 2 for their layers."""

    depth: int
    name: str
    kind: str
    shape: tuple[int, ...] | None
    parameters: int | None


def tree(network: Assembly) -> str:
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


def _lines(network: Assembly) -> Iterator[Line]:
    model = network.model
    yield Line(0, network.name, "network", None, model.count_params())
    yield Line(1, "inputs", "", None, None)
    for name, tensor in model.input.items():
        kind = "recurrent state" if name in network.recurrent_state else str(tensor.dtype)
        yield Line(2, name, kind, tuple(tensor.shape[1:]), None)
    parts: dict[str, list[Any]] = {}  # Keras' order alternates between the layers of several inputs
    for layer in model.layers:
        if type(layer).__name__ != "InputLayer":
            parts.setdefault(_part(layer.name, network), []).append(layer)
    for part, layers in parts.items():
        yield Line(1, part, "", None, None)
        for layer in layers:
            yield Line(2, layer.name, _kind(layer, network), _shape(layer.output), layer.count_params())
    yield Line(1, "outputs", "", None, None)
    for name, tensor in model.output.items():
        yield Line(2, name, str(tensor.dtype), tuple(tensor.shape[1:]), None)


def _kind(layer: Any, network: Assembly) -> str:
    frozen = [name in network.frozen for name in network.names_of(layer.weights)]
    how = " (frozen)" if frozen and all(frozen) else " (partly frozen)" if any(frozen) else ""
    return f"{type(layer).__name__}{how}"


def _part(layer: str, network: Assembly) -> str:
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
