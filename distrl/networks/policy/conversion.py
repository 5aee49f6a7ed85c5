"""A function of TensorFlow as an ONNX graph, by tf2onnx, and what tf2onnx lacks.

It is imported late: a start from the cache of policies needs no tf2onnx.
"""

import warnings
from typing import Any

import numpy as np

from distrl.errors import ConfigError
from distrl.networks.parts.layers import own_words
from distrl.types import Array

with warnings.catch_warnings():
    # tf2onnx and onnx still use names that NumPy and protobuf have deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    import tf2onnx
    from tf2onnx import utils


def convert(function: Any, signature: list[Any], opset: int) -> tuple[Any, dict[str, Array]]:
    """Return the ModelProto of a tf.function, and values of inputs that are constants.

    Constants are tensors that the function captures, such as a table that a layer made when it was built. Operations
    that tf2onnx cannot convert stay in the graph as they are.

    Raises:
        ConfigError: TensorFlow cannot trace the function, or tf2onnx fails; the message is one line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            captures = function.get_concrete_function(*signature).graph.captures
            model, _ = tf2onnx.convert.from_function(
                function, input_signature=signature, opset=opset, custom_op_handlers={"Erfc": (_erfc, [])}
            )
    except Exception as error:  # layers of others are traced here, and may raise anything; so may tf2onnx
        raise ConfigError(f"policy export: {type(error).__name__}: {own_words(error)}") from error
    constants = {inner.name: outer.numpy() for outer, inner in captures if inner.dtype.name != "resource"}
    return model, constants


def _erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """Replace TensorFlow's Erfc, which the exact gelu is made of: erfc(x) = 1 - erf(x)."""
    dtypes, shapes = node.output_dtypes, node.output_shapes
    graph.remove_node(node.name)
    kind = utils.map_onnx_to_numpy_type(dtypes[0])
    one = graph.make_const(utils.make_name(name), np.ones((), kind))
    erf = graph.make_node("Erf", node.input, dtypes=dtypes, shapes=shapes)
    graph.make_node("Sub", [one.output[0], erf.output[0]], name=name, outputs=node.output, dtypes=dtypes, shapes=shapes)
