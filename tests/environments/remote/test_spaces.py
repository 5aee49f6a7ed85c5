"""Spaces as plain maps and back, and values of every space through the wire."""

import json

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import example, given
from hypothesis import strategies as st

from distrl import wire
from distrl.config.remote_environment import RemoteParameters
from distrl.environments.remote.spaces import decoded, described, encoded, read_spaces, space_of
from distrl.errors import ConfigError, SchemaError

SPACES = [
    Box(-1.0, 1.0, (3,), np.float32),
    Box(0, 255, (4, 5, 3), np.uint8),
    Box(-np.inf, np.inf, (), np.float64),
    Box(np.array([0.0, -np.inf]), np.array([np.inf, 2.5]), dtype=np.float64),
    Box(np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 2**53 + 1]]), dtype=np.int64),
    Discrete(4),
    Discrete(3, start=-1),
    MultiDiscrete([2, 3]),
    MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [2, 3]])),
    MultiBinary(4),
    MultiBinary((2, 3)),
    Text(5),
    Text(8, min_length=0, charset="äb "),
    Tuple([Discrete(2), Box(0.0, 1.0, (2,))]),
    Dict({"b": Tuple([Text(3), Dict({"c": MultiBinary(2)})]), "a": Discrete(2)}),
]


def told(space):
    """Return the description as another machine gets it."""
    plain = wire.unpack(wire.pack({"observation_space": described(space, "x"), "action_space": described(space, "x")}))
    return read_spaces(plain, "there").observation_space


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_description_is_json_and_gives_the_space_back(space):
    description = described(space, "observation")
    assert json.loads(json.dumps(description, allow_nan=False)) == description
    assert space_of(told(space), "observation") == space


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_values_travel_unchanged(space):
    space.seed(0)
    for _ in range(5):
        value = space.sample()
        back = decoded(space, wire.unpack(wire.pack({"v": encoded(space, value, "v")}))["v"], "v")
        assert space.contains(back)
        assert data_equivalence(back, value)


def test_what_has_travelled_can_be_written_into():
    sent = wire.unpack(wire.pack({"v": np.zeros(2, np.float32)}))["v"]
    assert not sent.flags.writeable
    decoded(Box(0.0, 1.0, (2,)), sent, "v")[:] = 1.0


@pytest.mark.parametrize(
    ("space", "tree", "value"),
    [
        (Box(0.0, 1.0, (2,)), (0.25, 1), np.array([0.25, 1.0], np.float32)),
        (Box(0.0, 1.0, (1,)), np.array([0.5]), np.array([0.5], np.float32)),
        (Box(0, 255, (2, 2), np.uint8), ((1, 2), (3, 255)), np.array([[1, 2], [3, 255]], np.uint8)),
        (Box(-9.0, 9.0, ()), 3, np.array(3.0, np.float32)),
        (MultiBinary(2), (True, False), np.array([1, 0], np.int8)),
        (MultiDiscrete([2, 3]), (1, 2), np.array([1, 2])),
        (Discrete(4), np.int32(3), np.int64(3)),
        (Discrete(4), np.array([3]), np.int64(3)),
    ],
)
def test_plain_lists_do_where_a_game_has_no_arrays(space, tree, value):
    back = decoded(space, tree, "observation")
    np.testing.assert_array_equal(back, value)
    assert back.dtype == value.dtype
    assert space.contains(back)


@pytest.mark.parametrize(
    ("space", "tree", "message"),
    [
        (Box(0.0, 1.0, (2,)), (1.0,), r"'o' has shape \(1,\), its space says \(2,\)"),
        (Box(0.0, 1.0, (2,)), ((1.0,), (1.0, 2.0)), "'o' is no array"),
        (Box(0.0, 1.0, (2,)), ("a", "b"), "'o' has dtype <U1"),
        (Box(0.0, 1.0, (1,)), (None,), "'o' has dtype object"),
        (Box(0.0, 1.0, (1,)), np.array([1j]), "'o' has dtype complex128"),
        (Box(0, 255, (1,), np.uint8), (1.0,), "'o' has dtype float64, its space says uint8"),
        (Box(0, 255, (1,), np.uint8), (256,), "'o' has numbers beyond those of uint8"),
        (Box(0, 255, (1,), np.uint8), np.array([-1]), "'o' has numbers beyond"),
        (Discrete(4, start=1), 0, "'o' is 0, outside Discrete"),
        (Discrete(4), 1.0, "'o' must be one whole number, not 1.0"),
        (Discrete(4), (1, 2), "'o' must be one whole number"),
        (Text(3), b"abc", "'o' must be text, not a bytes"),
        (Dict({"a": Discrete(2)}), {"b": 1}, r"'o' must have the keys \['a'\], not \['b'\]"),
        (Dict({"a": Discrete(2)}), (1,), r"'o' must have the keys \['a'\], not tuple"),
        (Dict({"a": Tuple([Discrete(2)])}), {"a": (5,)}, "'o/a/0' is 5"),
        (Tuple([Discrete(2)]), (1, 1), "'o' must have 1 parts"),
    ],
)
def test_what_is_not_of_the_space_is_refused_by_path(space, tree, message):
    with pytest.raises(SchemaError, match=message):
        decoded(space, tree, "o")


