"""A function of JAX as an ONNX graph: JAX traces it to operations, whose nodes are written one after the other.

The batch's size is a symbol while it is traced. It is imported late: a start from the cache of policies needs no onnx.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from onnx import helper

from distrl.errors import ConfigError
from distrl.networks.parts.layers import own_words
from distrl.networks.policy.jax_operations import OPERATIONS, Operation, selected
from distrl.networks.policy.onnx_graph import Forms
from distrl.networks.policy.onnx_writer import GraphWriter, UnwrittenError, Value

IR_VERSION = 8
"""ONNX's file format; that of opset 17."""

_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Parameters in which an operation has the function that it calls."""


def convert(function: Callable[..., Any], forms: Forms, outputs: Sequence[str], opset: int) -> Any:
    """Return the ModelProto of a function. Operations that have no nodes in ONNX stay in the graph as they are.

    Args:
        function: Takes arrays in the order of `forms` and returns a sequence in that of `outputs`.

    Raises:
        ConfigError: JAX cannot trace the function, or its operations cannot be written; the message is one line.
    """
    try:
        graph = _graph(function, forms, outputs)
    except Exception as error:  # layers of others are traced here, and may raise anything
        raise ConfigError(f"policy export: {type(error).__name__}: {own_words(error)}") from error
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


def _graph(function: Callable[..., Any], forms: Forms, outputs: Sequence[str]) -> Any:
    (batch,) = jax.export.symbolic_shape("batch")
    writer = GraphWriter(batch, next(iter(forms)), [*forms, *outputs])
    inputs = [
        Value(name, tuple(batch if size is None else size for size in shape), np.dtype(dtype))
        for name, (shape, dtype) in forms.items()
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Explicitly requested dtype")  # JAX computes in 32 bits
        given = [jax.ShapeDtypeStruct(value.shape, jax.dtypes.canonicalize_dtype(value.dtype)) for value in inputs]
        traced = jax.make_jaxpr(function)(*given)
    narrow = [writer.cast(value, form.dtype) for value, form in zip(inputs, given, strict=True)]
    results = _written(writer, traced, narrow)
    return writer.graph(inputs, _named(writer, results, outputs))


def _named(writer: GraphWriter, values: Sequence[Value], names: Sequence[str]) -> list[Value]:
    """Return values under names; a node each, as a value may be an input or have a name already."""
    results = [Value(name, value.shape, value.dtype) for name, value in zip(names, values, strict=True)]
    for value, result in zip(values, results, strict=True):
        writer.nodes.append(helper.make_node("Identity", [value.name], [result.name], name=f"{result.name}/Identity"))
    return results


def _written(writer: GraphWriter, closed: Any, inputs: Sequence[Value]) -> list[Value]:
    """Write the operations of a traced function; its results have the shapes that they stand for."""
    jaxpr = closed.jaxpr if hasattr(closed, "jaxpr") else closed
    known: dict[Any, Value] = dict(zip(jaxpr.invars, inputs, strict=True))
    known |= {
        variable: writer.constant(np.asarray(value))
        for variable, value in zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True)
    }

    def value_of(atom: Any) -> Value:
        return writer.constant(atom.val, atom.aval.dtype) if hasattr(atom, "val") else known[atom]

    outside = writer.place
    for equation in jaxpr.eqns:
        writer.place = "/".join(filter(None, (outside, str(equation.source_info.name_stack))))
        operation = Operation(
            equation.primitive.name,
            tuple(map(value_of, equation.invars)),
            tuple(atom.aval.shape for atom in equation.invars),
            tuple((atom.aval.shape, _dtype(atom.aval)) for atom in equation.outvars),
            equation.params,
        )
        known |= zip(equation.outvars, _results(writer, operation), strict=True)
    writer.place = outside
    return [writer.full(value_of(atom), atom.aval.shape) for atom in jaxpr.outvars]


def _dtype(form: Any) -> Any:
    """Return a dtype of NumPy; keys of random numbers, which inference makes and does not use, count as bits."""
    return np.uint32 if jax.numpy.issubdtype(form.dtype, jax.dtypes.extended) else form.dtype


def _results(writer: GraphWriter, operation: Operation) -> list[Value]:
    write = _CALLERS.get(operation.name, OPERATIONS.get(operation.name))
    called = next((operation.parameters[name] for name in _CALLED if name in operation.parameters), None)
    if write is None and called is not None:
        return _written(writer, called, operation.inputs)
    try:
        if write is None:
            raise UnwrittenError(operation.name)
        written = write(writer, operation)
    except UnwrittenError as error:  # stays in the graph as it is, and matters only if an output needs it
        return writer.emit_all(str(error), *operation.inputs, results=operation.results)
    return written if isinstance(written, list) else [written]


def _branches(writer: GraphWriter, at: Operation) -> list[Value]:
    """All branches are computed, and the results of one are taken."""
    which, *arguments = at.inputs
    cases = [_written(writer, branch, arguments) for branch in at.parameters["branches"]]
    return [selected(writer, which, each) for each in zip(*cases, strict=True)]


def _scan(writer: GraphWriter, at: Operation) -> list[Value]:
    """A loop over the first axis of some inputs, which carries others on; ONNX calls it the same."""
    given = at.parameters
    if "ft_in" in given:  # since JAX 0.12
        constants, states, _ = map(len, given["ft_in"].elts)
    else:
        constants, states = given["num_consts"], given["num_carry"]
    carried = constants + states
    inputs = [at.whole(writer, index) for index in range(constants, len(at.inputs))]
    shapes = [*at.shapes[constants:carried], *(shape[1:] for shape in at.shapes[carried:])]
    if len(at.inputs) == carried:  # ONNX counts by what it loops over
        inputs.append(writer.constant(np.zeros(given["length"], np.float32)))
        shapes.append(())
    body = writer.inside()
    rows = [Value(body.new_name(), shape, each.dtype) for shape, each in zip(shapes, inputs, strict=True)]
    results = _written(body, given["jaxpr"], [*at.inputs[:constants], *rows[: len(at.inputs) - constants]])
    over, gathered = len(inputs) - states, len(results) - states
    directions = {"scan_input_directions": [int(given["reverse"])] * over}
    if gathered:
        directions["scan_output_directions"] = [int(given["reverse"])] * gathered
    inner = _body(body, rows, results)
    return writer.emit_all("Scan", *inputs, results=at.results, body=inner, num_scan_inputs=over, **directions)


def _while(writer: GraphWriter, at: Operation) -> list[Value]:
    """A loop that goes on as long as a function of what it carries says so."""
    given = at.parameters
    first, second = given["cond_nconsts"], given["cond_nconsts"] + given["body_nconsts"]
    of_condition, of_body = at.inputs[:first], at.inputs[first:second]
    carried = [at.whole(writer, index) for index in range(second, len(at.inputs))]
    (begins,) = _written(writer, given["cond_jaxpr"], [*of_condition, *carried])
    body = writer.inside()
    count, goes = Value(body.new_name(), (), np.dtype(np.int64)), Value(body.new_name(), (), np.dtype(bool))
    rows = [Value(body.new_name(), each.shape, each.dtype) for each in carried]
    results = _written(body, given["body_jaxpr"], [*of_body, *rows])
    (goes_on,) = _written(body, given["cond_jaxpr"], [*of_condition, *results])
    inner = _body(body, [count, goes, *rows], [goes_on, *results])
    endless = Value("", (), None)
    return writer.emit_all("Loop", endless, begins, *carried, results=at.results, body=inner)


def _body(body: GraphWriter, inputs: Sequence[Value], results: Sequence[Value]) -> Any:
    """Return the nodes of a loop as a graph."""
    outputs = _named(body, results, [body.new_name() for _ in results])
    return body.wrapped(body.nodes, inputs, outputs)


_CALLERS = {"cond": _branches, "scan": _scan, "while": _while}
