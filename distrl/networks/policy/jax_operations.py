"""The ONNX nodes of JAX's operations ("primitives"), a function each; `OPERATIONS` has all by JAX's names.

https://docs.jax.dev/en/latest/jax.lax.html says what each computes, https://onnx.ai/onnx/operators what its nodes do.
Operations that call others, such as loops, are in `jax_conversion.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distrl.networks.policy.onnx_writer import GraphWriter, Shape, UnwrittenError, Value


@dataclass(frozen=True)
class Operation:
    """One operation of a traced function.

    Attributes:
        shapes: What the inputs stand for.
        results: Shape and dtype of each result.
        parameters: All that JAX knows of it beside its inputs.
    """

    name: str
    inputs: tuple[Value, ...]
    shapes: tuple[Shape, ...]
    results: tuple[tuple[Shape, Any], ...]
    parameters: Mapping[str, Any]

    def whole(self, writer: GraphWriter, index: int = 0) -> Value:
        """Return an input in the shape that it stands for."""
        return writer.full(self.inputs[index], self.shapes[index])

    def refuse(self, what: str) -> UnwrittenError:
        return UnwrittenError(f"{self.name} {what}")


Written = Callable[[GraphWriter, Operation], Value]

_WIDER = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}
"""Dtypes for which ONNX Runtime has few kernels -> one for which it has all."""


def _joint(shapes: Sequence[Shape]) -> Shape:
    """Return the shape to which ONNX broadcasts these."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def _pointwise(writer: GraphWriter, operation: str, *inputs: Value, dtype: Any = None, **attributes: Any) -> Value:
    """Write an operation of single elements; `dtype` is the result's, if it is not that of the inputs."""
    given = inputs[-1].dtype
    wider = _WIDER.get(given.name, given.name)
    values = [value if value.dtype == bool else writer.cast(value, wider) for value in inputs]
    shape = _joint([value.shape for value in values])
    result = writer.emit(operation, *values, shape=shape, dtype=wider if dtype is None else dtype, **attributes)
    return writer.cast(result, given) if dtype is None else result


def _elements(operation: str, **attributes: Any) -> Written:
    return lambda writer, at: _pointwise(writer, operation, *at.inputs, **attributes)


def _compared(operation: str) -> Written:
    return lambda writer, at: _pointwise(writer, operation, *at.inputs, dtype=bool)


def _logical(operation: str) -> Written:
    def written(writer: GraphWriter, at: Operation) -> Value:
        if at.inputs[0].dtype != bool:
            raise at.refuse("of whole numbers")
        return _pointwise(writer, operation, *at.inputs)

    return written


def _number(writer: GraphWriter, like: Value, number: float) -> Value:
    return writer.constant(number, like.dtype)


def _not_equal(writer: GraphWriter, at: Operation) -> Value:
    return _pointwise(writer, "Not", _pointwise(writer, "Equal", *at.inputs, dtype=bool))


def _maximum(writer: GraphWriter, at: Operation) -> Value:
    x, other = at.inputs
    if other.array is not None and other.array.size == 1 and not other.array.any() and x.dtype == np.float32:
        return _pointwise(writer, "Relu", x)  # which ONNX Runtime joins with a convolution before it
    return _pointwise(writer, "Max", x, other)


def _raised(writer: GraphWriter, at: Operation) -> Value:
    base, exponent = at.inputs
    return _pointwise(writer, "Pow", base, writer.cast(exponent, base.dtype))


def _square(writer: GraphWriter, at: Operation) -> Value:
    return _pointwise(writer, "Mul", *at.inputs, *at.inputs)


def _integer_power(writer: GraphWriter, at: Operation) -> Value:
    (x,) = at.inputs
    return _square(writer, at) if at.parameters["y"] == 2 else _power(writer, x, at.parameters["y"])


def _power(writer: GraphWriter, base: Value, exponent: float) -> Value:
    return _pointwise(writer, "Pow", base, _number(writer, base, exponent))


