import random
import sys
import types

import keras
import numpy as np
import pytest

from distrl.config.layers import CustomLayer, LayerDefaults
from distrl.errors import ConfigError
from distrl.networks.parts.layers import apply_scheme, custom_layer, seeded


class Cube(keras.layers.Layer):
    """A user's layer: weight * x ** 3."""

    def __init__(self, start=1.0, **kwargs):
        super().__init__(**kwargs)
        self.start = start

    def build(self, input_shape):
        self.factor = self.add_weight(name="factor", initializer=keras.initializers.Constant(self.start))

    def call(self, inputs):
        return self.factor * inputs**3


@pytest.fixture
def user_module(monkeypatch):
    module = types.ModuleType("my_layers")
    module.Cube, module.number = Cube, 3
    monkeypatch.setitem(sys.modules, "my_layers", module)


@pytest.mark.row("L12.14", "L03")
def test_a_layer_of_the_user_s_own_from_json(user_module):
    parameters = CustomLayer.model_validate_json(
        '{"kind": "custom", "layer": "my_layers:Cube", "arguments": {"start": 2.0}}'
    )
    x = keras.Input((2,))
    model = keras.Model(x, apply_scheme(x, (parameters,), block=LayerDefaults(), prefix="p", seed=1))
    np.testing.assert_array_equal(np.asarray(model(np.float32([[1, -2]]))), [[2, -16]])
    assert [weight.path for weight in model.weights] == ["p_custom_0/factor"]


@pytest.mark.row("L03")
def test_a_layer_of_keras_that_has_no_kind():
    layer = custom_layer(CustomLayer(layer="keras.layers:UnitNormalization"), name="u")
    np.testing.assert_allclose(np.asarray(layer(np.float32([[3, 4]]))), [[0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"layer": "no_such_module:Cube"}, "layer no_such_module:Cube: module .* cannot be imported"),
        ({"layer": "my_layers:Cub"}, "layer my_layers:Cub: module 'my_layers' has no attribute 'Cub'"),
        ({"layer": "my_layers:number"}, "layer my_layers:number is no keras.layers.Layer"),
        ({"layer": "keras:Model"}, None),
        ({"layer": "my_layers:Cube", "arguments": {"begin": 1}}, "layer my_layers:Cube: .*begin"),
    ],
)
def test_what_is_no_layer_is_refused_in_one_line(user_module, parameters, message):
    if message is None:
        assert isinstance(custom_layer(CustomLayer(**parameters), name="m"), keras.Model)
        return
    with pytest.raises(ConfigError, match=message) as caught:
        custom_layer(CustomLayer(**parameters), name="c")
    assert "\n" not in str(caught.value)


class Raises(keras.layers.Layer):
    def call(self, inputs):
        return {}["nope"]


class Pair(keras.layers.Layer):
    def call(self, inputs):
        return inputs, inputs


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            "Raises",
            r"here\.0: my_layers:Raises on an input of shape \[2\]: KeyError: 'nope' \(test_layers_custom\.py, line",
        ),
        ("Pair", r"here\.0: my_layers:Pair must return one tensor with a batch axis, not tuple$"),
    ],
)
def test_a_layer_that_fails_is_told_in_its_own_words(user_module, layer, message):
    sys.modules["my_layers"].Raises, sys.modules["my_layers"].Pair = Raises, Pair
    given = (CustomLayer(layer=f"my_layers:{layer}"), CustomLayer(layer="keras.layers:Flatten"))
    with pytest.raises(ConfigError, match=rf"^{message}") as caught:
        apply_scheme(keras.Input((2,)), given, block=LayerDefaults(), prefix="p", seed=1, path="here")
    assert "\n" not in str(caught.value)


def test_seeds_that_keras_makes_up_follow_from_ours_and_nothing_else_notices():
    def kernel(seed):
        with seeded(seed):
            return np.asarray(keras.layers.Dense(3)(np.eye(4, dtype=np.float32)))

    random.seed(5)
    expected = random.random()
    random.seed(5)
    first, again, other = kernel(1), kernel(1), kernel(2)
    assert random.random() == expected
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


@pytest.mark.row("F16")
def test_a_scheme_pipes_its_layers():
    """Add 1, then multiply by 2: 3 becomes 8."""
    add = CustomLayer(layer="keras.layers:Rescaling", arguments={"scale": 1.0, "offset": 1.0})
    multiply = CustomLayer(layer="keras.layers:Rescaling", arguments={"scale": 2.0})
    x = keras.Input((1,))
    model = keras.Model(x, apply_scheme(x, (add, multiply), block=LayerDefaults(), prefix="p", seed=1))
    np.testing.assert_array_equal(np.asarray(model(np.float32([[3]]))), [[8]])