def test_a_space_without_a_description_is_refused_by_path():
    with pytest.raises(ConfigError, match="the space at 'observation/a/0' cannot be served: it is a Graph"):
        described(Dict({"a": Tuple([Graph(Discrete(2), None)])}), "observation")


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"type": "Sphere"}, "at 'observation_space'"),
        ({"type": "Box", "shape": [1000, 1000, 1000]}, "holds more than 25,000,000 numbers"),
        ({"type": "MultiBinary", "shape": [10_000, 10_000]}, "holds more than 25,000,000 numbers"),
        ({"type": "Tuple", "spaces": [{"type": "Box", "shape": [9_000_000]}] * 3}, "holds more than 25,000,000"),
        ({"type": "Box", "shape": [-1]}, "greater than or equal to 0"),
        ({"type": "Box", "shape": [2], "low": [0.0]}, "low has 1 numbers"),
        ({"type": "Box", "shape": [2], "colour": "red"}, "colour"),
        ({"type": "Discrete", "n": 0}, "at 'observation_space/Discrete/n'"),
        ({"type": "Dict", "spaces": {"a": {"type": "Discrete"}}}, "at 'observation_space/Dict/spaces/a/Discrete/n'"),
        (5, "at 'observation_space'"),
    ],
)
def test_a_description_that_is_wrong_is_refused_by_path(description, message):
    with pytest.raises(ConfigError, match=message) as raised:
        read_spaces({"observation_space": description, "action_space": {"type": "Discrete", "n": 2}}, "there")
    assert str(raised.value).startswith("there describes its spaces wrongly at '")


@pytest.mark.parametrize(
    "description",
    [
        {"type": "Box", "shape": [2], "dtype": "object"},
        {"type": "Box", "shape": [2], "dtype": "uint8", "low": -1},
        {"type": "MultiDiscrete", "nvec": [[2], [2, 3]]},
        {"type": "MultiDiscrete", "nvec": {"a": 1}},
        {"type": "MultiDiscrete", "nvec": [0]},
        {"type": "Text", "max_length": 2, "min_length": 5},
    ],
    ids=str,
)
def test_a_description_that_means_no_space_is_a_config_error(description):
    given_spaces = RemoteParameters(observation_space=description, action_space={"type": "Discrete", "n": 2})
    with pytest.raises(ConfigError, match="the space at 'observation' cannot be made of"):
        space_of(given_spaces.observation_space, "observation")


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5),
    lambda child: st.lists(child, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=3), child, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("number", "dtype", "fits"),
    [
        (1e300, "float32", False),
        (-1e39, "float32", False),
        (3.4e38, "float32", True),
        (np.inf, "float32", True),
        (70_000, "float16", False),
        (65_504, "float16", True),
        (1e300, "float64", True),
    ],
)
def test_numbers_beyond_those_of_a_float_are_refused_like_those_of_an_integer(number, dtype, fits):
    space = Box(-np.inf, np.inf, (2,), np.dtype(dtype))
    if fits:
        np.testing.assert_array_equal(decoded(space, (number, np.nan), "o"), np.array([number, np.nan], dtype))
    else:
        with pytest.raises(SchemaError, match=f"'o' has numbers beyond those of {dtype}"):
            decoded(space, (number, 0), "o")


@example(Box(-1, 1, (3,), np.float32), (1e300, 0, 0))
@given(st.sampled_from(SPACES), _PLAIN)
def test_whatever_comes_is_of_the_space_or_a_schema_error(space, tree):
    try:
        value = decoded(space, tree, "o")
    except SchemaError:
        return
    assert np.shape(value) == (space.shape or ()) or isinstance(space, Dict | Tuple | Text)