def _reciprocal_root(writer: GraphWriter, at: Operation) -> Value:
    return _pointwise(writer, "Reciprocal", _pointwise(writer, "Sqrt", *at.inputs))


def _log_1p(writer: GraphWriter, at: Operation) -> Value:
    (x,) = at.inputs
    return _pointwise(writer, "Log", _pointwise(writer, "Add", x, _number(writer, x, 1.0)))


def _exp_m1(writer: GraphWriter, at: Operation) -> Value:
    (x,) = at.inputs
    return _pointwise(writer, "Sub", _pointwise(writer, "Exp", x), _number(writer, x, 1.0))


def _exp_2(writer: GraphWriter, at: Operation) -> Value:
    (x,) = at.inputs
    return _pointwise(writer, "Pow", _number(writer, x, 2.0), x)


def _erfc(writer: GraphWriter, at: Operation) -> Value:
    (x,) = at.inputs
    return _pointwise(writer, "Sub", _number(writer, x, 1.0), _pointwise(writer, "Erf", x))


def _round(writer: GraphWriter, at: Operation) -> Value:
    if int(at.parameters["rounding_method"]) != 1:
        raise at.refuse("of halves away from zero")
    return _pointwise(writer, "Round", *at.inputs)  # halves to even, as ONNX does


def _is_finite(writer: GraphWriter, at: Operation) -> Value:
    (x,) = at.inputs
    odd = [_pointwise(writer, operation, x, dtype=bool) for operation in ("IsNaN", "IsInf")]
    return _pointwise(writer, "Not", _pointwise(writer, "Or", *odd))


def _clamp(writer: GraphWriter, at: Operation) -> Value:
    low, x, high = at.inputs
    return _pointwise(writer, "Min", _pointwise(writer, "Max", x, low), high)


def selected(writer: GraphWriter, which: Value, cases: Sequence[Value]) -> Value:
    """Return, element by element, the case that `which` names: by its number, or true for the second."""
    dtype = cases[0].dtype
    chosen, *others = (writer.cast(case, _WIDER.get(dtype.name, dtype)) for case in cases)
    for index, case in enumerate(others, 1):
        if which.dtype == bool:
            wanted = which
        else:
            wanted = _pointwise(writer, "Equal", which, _number(writer, which, index), dtype=bool)
        shape = _joint([wanted.shape, case.shape, chosen.shape])
        chosen = writer.emit("Where", wanted, case, chosen, shape=shape, dtype=case.dtype)
    return writer.cast(chosen, dtype)


def _select(writer: GraphWriter, at: Operation) -> Value:
    return selected(writer, at.inputs[0], at.inputs[1:])


def _convert(writer: GraphWriter, at: Operation) -> Value:
    return writer.cast(at.inputs[0], at.parameters["new_dtype"])


def _broadcast(writer: GraphWriter, at: Operation) -> Value:
    """ONNX's broadcasting does it, once the axes that stay stand where they should."""
    (x,), shape = at.inputs, [1] * len(at.parameters["shape"])
    axes = at.parameters["broadcast_dimensions"]
    sizes = (1,) * (len(axes) - len(x.shape)) + x.shape
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    while shape and len(shape) > len(x.shape) and shape[0] == 1:
        shape = shape[1:]
    return writer.reshape(x, tuple(shape))


def _reshape(writer: GraphWriter, at: Operation) -> Value:
    if at.name == "reshape" and at.parameters["dimensions"] is not None:
        raise at.refuse("in another order of axes")
    shape, _ = at.results[0]
    if all(size == 1 for size in at.inputs[0].shape):  # a number for all elements
        return writer.reshape(at.inputs[0], ())
    return writer.reshape(at.whole(writer), shape)


def _transpose(writer: GraphWriter, at: Operation) -> Value:
    (x,), order = at.inputs, at.parameters["permutation"]
    if x.shape == ():
        return x
    ones = (1,) * (len(order) - len(x.shape))
    return writer.transpose(writer.reshape(x, ones + x.shape), order)


