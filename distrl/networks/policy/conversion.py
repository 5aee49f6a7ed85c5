"""A function of TensorFlow as an ONNX graph, by tf2onnx, and what tf2onnx lacks.

It is imported late: a start from the cache of policies needs no tf2onnx.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from distrl.errors import ConfigError
from distrl.networks.parts.layers import own_words
from distrl.networks.policy.onnx_graph import Forms, fill

with warnings.catch_warnings():
    # tf2onnx and onnx still use names that NumPy and protobuf have deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    import tf2onnx
    from tf2onnx import utils


def convert(function: Callable[..., Any], forms: Forms, outputs: Sequence[str], opset: int) -> Any:
    """Return the ModelProto of a function. Operations that tf2onnx cannot convert stay in the graph as they are.

    Args:
        function: Takes tensors in the order of `forms` and returns a sequence in that of `outputs`.

    Raises:
        ConfigError: TensorFlow cannot trace the function, or tf2onnx fails; the message is one line.
    """

    def call(*arguments: Any) -> dict[str, Any]:
        # An identity each: an output that is also an input or another output would lose its name.
        return {name: tf.identity(each) for name, each in zip(outputs, function(*arguments), strict=True)}

    signature = [tf.TensorSpec(shape, dtype, name=name) for name, (shape, dtype) in forms.items()]
    traced = tf.function(call, input_signature=signature, autograph=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            captures = traced.get_concrete_function(*signature).graph.captures
            model, _ = tf2onnx.convert.from_function(
                traced, input_signature=signature, opset=opset, custom_op_handlers={"Erfc": (_erfc, [])}
            )
    except Exception as error:  # layers of others are traced here, and may raise anything; so may tf2onnx
        raise ConfigError(f"policy export: {type(error).__name__}: {own_words(error)}") from error
    # Tensors that the function captures, such as a table that a layer made when it was built, are constants.
    numbers = [(inner, outer) for outer, inner in captures if inner.dtype.name not in ("resource", "string")]
    constants = {inner.name: outer.numpy() for inner, outer in numbers}
    fill(model.graph, constants)
    return model


def _erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """Replace TensorFlow's Erfc, which the exact gelu is made of: erfc(x) = 1 - erf(x)."""
    dtypes, shapes = node.output_dtypes, node.output_shapes
    graph.remove_node(node.name)
    kind = utils.map_onnx_to_numpy_type(dtypes[0])
    one = graph.make_const(utils.make_name(name), np.ones((), kind))
    erf = graph.make_node("Erf", node.input, dtypes=dtypes, shapes=shapes)
    graph.make_node("Sub", [one.output[0], erf.output[0]], name=name, outputs=node.output, dtypes=dtypes, shapes=shapes)
