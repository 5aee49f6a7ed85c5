import dataclasses
import hashlib
import json

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, load_from_string, numpy_helper

from distrl.errors import DistrlError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.policy.description import FORMAT, BundleDescription, WeightSpec
from distrl.networks.policy.exported_model import HASH_KEY, KEY, Exported, opened, sealed
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec("Vector-v0", {"x": ArraySpec((2,), "float32")}, {"action": DiscreteSpec(2)})


def model():
    """policy/action = 3 x."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "three"], ["policy/action"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("policy/action", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(np.float32([3.0]), "three")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, {"author": "someone"})  # others may have their own
    return made.SerializeToString()


GRAPH = model()
DESCRIPTION = BundleDescription(
    inputs=SPEC.observations,
    recurrent_state={},
    outputs={"policy/action": (2,)},
    action_distributions={"action": CategoricalSpec(2)},
    environment=SPEC,
    weights=(WeightSpec("three", (1,), "float32", True),),
    libraries={"distrl": "1.2.3"},
    sha256="of the run's graph",
)
EXPORTED = Exported(DESCRIPTION, "impala", env_steps=500, weights_version=8)
FILE = sealed(GRAPH, EXPORTED)


def with_description(text):
    """The graph with this in the place of its description."""
    made = load_from_string(GRAPH)
    made.metadata_props.add(key=KEY, value=text)
    made.metadata_props.add(key=HASH_KEY, value=hashlib.sha256(text.encode()).hexdigest())
    return made.SerializeToString()


def altered(**changes):
    """The true description, changed."""
    tree = json.loads(opened(FILE)[1].to_json())
    for path, value in changes.items():
        node = tree["policy"] if path in tree["policy"] and path != "format" else tree
        node[path] = value
    return with_description(json.dumps(tree))


def test_what_was_sealed_is_opened():
    bundle, exported = opened(FILE)
    sha256 = hashlib.sha256(GRAPH).hexdigest()
    assert bundle.graph == GRAPH
    assert exported == dataclasses.replace(EXPORTED, policy=dataclasses.replace(DESCRIPTION, weights=(), sha256=sha256))
    assert BundleDescription.from_json(bundle.description) == exported.policy


def test_the_file_is_an_onnx_model_like_any_other():
    session = onnxruntime.InferenceSession(FILE, providers=["CPUExecutionProvider"])
    (y,) = session.run(["policy/action"], {"x": np.float32([[1, 2]])})
    np.testing.assert_array_equal(y, [[3, 6]])
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["author"] == "someone"
    assert json.loads(metadata[KEY])["env_steps"] == 500


def test_the_order_of_fields_means_nothing():
    first = FILE[len(GRAPH) :] + GRAPH
    assert opened(first) == opened(FILE)
    assert opened(load_from_string(first).SerializeToString()) == opened(FILE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GRAPH, "it has no description by distrl; write one with: distrl export RUN"),
        (b"", "it has no description by distrl; write one with: distrl export RUN"),
        (b"PK\x03\x04" + b"\x14\0\0\0\x08\0" * 20, "it is no ONNX model, or not a whole one"),
        (b"\xff" * 100, "it is no ONNX model, or not a whole one"),
        (with_description("{"), "its description is not valid: JSON: Invalid JSON"),
        (with_description("[1]"), "its description is not valid: JSON: Input should be an object"),
        (altered(env_steps="many"), "its description is not valid: env_steps: Input should be a valid integer"),
        (altered(format=2), f"its format is 2.{FORMAT}, this distrl reads 1.{FORMAT}; export it again"),
        (altered(sha256="0" * 64), "it is damaged: the graph's sha256 is"),
        (altered(action_distributions={}), "its description is inconsistent: actions are ['action']"),
        (altered(weights=[{"name": "w", "shape": [1], "dtype": "float32", "mixed": True}]), "weight 'w' is not in it"),
    ],
)
def test_what_is_no_exported_policy_is_one_line(content, message):
    with pytest.raises(DistrlError) as raised:
        opened(content)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@given(st.integers(0, len(FILE) - 1))
def test_no_part_of_the_file_opens(length):
    with pytest.raises(DistrlError):
        opened(FILE[:length])


@given(st.integers(0, len(GRAPH) - 1), st.integers(1, 255))
def test_no_byte_of_the_graph_can_be_another(position, difference):
    changed = bytearray(FILE)
    changed[position] ^= difference
    with pytest.raises(DistrlError):
        opened(bytes(changed))


def test_no_bit_of_the_description_can_be_another():
    opens = []
    for position in range(len(GRAPH), len(FILE)):
        for bit in range(8):
            changed = bytearray(FILE)
            changed[position] ^= 1 << bit
            try:
                opened(bytes(changed))
            except DistrlError:
                continue
            opens.append((position, bit))
    assert opens == []


def test_a_description_without_its_hash_is_damaged():
    made = load_from_string(FILE)
    assert made.metadata_props[-1].key == HASH_KEY
    del made.metadata_props[-1]
    with pytest.raises(
        DistrlError, match=r"^it is damaged: its description's sha256 is [0-9a-f]{64}, distrl.sha256 is b''"
    ):
        opened(made.SerializeToString())


@given(st.binary(max_size=200))
def test_nothing_but_an_error_comes_of_foreign_bytes(content):
    with pytest.raises(DistrlError):
        opened(content)