def _concatenate(writer: GraphWriter, at: Operation) -> Value:
    parts = [at.whole(writer, index) for index in range(len(at.inputs))]
    shape, dtype = at.results[0]
    if (arrays := [part.array for part in parts if part.array is not None])[len(parts) - 1 :]:
        return writer.constant(np.concatenate(arrays, at.parameters["dimension"]))
    return writer.emit("Concat", *parts, shape=shape, dtype=dtype, axis=at.parameters["dimension"])


def _stack(writer: GraphWriter, at: Operation) -> Value:
    (shape, dtype), axis = at.results[0], at.parameters["axis"]
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [writer.reshape(at.whole(writer, index), one) for index in range(len(at.inputs))]
    return writer.emit("Concat", *parts, shape=shape, dtype=dtype, axis=axis)


def _slice(writer: GraphWriter, at: Operation) -> Value:
    given = at.parameters
    return writer.cut(at.whole(writer), given["start_indices"], given["limit_indices"], given["strides"])


def _reverse(writer: GraphWriter, at: Operation) -> Value:
    axes, x = list(at.parameters["dimensions"]), at.whole(writer)
    each = [writer.constant(numbers, np.int64) for numbers in ([-1] * len(axes), [-(2**62)] * len(axes), axes)]
    steps = writer.constant([-1] * len(axes), np.int64)
    return writer.emit("Slice", x, *each, steps, shape=x.shape, dtype=x.dtype)


def _split(writer: GraphWriter, at: Operation) -> list[Value]:
    sizes = writer.constant(at.parameters["sizes"], np.int64)
    return writer.emit_all("Split", at.whole(writer), sizes, results=at.results, axis=at.parameters["axis"])


def _iota(writer: GraphWriter, at: Operation) -> Value:
    (shape, dtype), axis = at.results[0], at.parameters["dimension"]
    size, after = shape[axis], (1,) * (len(shape) - axis - 1)
    if isinstance(size, int):
        return writer.constant(np.arange(size).reshape(size, *after), dtype)
    end = writer.reshape(writer.vector((size,)), ())
    ends = writer.constant(0, np.int64), end, writer.constant(1, np.int64)
    numbers = writer.emit("Range", *ends, shape=(size,), dtype=np.int64)
    return writer.reshape(writer.cast(numbers, dtype), (size, *after))


def _size(writer: GraphWriter, at: Operation) -> Value:
    """A size that follows the batch's, as a number."""
    ((_, dtype),) = at.results
    return writer.cast(writer.reshape(writer.vector((at.parameters["dim"],)), ()), dtype)


def _tile(writer: GraphWriter, at: Operation) -> Value:
    (shape, dtype), times = at.results[0], writer.constant(at.parameters["reps"], np.int64)
    return writer.emit("Tile", at.whole(writer), times, shape=shape, dtype=dtype)


def padded(writer: GraphWriter, x: Value, fill: Value, padding: Sequence[tuple[int, int, int]]) -> Value:
    """Return x with `fill` before, after and between the elements of every axis; negative numbers cut off."""
    for axis, (_, _, between) in enumerate(padding):
        if between:
            # [..., n, ...] -> [..., n, 1 + between, ...] -> [..., n (1 + between), ...], less the last gap.
            before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
            column = writer.reshape(x, (*before, size, 1, *after))
            zeros = [0] * len(column.shape)
            ends = [*zeros[: axis + 1], between, *zeros[axis + 2 :]]
            spread = (*before, size, 1 + between, *after)
            gaps = writer.constant([*zeros, *ends], np.int64)
            column = writer.emit("Pad", column, gaps, fill, shape=spread, dtype=x.dtype)
            longer = writer.reshape(column, (*before, size * (1 + between), *after))
            ends = [*before, size + (size - 1) * between, *after]
            x = writer.cut(longer, [0] * len(x.shape), tuple(ends))
    sides = [max(0, side) for end in (0, 1) for side in (edge[end] for edge in padding)]
    if any(sides):
        shape = tuple(size + max(0, low) + max(0, high) for size, (low, high, _) in zip(x.shape, padding, strict=True))
        x = writer.emit("Pad", x, writer.constant(sides, np.int64), fill, shape=shape, dtype=x.dtype)
    starts = [max(0, -low) for low, _, _ in padding]
    return writer.cut(x, starts, tuple(size + min(0, edge[1]) for size, edge in zip(x.shape, padding, strict=True)))


