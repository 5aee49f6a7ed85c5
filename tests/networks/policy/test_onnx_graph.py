import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from distrl.errors import DistrlError
from distrl.networks.policy import onnx_graph


def value(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def choice():
    """y = if flag: x + a else: x + b; the weights are used inside the branches alone."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Add", ["x", weight], [f"{name}_y"])], name, [], [value(f"{name}_y", [2])]
        )
        for name, weight in (("then", "a"), ("else", "b"))
    }
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    nodes = [helper.make_node("If", ["flag"], ["y"], **branches)]
    inputs = [flag, value("x", [2]), value("a", [2]), value("b", [2])]
    graph = helper.make_graph(nodes, "choice", inputs, [value("y", [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_renamed_and_externalised_weights_are_found_inside_control_flow():
    model = choice()
    onnx_graph.rename(model.graph, {"a": "main/a", "b": "main/b"})
    onnx_graph.externalise(model.graph, ["main/a", "main/b"])
    assert [tensor.name for tensor in model.graph.input] == ["flag", "x"]
    options = onnxruntime.SessionOptions()
    arrays = [np.array([1, 2], np.float32), np.array([10, 20], np.float32)]
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays]
    options.add_external_initializers(["main/a", "main/b"], values)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for flag, expected in ((True, [1, 2]), (False, [10, 20])):
        (y,) = session.run(None, {"flag": np.array(flag), "x": np.zeros(2, np.float32)})
        np.testing.assert_array_equal(y, expected)


def test_a_weight_that_nothing_uses_is_found():
    model = choice()
    model.graph.input.append(value("idle", [2]))
    assert onnx_graph.unused_weight(model.graph, ["a", "idle"]) == "idle"
    assert onnx_graph.unused_weight(model.graph, ["a", "b"]) is None


def test_operations_that_onnx_lacks_are_found_inside_control_flow():
    model = choice()
    assert onnx_graph.unknown_operation(model.graph) is None
    model.graph.node[0].attribute[0].g.node[0].op_type = "Erfc"
    model.graph.node[0].attribute[0].g.node[0].name = "main/dense/Erfc"
    assert onnx_graph.unknown_operation(model.graph) == ("Erfc", "main/dense/Erfc")


def test_inputs_become_constants():
    model = choice()
    onnx_graph.fill(model.graph, {"a": np.float32([1, 2]), "b": np.float32([10, 20]), "absent": np.zeros(1)})
    assert [tensor.name for tensor in model.graph.input] == ["flag", "x"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"flag": np.array(False), "x": np.float32([5, 5])})
    np.testing.assert_array_equal(y, [15, 25])


def test_outputs_are_renamed_wherever_they_are_made():
    model = choice()
    onnx_graph.rename(model.graph, {"y": "policy/action", "x": "observation/left"})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [tensor.name for tensor in session.get_outputs()] == ["policy/action"]
    arrays = {"a": np.float32([1, 2]), "b": np.float32([10, 20]), "observation/left": np.float32([5, 5])}
    (y,) = session.run(None, {"flag": np.array(False), **arrays})
    np.testing.assert_array_equal(y, [15, 25])


@pytest.mark.parametrize("external", [["a", "b"], ["a"], []])
def test_embedded_weights_need_no_injection(external):
    """Those that were inputs, those that were initializers, and one that the graph does not know."""
    model = choice()
    onnx_graph.externalise(model.graph, external)
    whole = onnx_graph.embed(
        model.SerializeToString(), {"a": np.float32([1, 2]), "b": np.float32([10, 20]), "c": np.zeros(1)}
    )
    session = onnxruntime.InferenceSession(whole, providers=["CPUExecutionProvider"])
    for flag, expected in ((True, [1, 2]), (False, [10, 20])):
        (y,) = session.run(None, {"flag": np.array(flag), "x": np.zeros(2, np.float32)})
        np.testing.assert_array_equal(y, expected)


def test_embedded_weights_are_read_by_their_prefix_and_never_from_other_files():
    model = helper.make_model(helper.make_graph([], "g", [], []))
    numbers = np.arange(3, dtype=np.float32)
    for name in ("main/a", "main_1/constant"):
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, [3], numbers))
    (found,) = onnx_graph.embedded(model.SerializeToString(), "main/").items()
    assert found[0] == "main/a"
    np.testing.assert_array_equal(found[1], numbers)
    tensor = TensorProto(name="main/b", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    model.graph.initializer.append(tensor)
    with pytest.raises(DistrlError, match="the data of main/b is in another file"):
        onnx_graph.embedded(model.SerializeToString(), "main/")
    for spoiled in (b"no model", model.SerializeToString()[:-3]):
        with pytest.raises(DistrlError, match="its weights cannot be read: "):
            onnx_graph.embedded(spoiled, "main/")
    short = helper.make_model(helper.make_graph([], "g", [], []))
    short.graph.initializer.append(TensorProto(name="main/c", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"1"))
    with pytest.raises(DistrlError, match="its weights cannot be read: "):
        onnx_graph.embedded(short.SerializeToString(), "main/")
