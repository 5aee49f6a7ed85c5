import onnx
import pytest
from onnx import TensorProto, helper

from distrl.errors import DistrlError
from distrl.networks.policy.protobuf import graph_inputs


def model(inputs):
    """y = the sum of the inputs and a constant; the constant and y are no inputs."""
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in inputs]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    constant = helper.make_tensor("constant", TensorProto.FLOAT, [2], [1.0, 2.0])
    node = helper.make_node("Sum", [*inputs, "constant"], ["y"])
    return helper.make_model(helper.make_graph([node], "graph", made, [y], [constant]))


@pytest.mark.parametrize("inputs", [[], ["x"], ["observation", "main/dense/kernel", "Größe", "n" * 300]])
def test_the_inputs_of_a_graph_are_those_that_onnx_reads(inputs):
    made = model(inputs)
    assert [value.name for value in made.graph.input] == inputs
    assert graph_inputs(made.SerializeToString()) == frozenset(inputs)


def test_a_model_without_a_graph_has_no_inputs():
    assert graph_inputs(onnx.ModelProto(ir_version=8).SerializeToString()) == frozenset()


def test_every_cut_of_a_model_is_refused_or_has_all_or_none_of_its_inputs():
    whole = model(["x", "weight"]).SerializeToString()
    refused = 0
    for end in range(len(whole)):
        try:
            assert graph_inputs(whole[:end]) in (frozenset(), frozenset({"x", "weight"}))
        except DistrlError:
            refused += 1
    assert refused > len(whole) / 2