def _pad(writer: GraphWriter, at: Operation) -> Value:
    return padded(writer, at.whole(writer), at.inputs[1], at.parameters["padding_config"])


def _reduced(operation: str, *, axes_are_input: bool = False, of: Any = None) -> Written:
    """Return the writer of a reduction; `of` is the dtype in which it computes, if not the input's."""

    def written(writer: GraphWriter, at: Operation) -> Value:
        shape, dtype = at.results[0]
        x, axes = at.whole(writer), [int(axis) for axis in at.parameters["axes"]]
        x = writer.cast(x, _WIDER.get(x.dtype.name, x.dtype) if of is None else of)
        if axes_are_input:
            which = writer.constant(axes, np.int64)
            result = writer.emit(operation, x, which, shape=shape, dtype=x.dtype, keepdims=0)
        else:
            result = writer.emit(operation, x, shape=shape, dtype=x.dtype, axes=axes, keepdims=0)
        return writer.cast(result, dtype)

    return written


def _argument(operation: str) -> Written:
    def written(writer: GraphWriter, at: Operation) -> Value:
        (shape, dtype), (axis,) = at.results[0], at.parameters["axes"]
        x = at.whole(writer)
        which = writer.emit(operation, x, shape=shape, dtype=np.int64, axis=int(axis), keepdims=0)
        return writer.cast(which, dtype)

    return written


def _cumulated_sum(writer: GraphWriter, at: Operation) -> Value:
    x, axis = at.whole(writer), writer.constant(at.parameters["axis"], np.int64)
    return writer.emit("CumSum", x, axis, shape=x.shape, dtype=x.dtype, reverse=int(at.parameters["reverse"]))


def _ordered(
    writer: GraphWriter, x: Value, axis: int, count: int, dtypes: Sequence[Any], *, largest: bool
) -> list[Value]:
    """Return the `count` first elements in order, and where they stood."""
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    values, indices = writer.emit_all(
        "TopK",
        x,
        writer.constant([count], np.int64),
        results=[(shape, x.dtype), (shape, np.int64)],
        axis=axis,
        largest=int(largest),
    )
    return [writer.cast(each, dtype) for each, dtype in zip((values, indices), dtypes, strict=True)]


def _top(writer: GraphWriter, at: Operation) -> list[Value]:
    x = at.whole(writer)
    axis = at.parameters.get("axis", len(x.shape) - 1)
    return _ordered(writer, x, axis, at.parameters["k"], [dtype for _, dtype in at.results], largest=True)


def _sort(writer: GraphWriter, at: Operation) -> Value:
    x, axis = at.whole(writer), at.parameters["dimension"]
    if len(at.inputs) > 1:
        raise at.refuse("of several arrays")
    return _ordered(writer, x, axis, x.shape[axis], (x.dtype, np.int64), largest=False)[0]


