"""Nodes and constants of a graph, and sizes that follow the batch's."""

import os

import numpy as np
import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("test_jax_conversion_process.py runs this in a process with JAX", allow_module_level=True)

from jax import export

from distrl.networks.policy.onnx_writer import GraphWriter, UnwrittenError, Value

(BATCH,) = export.symbolic_shape("batch")
X = Value("value_1", (BATCH, 4), np.dtype(np.float32))


@pytest.fixture
def writer():
    return GraphWriter(BATCH, "value_1", ["value_1", "value_3"])


def test_names_differ_from_those_of_inputs_and_outputs(writer):
    assert [writer.new_name(), writer.inside().new_name(), writer.new_name()] == ["value_2", "value_4", "value_5"]


def test_equal_constants_are_written_once(writer):
    assert writer.constant([1, 2], np.int64) is writer.constant(np.array([1, 2]))
    assert writer.constant([1, 2], np.int64) is not writer.constant([1, 2], np.float32)


def test_what_changes_nothing_writes_nothing(writer):
    assert writer.full(X, (BATCH, 4)) is writer.reshape(X, (BATCH, 4)) is writer.transpose(X, (0, 1)) is X
    assert writer.cast(X, np.float32) is writer.cut(X, (0, 0), (BATCH, 4)) is X
    assert writer.reshape(writer.constant(np.zeros(4)), (2, 2)).array.shape == (2, 2)
    assert writer.nodes == []


def test_sizes_are_multiples_of_the_batch_or_refused(writer):
    assert writer.vector((2, 3)).array.tolist() == [2, 3]
    assert writer.vector((BATCH, 3 * BATCH, 2)).shape == (3,)
    assert [node.op_type for node in writer.nodes] == ["Shape", "Mul", "Concat"]
    with pytest.raises(UnwrittenError, match=r"^a size of .*batch"):
        writer.vector((BATCH + 1,))


def test_sizes_inside_a_loop_are_computed_before_it(writer):
    body = writer.inside()
    body.full(body.constant(1.0), (BATCH, 2))
    assert [node.op_type for node in writer.nodes] == ["Shape"]
    assert [node.op_type for node in body.nodes] == ["Concat", "Expand"]


def test_nodes_that_no_output_needs_are_left_out(writer):
    kept = writer.emit("Neg", X, shape=X.shape, dtype=X.dtype)
    writer.emit("Abs", X, shape=X.shape, dtype=X.dtype)
    graph = writer.graph([X], [kept])
    assert [node.op_type for node in graph.node] == ["Neg"]
    assert [axis.dim_param or axis.dim_value for axis in graph.input[0].type.tensor_type.shape.dim] == ["batch", 4]
