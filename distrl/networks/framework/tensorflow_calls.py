"""Compiled TensorFlow functions, called without the Python code that `tf.function` runs at every call.

`tf.function` binds arguments, describes their types and looks up a trace: about a millisecond for a batch of ten
arrays, more than a small network's update. Here a trace is looked up by dtypes and shapes, and run by one operation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_Key = tuple[Any, ...]
_DTYPES = {float: np.float32, int: np.int32}
"""TensorFlow's dtypes of Python's numbers."""


class _Trace(NamedTuple):
    """A concrete function, the tensors that it captures, the dtypes of its results, and the tree of their numbers."""

    function: Any
    captured: list[Any]
    dtypes: list[Any]
    results: Any


class Compiled:
    """A function of trees of arrays, traced once per structure, dtypes and shapes of them.

    Args:
        function: Called while tracing only. Returns a tree of tensors, or None.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._traces: dict[_Key, _Trace] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Call the function with trees of dictionaries, tuples and lists of arrays; None has no leaves."""
        leaves: list[Any] = []
        trace = self._trace_of(arguments, leaves)
        if on_gpu():
            # TensorFlow's own call places arrays if they are on several devices.
            return trace.function(*leaves)
        flat = tf.raw_ops.StatefulPartitionedCall(args=leaves + trace.captured, Tout=trace.dtypes, f=trace.function)
        return _filled(trace.results, flat)

    def trace(self, *arguments: Any) -> None:
        """Trace the function for arguments like these, and do not run it."""
        self._trace_of(arguments, [])

    def _trace_of(self, arguments: tuple[Any, ...], leaves: list[Any]) -> _Trace:
        """Append the arguments' leaves; return the trace for them, made now if it is the first time."""
        key = _flatten(arguments, leaves)
        trace = self._traces.get(key)
        if trace is None:
            trace = self._traces[key] = self._traced(arguments, leaves)
        return trace

    def _traced(self, arguments: tuple[Any, ...], leaves: list[Any]) -> _Trace:
        # Only the leaves are arguments, so that their order is certain.
        present = tf.nest.map_structure(lambda leaf: leaf is not None, arguments)

        def of_leaves(*tensors: Any) -> Any:
            rest = iter(tensors)
            result = self._function(*tf.nest.map_structure(lambda there: next(rest) if there else None, present))
            return () if result is None else result

        specs = [tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in leaves]
        function = tf.function(of_leaves, autograph=False).get_concrete_function(*specs)
        dtypes = [output.dtype for output in function.outputs]
        results = tf.nest.pack_sequence_as(function.structured_outputs, range(len(dtypes)))
        return _Trace(function, list(function.captured_inputs), dtypes, results)


def on_gpu() -> bool:
    """Return whether TensorFlow computes on a GPU in this process."""
    return bool(tf.config.get_visible_devices("GPU"))


def _filled(numbers: Any, tensors: list[Any]) -> Any:
    """Return a tree with the tensors of its numbers, in 1 µs for two of them; tf.nest takes 14."""
    if isinstance(numbers, dict):
        return {name: _filled(number, tensors) for name, number in numbers.items()}
    if isinstance(numbers, (tuple, list)):
        filled = [_filled(number, tensors) for number in numbers]
        return filled if isinstance(numbers, list) else tuple(filled)
    return tensors[numbers]


def _flatten(tree: Any, leaves: list[Any]) -> _Key:
    """Append the leaves as arrays, in the order of tf.nest, and return structure, dtypes and shapes."""
    if tree is None:
        return (None,)
    if isinstance(tree, dict):
        names = sorted(tree)
        return (*names, *[_flatten(tree[name], leaves) for name in names])
    if isinstance(tree, (tuple, list)):
        return (type(tree), *[_flatten(child, leaves) for child in tree])
    # A copy: TensorFlow shares an aligned array's memory, and a variable that is set to it keeps that memory.
    array = np.array(tree, _DTYPES.get(type(tree)))
    leaves.append(array)
    return (array.dtype, *array.shape)