def _dot(writer: GraphWriter, at: Operation) -> Value:
    """A product of matrices where it is one, otherwise a sum over the axes by their letters."""
    (left_axes, right_axes), (left_batch, right_batch) = at.parameters["dimension_numbers"]
    left, right = at.whole(writer, 0), at.whole(writer, 1)
    (shape, dtype), last = at.results[0], len(left.shape) - 1
    left, right = writer.cast(left, dtype), writer.cast(right, dtype)
    if not left_batch and len(right.shape) == 2 and tuple(left_axes) == (last,):
        right = writer.transpose(right, [*right_axes, 1 - right_axes[0]])
        return writer.emit("MatMul", left, right, shape=shape, dtype=dtype)
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    of_left, of_right = [""] * len(left.shape), [""] * len(right.shape)
    for one, other in zip((*left_batch, *left_axes), (*right_batch, *right_axes), strict=True):
        of_left[one] = of_right[other] = next(letters)
    of_left = [letter or next(letters) for letter in of_left]
    of_right = [letter or next(letters) for letter in of_right]
    summed, together = {of_left[axis] for axis in left_axes}, [of_left[axis] for axis in left_batch]
    rest = [letter for letter in dict.fromkeys(of_left + of_right) if letter not in {*summed, *together}]
    equation = f"{''.join(of_left)},{''.join(of_right)}->{''.join(together + rest)}"
    return writer.emit("Einsum", left, right, shape=shape, dtype=dtype, equation=equation)


def _convolution(writer: GraphWriter, at: Operation) -> Value:
    given = at.parameters
    if given["batch_group_count"] != 1:
        raise at.refuse("with groups of the batch")
    of_inputs, of_kernel, of_outputs = given["dimension_numbers"]
    x = writer.transpose(at.whole(writer, 0), of_inputs)  # to [batch, channels, ...]
    kernel = writer.transpose(at.whole(writer, 1), of_kernel)  # to [channels out, channels in, ...]
    edges = given["padding"]
    if any(dilation != 1 for dilation in given["lhs_dilation"]) or any(side < 0 for edge in edges for side in edge):
        between = [dilation - 1 for dilation in given["lhs_dilation"]]
        padding = [(0, 0, 0)] * 2 + [(*edge, gap) for edge, gap in zip(edges, between, strict=True)]
        x, edges = padded(writer, x, _number(writer, x, 0.0), padding), [(0, 0)] * len(edges)
    shape, dtype = at.results[0]
    result = writer.emit(
        "Conv",
        x,
        kernel,
        shape=tuple(shape[axis] for axis in of_outputs),
        dtype=dtype,
        strides=list(given["window_strides"]),
        pads=[edge[end] for end in (0, 1) for edge in edges],
        dilations=list(given["rhs_dilation"]),
        group=given["feature_group_count"],
    )
    return writer.transpose(result, np.argsort(of_outputs).tolist())


def _pooled(operation: str) -> Written:
    """Return the writer of a maximum or a sum over windows: of axes 1 to n - 2 or 2 to n - 1, as of images."""

    def written(writer: GraphWriter, at: Operation) -> Value:
        given, rank = at.parameters, len(at.shapes[0])
        window, strides, edges = (given[name] for name in ("window_dimensions", "window_strides", "padding"))
        dilations = given["window_dilation"]
        if any(size != 1 for size in given["base_dilation"]):
            raise at.refuse("over an input with gaps")
        still = [axis for axis in range(rank) if window[axis] == strides[axis] == 1 and tuple(edges[axis]) == (0, 0)]
        if rank < 3 or 0 not in still or not {1, rank - 1} & {*still}:
            raise at.refuse("over the axes of batch and channels")
        channels = rank - 1 if rank - 1 in still else 1
        order = [0, channels, *(axis for axis in range(1, rank) if axis != channels)]
        moving = order[2:]
        x = writer.cast(writer.transpose(at.whole(writer), order), np.float32)
        shape, dtype = at.results[0]
        attributes: dict[str, Any] = {
            "kernel_shape": [window[axis] for axis in moving],
            "strides": [strides[axis] for axis in moving],
            "pads": [edges[axis][end] for end in (0, 1) for axis in moving],
        }
        to = tuple(shape[axis] for axis in order)
        if operation == "MaxPool":
            attributes["dilations"] = [dilations[axis] for axis in moving]
            result = writer.emit("MaxPool", x, shape=to, dtype=x.dtype, **attributes)
        elif any(dilations[axis] != 1 for axis in moving):
            raise at.refuse("over windows with gaps")
        else:
            mean = writer.emit("AveragePool", x, shape=to, dtype=x.dtype, count_include_pad=1, **attributes)
            result = _pointwise(writer, "Mul", mean, _number(writer, mean, float(np.prod(window))))
        return writer.cast(writer.transpose(result, np.argsort(order).tolist()), dtype)

    return written


