"""Functions of JAX as graphs: names, dtypes, errors, and whole networks. test_jax_operations.py has each operation."""

import os

import numpy as np
import onnxruntime
import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("test_jax_conversion_process.py runs this in a process with JAX", allow_module_level=True)

import jax
import jax.numpy as jnp

from distrl.errors import ConfigError
from distrl.networks.policy.jax_conversion import convert
from distrl.networks.policy.onnx_graph import unknown_operation

FORMS = {"x": ((None, 4), "float32"), "kernel": ((4, 3), "float32")}


def test_inputs_and_outputs_keep_their_names_and_the_batch_is_free():
    model = convert(lambda x, kernel: [x @ kernel, x], FORMS, ["y", "z"], 17)
    assert [value.name for value in model.graph.input] == ["x", "kernel"]
    assert [value.name for value in model.graph.output] == ["y", "z"]
    shapes = [
        [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in model.graph.output
    ]
    assert shapes == [["batch", 3], ["batch", 4]]
    assert [entry.version for entry in model.opset_import] == [17]


def test_a_bias_is_added_without_a_node_that_repeats_it():
    forms = FORMS | {"bias": ((3,), "float32")}
    model = convert(lambda x, kernel, bias: [jax.nn.relu(x @ kernel + bias)], forms, ["y"], 17)
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Add", "Relu", "Identity"]


def test_64_bits_become_32_as_in_jax():
    forms = {"speed": ((None,), "float64"), "count": ((None,), "int64")}
    model = convert(lambda speed, count: [speed * 2 + count], forms, ["y"], 17)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (computed,) = session.run(["y"], {"speed": np.array([0.5, 1.5]), "count": np.array([1, 2])})
    assert computed.dtype == np.float32
    np.testing.assert_array_equal(computed, [2.0, 5.0])


def test_an_unknown_operation_stays_under_the_path_of_its_layer():
    def function(x, kernel):
        with jax.named_scope("main"), jax.named_scope("spectrum"):
            return [jnp.fft.rfft(x).real]

    graph = convert(function, FORMS, ["y"], 17).graph
    operation, name = unknown_operation(graph)
    assert operation == "fft"
    assert name.startswith("main/spectrum/")


def test_what_no_output_needs_is_left_out():
    def function(x, kernel):
        jnp.fft.rfft(x)
        return [x + 1.0]

    assert [node.op_type for node in convert(function, FORMS, ["y"], 17).graph.node] == ["Add", "Identity"]


def test_a_part_of_an_operation_that_cannot_be_written_is_named():
    model = convert(lambda x, kernel: [jax.lax.sort((x, x))[0]], FORMS, ["y"], 17)
    assert unknown_operation(model.graph)[0] == "sort of several arrays"


def test_an_error_of_the_function_is_one_line():
    def function(x, kernel):
        raise ValueError("no such\nlayer")

    with pytest.raises(ConfigError, match=r"^policy export: ValueError: no such layer \(test_jax_conversion.py, line "):
        convert(function, FORMS, ["y"], 17)
