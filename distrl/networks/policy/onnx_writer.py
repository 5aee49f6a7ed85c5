"""ONNX nodes and constants, written one after the other, and the values that they compute.

A value may be smaller than what it stands for, if ONNX's own broadcasting makes it that: a bias stays [n] where it is
added to [batch, n]. Sizes are whole numbers, or multiples of JAX's symbol for the batch's size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from distrl.errors import DistrlError
from distrl.networks.policy.onnx_graph import used_names
from distrl.types import Array

Shape = tuple[Any, ...]
"""Sizes of axes: int, or a multiple of the symbol."""


class UnwrittenError(DistrlError):
    """ONNX has no counterpart of an operation, or none is known here; the message is the operation."""


@dataclass(frozen=True)
class Value:
    """The result of a node, an input or a constant.

    Attributes:
        shape: As ONNX computes it.
        array: Of a constant.
    """

    name: str
    shape: Shape
    dtype: Any
    array: Array | None = None


class GraphWriter:
    """The nodes of one graph, or of the body of a loop in it.

    Attributes:
        place: Path of the layer whose nodes are written.

    Args:
        batch: The symbol for the batch's size.
        first: Name of an input whose first axis is the batch.
        taken: Names of inputs and outputs.
    """

    def __init__(self, batch: Any, first: str, taken: Sequence[str], outside: "GraphWriter | None" = None) -> None:
        self._batch, self._first, self._taken = batch, first, frozenset(taken)
        self._root: GraphWriter = self if outside is None else outside._root
        self._count = 0
        self._constants: dict[tuple[Any, ...], Value] = {}
        self._multiples: dict[int, Value] = {}
        self.nodes: list[Any] = []
        self.place: str = "" if outside is None else outside.place

    def inside(self) -> "GraphWriter":
        """Return a writer for the body of a loop, whose nodes may use this graph's values."""
        return GraphWriter(self._batch, self._first, (), self)

    def new_name(self) -> str:
        """Return a name that no value of the graph has."""
        root = self._root
        root._count += 1
        name = f"value_{root._count}"
        return name if name not in root._taken else self.new_name()

    def emit(self, operation: str, *inputs: Value, shape: Shape, dtype: Any, **attributes: Any) -> Value:
        """Write a node with one result."""
        return self.emit_all(operation, *inputs, results=[(shape, dtype)], **attributes)[0]

    def emit_all(
        self, operation: str, *inputs: Value, results: Sequence[tuple[Shape, Any]], **attributes: Any
    ) -> list[Value]:
        """Write a node; `results` are shape and dtype of each."""
        values = [Value(self.new_name(), tuple(shape), np.dtype(dtype)) for shape, dtype in results]
        name = f"{self.place}/{operation}/{values[0].name}"  # errors of ONNX Runtime contain it
        names = [value.name for value in inputs], [value.name for value in values]
        self.nodes.append(helper.make_node(operation, *names, name=name, **attributes))
        return values

    def constant(self, array: Any, dtype: Any = None) -> Value:
        """Return a constant; equal small ones are written once."""
        array = np.asarray(array, dtype)
        key = (array.dtype.str, array.shape, array.tobytes() if array.size <= 64 else id(array))
        known = self._root._constants
        if key not in known:
            known[key] = Value(self.new_name(), array.shape, array.dtype, array)
        return known[key]

    def vector(self, sizes: Shape) -> Value:
        """Return sizes as int64 [n]."""
        pieces: list[Value] = []
        fixed: list[int] = []
        for size in sizes:
            if isinstance(size, int | np.integer):
                fixed.append(int(size))
                continue
            pieces += [self.constant(fixed, np.int64)] if fixed else []
            pieces, fixed = [*pieces, self._multiple(size)], []
        if fixed or not pieces:
            pieces.append(self.constant(fixed, np.int64))
        if len(pieces) == 1:
            return pieces[0]
        return self.emit("Concat", *pieces, shape=(len(sizes),), dtype=np.int64, axis=0)

    def _multiple(self, size: Any) -> Value:
        """Return a multiple of the batch's size as int64 [1]; made at the start of the graph, for loops too."""
        root, factor = self._root, size // self._batch
        if not isinstance(factor, int) or factor * self._batch != size:
            raise UnwrittenError(f"a size of {size}")
        if factor not in root._multiples:
            start = self.inside()
            if factor == 1:
                made = start.emit("Shape", Value(self._first, (), None), shape=(1,), dtype=np.int64, start=0, end=1)
            else:
                one, by = self._multiple(self._batch), self.constant([factor], np.int64)
                made = start.emit("Mul", one, by, shape=(1,), dtype=np.int64)
            index = min(1, factor - 1)  # the batch's size first
            root.nodes[index:index] = start.nodes
            root._multiples[factor] = made
        return root._multiples[factor]

    def full(self, value: Value, shape: Shape) -> Value:
        """Return the value in the shape that it stands for."""
        if value.shape == tuple(shape):
            return value
        return self.emit("Expand", value, self.vector(shape), shape=shape, dtype=value.dtype)

    def reshape(self, value: Value, shape: Shape) -> Value:
        """Return all of a value's elements in another shape, in which one size at most follows the batch's."""
        shape = tuple(shape)
        if value.shape == shape:
            return value
        if value.array is not None:
            return self.constant(value.array.reshape(shape))
        free = [not isinstance(size, int | np.integer) for size in shape]
        sizes = tuple(-1 if follows else size for follows, size in zip(free, shape, strict=True))
        return self.emit(
            "Reshape", value, self.vector(sizes if sum(free) <= 1 else shape), shape=shape, dtype=value.dtype
        )

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """Return a value with its axes in another order."""
        if list(order) == list(range(len(order))):
            return value
        shape = tuple(value.shape[axis] for axis in order)
        return self.emit("Transpose", value, shape=shape, dtype=value.dtype, perm=list(order))

    def cast(self, value: Value, dtype: Any) -> Value:
        """Return a value as another dtype."""
        dtype = np.dtype(dtype)
        if value.dtype == dtype:
            return value
        if value.array is not None:
            return self.constant(value.array.astype(dtype))
        return self.emit("Cast", value, shape=value.shape, dtype=dtype, to=helper.np_dtype_to_tensor_dtype(dtype))

    def cut(self, value: Value, starts: Sequence[int], ends: Shape, steps: Sequence[int] | None = None) -> Value:
        """Return a part of a value, from `starts` to before `ends` along every axis."""
        steps = [1] * len(starts) if steps is None else steps
        changed = [
            axis
            for axis, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True))
            if not (start == 0 and end == value.shape[axis] and step == 1)
        ]
        if not changed:
            return value
        if value.array is not None:
            return self.constant(value.array[tuple(map(slice, starts, ends, steps))])
        shape = list(value.shape)
        for axis in changed:
            shape[axis] = -(-(ends[axis] - starts[axis]) // steps[axis])
        chosen = [self.vector(tuple(given[axis] for axis in changed)) for given in (starts, ends)]
        axes, by = (self.constant(given, np.int64) for given in (changed, [steps[axis] for axis in changed]))
        return self.emit("Slice", value, *chosen, axes, by, shape=tuple(shape), dtype=value.dtype)

    def information(self, value: Value) -> Any:
        """Return the description of an input or output of the graph."""
        sizes = [int(size) if isinstance(size, int | np.integer) else str(size) for size in value.shape]
        return helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(value.dtype), sizes)

    def graph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Any:
        """Return the nodes that the outputs need, as a GraphProto."""
        needed, kept = {value.name for value in outputs}, []
        for node in reversed(self.nodes):
            if needed.isdisjoint(node.output):
                continue
            kept.append(node)
            needed.update(node.input)
            for attribute in node.attribute:
                needed |= used_names(attribute.g) if attribute.HasField("g") else set()
        constants = [
            numpy_helper.from_array(value.array, value.name)
            for value in self._constants.values()
            if value.array is not None and value.name in needed
        ]
        return self.wrapped(kept[::-1], inputs, outputs, constants)

    def wrapped(
        self, nodes: Sequence[Any], inputs: Sequence[Value], outputs: Sequence[Value], constants: Any = ()
    ) -> Any:
        """Return nodes as a GraphProto."""
        before, after = ([self.information(value) for value in values] for values in (inputs, outputs))
        return helper.make_graph(nodes, "policy", before, after, initializer=constants)