def _gather(writer: GraphWriter, at: Operation) -> Value:
    """Rows at given places: axes are indexed by single elements and taken whole otherwise."""
    if len(at.shapes[1]) == 1:
        return _gathered_part(writer, at)
    numbers, sizes = at.parameters["dimension_numbers"], at.parameters["slice_sizes"]
    indexed, batched = list(numbers.start_index_map), list(numbers.operand_batching_dims)
    x, where = at.whole(writer, 0), at.whole(writer, 1)
    rest = [axis for axis in range(len(x.shape)) if axis not in indexed and axis not in batched]
    single = all(sizes[axis] == 1 for axis in indexed)
    if not single or any(sizes[axis] != x.shape[axis] for axis in rest):
        raise at.refuse("of parts of an axis")
    # [batched, places, indexed] of where, [batched, indexed, rest] of x -> [batched, places, rest]
    of_where = list(numbers.start_indices_batching_dims)
    places = [axis for axis in range(len(where.shape) - 1) if axis not in of_where]
    where = writer.transpose(where, [*of_where, *places, len(where.shape) - 1])
    x = writer.transpose(x, [*batched, *indexed, *rest])
    last = writer.vector(tuple(x.shape[len(batched) + axis] - 1 for axis in range(len(indexed))))
    where, last = writer.cast(where, np.int64), writer.cast(last, np.int64)
    where = _pointwise(writer, "Min", _pointwise(writer, "Max", where, _number(writer, where, 0)), last)
    wanted = (*where.shape[:-1], *x.shape[len(batched) + len(indexed) :])
    if len(indexed) == 1 and not batched:
        flat = writer.reshape(where, where.shape[:-1])
        rows = writer.emit("Gather", x, flat, shape=wanted, dtype=x.dtype, axis=0)
    else:
        rows = writer.emit("GatherND", x, where, shape=wanted, dtype=x.dtype, batch_dims=len(batched))
    return _arranged(writer, at, rows, len(of_where) + len(places), [*of_where, *places], rest)


def _arranged(
    writer: GraphWriter, at: Operation, rows: Value, places: int, order: Sequence[int], rest: Sequence[int]
) -> Value:
    """Return gathered rows [places, rest] in the order of axes that JAX asks for, indexed axes of size 1 included."""
    numbers, (shape, _) = at.parameters["dimension_numbers"], at.results[0]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(at.shapes[0])) if axis not in dropped]  # as offset_dims has them
    offsets = dict(zip(kept, numbers.offset_dims, strict=True))
    ones = [offsets[axis] for axis in kept if axis not in rest]
    others = [axis for axis in range(len(shape)) if axis not in numbers.offset_dims]
    # Where each axis of the result comes from in `rows`.
    source = {result: list(order).index(index) for index, result in enumerate(others)}
    source |= {offsets[axis]: places + index for index, axis in enumerate(rest)}
    rows = writer.transpose(rows, [source[axis] for axis in range(len(shape)) if axis not in ones])
    return writer.reshape(rows, shape)


def _part(writer: GraphWriter, x: Value, axis: int, start: Value, size: Any) -> Value:
    """Return `size` elements along an axis; a `start` [1] that is too high or low is moved, as JAX does."""
    if size == x.shape[axis]:
        return x
    highest = x.shape[axis] - size
    if start.array is not None and isinstance(highest, int):
        first = min(max(int(start.array[0]), 0), highest)
        starts, ends = [0] * len(x.shape), list(x.shape)
        starts[axis], ends[axis] = first, first + size
        return writer.cut(x, starts, tuple(ends))
    start = writer.cast(start, np.int64)
    start = _pointwise(writer, "Max", start, writer.constant([0], np.int64))
    start = _pointwise(writer, "Min", start, writer.vector((highest,)))
    end = _pointwise(writer, "Add", start, writer.constant([size], np.int64))
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return writer.emit("Slice", x, start, end, writer.constant([axis], np.int64), shape=shape, dtype=x.dtype)


