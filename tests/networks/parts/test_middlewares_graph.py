import keras
import numpy as np
import pytest

from distrl.config.network import GraphMiddlewareParameters
from distrl.errors import ConfigError
from distrl.networks.parts.middlewares import build
from distrl.networks.policy import bundle


def model_of(widths, blocks, **flags):
    inputs = {name: keras.Input((width,), name=name) for name, width in widths.items()}
    output = build(inputs, GraphMiddlewareParameters(blocks=blocks, **flags), seed=1)
    return keras.Model(inputs, {"features": output})


def run(model, **values):
    return np.asarray(model({name: np.float32([value]) for name, value in values.items()})["features"])


@pytest.mark.row("L14")
def test_two_inputs_joined_by_name():
    joined = model_of({"speed": 2, "camera": 2}, {"output": {"inputs": ["speed", "camera"]}})
    np.testing.assert_array_equal(run(joined, camera=[1, 2], speed=[3, 4]), [[1, 2, 3, 4]])
    added = model_of({"speed": 2, "camera": 2}, {"output": {"inputs": ["speed", "camera"], "merger": "Sum"}})
    np.testing.assert_array_equal(run(added, camera=[1, 2], speed=[3, 4]), [[4, 6]])


@pytest.mark.row("L14")
def test_blocks_take_observations_and_each_other_in_any_order_of_writing():
    weight = {"units": 1, "activation": "none"}
    blocks = {
        "output": {"inputs": ["left", "right", "a"]},
        "right": {"inputs": ["left", "b"], "layers": [{**weight, "kernel_initializer": 1.0}]},  # left + b
        "left": {"inputs": ["a"], "layers": [{**weight, "kernel_initializer": 10.0}]},  # 10 a
    }
    model = model_of({"a": 1, "b": 1}, blocks)
    # By name: a, left, right.
    np.testing.assert_array_equal(run(model, a=[2.0], b=[3.0]), [[2.0, 20.0, 23.0]])
    assert [weight.path for weight in model.weights] == [
        "middleware_left_dense_0/kernel",
        "middleware_left_dense_0/bias",
        "middleware_right_dense_0/kernel",
        "middleware_right_dense_0/bias",
    ]
    bundle.verify_graph(bundle.export_graph(model), model)


def test_the_middleware_s_flags_hold_in_all_blocks():
    identity = {"units": 2, "kernel_initializer": [[1, 0], [0, 1]]}
    model = model_of({"a": 2}, {"output": {"inputs": ["a"], "layers": [identity]}}, activation="tanh")
    np.testing.assert_allclose(run(model, a=[1.0, -2.0]), np.tanh([[1.0, -2.0]]), rtol=1e-6)


@pytest.mark.row("L14")
@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            {"output": {"inputs": ["b", "kamera"]}, "b": {"inputs": ["camera", "speed"]}},
            "output.inputs: unknown input 'kamera'; choose from camera, speed, b",
        ),
        ({"output": {"inputs": ["camera"]}}, ": no block takes the observation 'speed'"),
        (
            {"output": {"inputs": ["camera", "speed"]}, "camera": {"inputs": ["speed"]}},
            "camera has the name of an observation",
        ),
        (
            {"output": {"inputs": ["camera", "speed"], "merger": "Sum"}},
            "output: merger Sum needs inputs of one width, these have: camera 4, speed 2",
        ),
        (
            {"output": {"inputs": ["camera", "speed"], "layers": [3, {"kind": "conv1d", "filters": 2}]}},
            r"output.layers.1 \(conv1d\) does not fit its input of shape \[3\]",
        ),
    ],
)
def test_blocks_that_do_not_fit_the_observations(blocks, message):
    with pytest.raises(ConfigError, match=r"^network.middleware_parameters.blocks[.:]?" + message):
        model_of({"camera": 4, "speed": 2}, blocks)


def test_several_copies_are_told_apart_by_a_prefix():
    parameters = GraphMiddlewareParameters(blocks={"output": {"inputs": ["a", "b"], "layers": [3]}})
    inputs = {name: keras.Input((2,), name=name) for name in "ab"}
    model = keras.Model(inputs, [build(inputs, parameters, seed=1, prefix=prefix) for prefix in ("p_", "v_")])
    names = [weight.path for weight in model.weights][::2]
    assert names == ["p_middleware_output_dense_0/kernel", "v_middleware_output_dense_0/kernel"]
