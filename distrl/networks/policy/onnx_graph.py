"""Changes to an exported ONNX graph: rename its parts, turn inputs into external initializers, embed weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from distrl.errors import DistrlError
from distrl.types import Array

Forms = Mapping[str, tuple[tuple[int | None, ...], str]]
"""Name of each input of a graph -> shape, in which None is the batch's size, and dtype."""


def rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename graph inputs and outputs of a GraphProto in place, and their uses in nodes, inside control flow too."""
    for value in [*graph.input, *graph.output]:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
        for index, name in enumerate(node.output):
            node.output[index] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                rename(attribute.g, names)


def unknown_operation(graph: Any) -> tuple[str, str] | None:
    """Return (operation, name) of the first node, inside control flow too, whose operation ONNX lacks; None: none."""
    for node in graph.node:
        if not onnx.defs.has(node.op_type, node.domain):
            return node.op_type, node.name
        for attribute in node.attribute:
            if attribute.HasField("g") and (found := unknown_operation(attribute.g)) is not None:
                return found
    return None


def unused_weight(graph: Any, weights: Sequence[str]) -> str | None:
    """Return the first weight that no node uses, which ONNX Runtime would drop and then not find; None: none."""
    used = used_names(graph)
    return next((name for name in weights if name not in used), None)


def externalise(graph: Any, weights: Sequence[str]) -> None:
    """Turn the inputs `weights` of a GraphProto in place into initializers without data, which a session must inject.

    Names in `weights` that are no inputs are ignored.
    """
    for value in [value for value in graph.input if value.name in weights]:
        tensor_type = value.type.tensor_type
        tensor = TensorProto(
            name=value.name,
            data_type=tensor_type.elem_type,
            dims=[axis.dim_value for axis in tensor_type.shape.dim],
            data_location=TensorProto.EXTERNAL,
        )
        tensor.external_data.add(key="location", value="weights")  # ONNX requires it; nothing is read from there
        graph.initializer.append(tensor)
        graph.input.remove(value)


def fill(graph: Any, constants: Mapping[str, Array]) -> None:
    """Turn inputs of a GraphProto in place into initializers with these values."""
    for value in [value for value in graph.input if value.name in constants]:
        graph.initializer.append(numpy_helper.from_array(np.asarray(constants[value.name]), value.name))
        graph.input.remove(value)


def embed(graph: bytes, weights: Mapping[str, Array]) -> bytes:
    """Return the model of a bundle with its weights inside.

    Args:
        weights: Name -> array for every weight, input or external initializer; other names are ignored.
    """
    model = onnx.load_model_from_string(graph)
    externalise(model.graph, list(weights))
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return bytes(model.SerializeToString())


def embedded(graph: bytes, prefix: str) -> dict[str, Array]:
    """Return the weights that a model holds: name -> array, of the initializers whose names begin with `prefix`.

    Raises:
        DistrlError: It is no ONNX model, or wants the data of one from another file.
    """
    try:
        model = onnx.load_model_from_string(graph)
        found = [tensor for tensor in model.graph.initializer if tensor.name.startswith(prefix)]
        if outside := [tensor.name for tensor in found if tensor.data_location == TensorProto.EXTERNAL]:
            raise DistrlError(f"the data of {outside[0]} is in another file")
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in found}
    except (DecodeError, ValueError, TypeError) as error:
        raise DistrlError(f"its weights cannot be read: {error}") from error


def used_names(graph: Any) -> set[str]:
    """Return the names that nodes of a GraphProto take, inside control flow too."""
    used = {name for node in graph.node for name in node.input}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                used |= used_names(attribute.g)
    return used