def _dynamic_slice(writer: GraphWriter, at: Operation) -> Value:
    x = at.whole(writer)
    for axis, size in enumerate(at.parameters["slice_sizes"]):
        x = _part(writer, x, axis, writer.reshape(at.inputs[1 + axis], (1,)), size)
    return x


def _gathered_part(writer: GraphWriter, at: Operation) -> Value:
    """One part of the input, at a place [indexed axes]."""
    x, places = at.whole(writer, 0), at.whole(writer, 1)
    for index, axis in enumerate(at.parameters["dimension_numbers"].start_index_map):
        start = writer.cut(places, [index], (index + 1,))
        x = _part(writer, x, axis, start, at.parameters["slice_sizes"][axis])
    return writer.reshape(x, at.results[0][0])


def _same(writer: GraphWriter, at: Operation) -> Value:
    return at.inputs[0]


_DIRECT = {
    **{name: name.capitalize() for name in ("add", "sub", "mul", "div", "min", "exp", "log", "tanh")},
    **{name: name.capitalize() for name in ("neg", "abs", "sign", "floor", "ceil", "sqrt", "erf", "sin", "cos", "tan")},
    **{name: name.capitalize() for name in ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")},
    "logistic": "Sigmoid",
}
"""Operations of single elements that ONNX has too, under nearly the same name."""

OPERATIONS: dict[str, Callable[[GraphWriter, Operation], Value | list[Value]]] = {
    **{name: _elements(operation) for name, operation in _DIRECT.items()},
    "max": _maximum,
    "pow": _raised,
    "rem": _elements("Mod", fmod=1),
    "eq": _compared("Equal"),
    "ne": _not_equal,
    "lt": _compared("Less"),
    "le": _compared("LessOrEqual"),
    "gt": _compared("Greater"),
    "ge": _compared("GreaterOrEqual"),
    "and": _logical("And"),
    "or": _logical("Or"),
    "xor": _logical("Xor"),
    "not": _logical("Not"),
    "square": _square,
    "integer_pow": _integer_power,
    "rsqrt": _reciprocal_root,
    "log1p": _log_1p,
    "expm1": _exp_m1,
    "exp2": _exp_2,
    "erfc": _erfc,
    "round": _round,
    "is_finite": _is_finite,
    "clamp": _clamp,
    "select_n": _select,
    "convert_element_type": _convert,
    **dict.fromkeys(("copy", "copy_p", "stop_gradient"), _same),
    "broadcast_in_dim": _broadcast,
    **dict.fromkeys(("reshape", "squeeze"), _reshape),
    "transpose": _transpose,
    "concatenate": _concatenate,
    "stack": _stack,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "rev": _reverse,
    "split": _split,
    "iota": _iota,
    "dim_as_value": _size,
    "tile": _tile,
    "pad": _pad,
    "reduce_sum": _reduced("ReduceSum", axes_are_input=True),
    "reduce_prod": _reduced("ReduceProd"),
    "reduce_max": _reduced("ReduceMax"),
    "reduce_min": _reduced("ReduceMin"),
    "reduce_or": _reduced("ReduceMax", of=np.int32),
    "reduce_and": _reduced("ReduceMin", of=np.int32),
    "argmax": _argument("ArgMax"),
    "argmin": _argument("ArgMin"),
    "cumsum": _cumulated_sum,
    "sort": _sort,
    "top_k": _top,
    "dot_general": _dot,
    "conv_general_dilated": _convolution,
    "reduce_window_max": _pooled("MaxPool"),
    "reduce_window_sum": _pooled("AveragePool"),
    "gather": _gather,
}
