"""Spaces: what each becomes, in which order, what is refused with which words, and how actions find their way back."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple

from distrl.environments.spaces import action_writer, env_spec, observation_reader, random_actions
from distrl.errors import ConfigError
from distrl.types import ActionSpec, ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

ACTION = Discrete(2)


def observations(space: Space) -> dict[str, ArraySpec]:
    return env_spec("Env-v0", space, ACTION, None, None).observations


def actions(space: Space) -> dict[str, ActionSpec]:
    return env_spec("Env-v0", Discrete(2), space, None, None).actions


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box(-1.0, 1.0, (3,), np.float32), ArraySpec((3,), "float32", -1.0, 1.0)),
        (Box(0, 255, (2, 4, 3), np.uint8), ArraySpec((2, 4, 3), "uint8", 0.0, 255.0)),
        (Box(-np.inf, np.inf, (), np.float64), ArraySpec((), "float64", None, None)),
        (Box(np.float32([0, 0]), np.float32([1, 2]), dtype=np.float32), ArraySpec((2,), "float32", 0.0, None)),
        (Box(-5, np.iinfo(np.int64).max, (1,), np.int64), ArraySpec((1,), "int64", -5.0, float(2**63))),
        (Discrete(4, start=-1), ArraySpec((4,), "float32", 0.0, 1.0)),
    ],
)
def test_a_plain_space_is_named_observation(space: Space, expected: ArraySpec) -> None:
    assert observations(space) == {"observation": expected}


def test_dict_keeps_the_order_of_gymnasium() -> None:
    plain = Dict({"b": Box(0, 1, (2,), np.float32), "a": Discrete(3)})
    assert list(observations(plain)) == list(plain.spaces)
    ordered = Dict([("b", Box(0, 1, (2,), np.float32)), ("a", Discrete(3))])
    assert list(observations(ordered).items()) == [
        ("b", ArraySpec((2,), "float32", 0.0, 1.0)),
        ("a", ArraySpec((3,), "float32", 0.0, 1.0)),
    ]


def test_spec_has_action_and_limits_and_survives_json() -> None:
    spec = env_spec("Env-v0", Box(0, 1, (1,), np.float32), Discrete(5, start=2), 475.0, 500)
    assert spec.actions == {"action": DiscreteSpec(5, 2)}
    assert (spec.reward_threshold, spec.max_episode_steps) == (475.0, 500)
    assert EnvSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("space", "path", "reason"),
    [
        (Tuple((Discrete(2), Discrete(3))), "observation", "it is a Tuple"),
        (MultiDiscrete([2, 3]), "observation", "it is a MultiDiscrete"),
        (MultiBinary(4), "observation", "it is a MultiBinary"),
        (Box(0, 1, (0, 3), np.float32), "observation", "its shape (0, 3) holds no number"),
        (Dict({"text": Text(8)}), "observation/text", "it is a Text"),
        (Dict({"inner": Dict({"x": Discrete(2)})}), "observation/inner", "it is a Dict"),
        (Dict({}), "observation", "it is an empty Dict"),
        (Dict({"a/b": Discrete(2)}), "observation/a/b", "its key is 'a/b'"),
    ],
)
def test_an_unsupported_observation_names_path_and_reason(space: Space, path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        observations(space)
    message = str(caught.value)
    assert message.startswith(f"environment Env-v0: the space at '{path}' cannot be used: {reason}; ")
    assert "supported" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("space", "expected", "array"),
    [
        (Discrete(5, start=2), DiscreteSpec(5, 2), ArraySpec((), "int32", 0, 4)),
        (MultiDiscrete([2, 4]), MultiDiscreteSpec((2, 4), (0, 0)), ArraySpec((2,), "int32", 0, 3)),
        (
            MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 9]]),
            MultiDiscreteSpec((2, 3, 4, 5), (0, 1, -2, 9)),
            ArraySpec((4,), "int32", 0, 4),
        ),
        (MultiBinary(3), MultiBinarySpec((3,)), ArraySpec((3,), "int32", 0, 1)),
        (MultiBinary([2, 3]), MultiBinarySpec((2, 3)), ArraySpec((6,), "int32", 0, 1)),
        (Box(-2, 2, (), np.float32), BoxSpec((), (-2.0,), (2.0,)), ArraySpec((1,), "float32")),
        (
            Box(np.float64([[-1, -np.inf]]), np.float64([[np.inf, 5]]), dtype=np.float64),
            BoxSpec((1, 2), (-1.0, None), (None, 5.0)),
            ArraySpec((2,), "float32"),
        ),
    ],
)
def test_actions_of_every_kind(space: Space, expected: ActionSpec, array: ArraySpec) -> None:
    assert actions(space) == {"action": expected}
    assert expected.array == array
    spec = env_spec("Env-v0", Discrete(2), space, None, None)
    assert EnvSpec.from_json(spec.to_json()) == spec


def test_a_dict_of_actions_keeps_the_order_of_gymnasium() -> None:
    assert list(actions(Dict([("turn", Box(0, 1, (1,))), ("fire", Discrete(2))])).items()) == [
        ("turn", BoxSpec((1,), (0.0,), (1.0,))),
        ("fire", DiscreteSpec(2)),
    ]
    assert list(actions(Dict({"turn": Box(0, 1, (1,)), "fire": Discrete(2)}))) == ["fire", "turn"]


@pytest.mark.parametrize(
    ("space", "path", "reason"),
    [
        (Tuple((Discrete(2), Discrete(3))), "action", "it is a Tuple"),
        (Box(0, 9, (1,), np.int64), "action", "it is a Box of int64; whole numbers are a MultiDiscrete"),
        (Box(0, 255, (1,), np.uint8), "action", "it is a Box of uint8; whole numbers are a MultiDiscrete"),
        (Box(0, 1, (2, 0), np.float32), "action", "its shape (2, 0) holds no number"),
        (MultiDiscrete([]), "action", "its shape (0,) holds no number"),
        (Dict({}), "action", "it is an empty Dict"),
        (Dict({"say": Text(8)}), "action/say", "it is a Text"),
        (Dict({"arm": Dict({"x": Discrete(2)})}), "action/arm", "it is a Dict"),
        (
            Dict({"arm": Box(0, 9, (1,), np.int32)}),
            "action/arm",
            "it is a Box of int32; whole numbers are a MultiDiscrete",
        ),
    ],
)
def test_an_unsupported_action_names_path_and_reason(space: Space, path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        actions(space)
    assert str(caught.value) == (
        f"environment Env-v0: the space at '{path}' cannot be used: {reason}; "
        "Discrete, MultiDiscrete, MultiBinary, Box of real numbers and one level of Dict of those are supported"
    )


def test_a_key_of_actions_with_a_slash_is_refused() -> None:
    with pytest.raises(ConfigError, match="at 'action/a/b' cannot be used: its key is 'a/b'; non-empty names without"):
        actions(Dict({"a/b": Discrete(2)}))


def test_actions_find_their_way_back() -> None:
    space = Dict(
        {
            "room": Discrete(3, start=5),
            "grid": MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 9]]),
            "lamps": MultiBinary([2, 2]),
            "force": Box(np.float64([[-1.0], [-np.inf]]), np.float64([[0.1], [np.inf]]), dtype=np.float64),
        }
    )
    given = {
        "room": np.int32([0, 2]),
        "grid": np.int32([[0, 0, 0, 0], [1, 2, 3, 4]]),
        "lamps": np.int32([[0, 1, 1, 0], [1, 1, 0, 1]]),
        "force": np.float32([[-3.0, -3.0], [0.5, 1e30]]),
    }
    kept = {name: array.copy() for name, array in given.items()}
    taken = action_writer("Env-v0", space)(given)
    expected = {
        "room": np.int64([5, 7]),
        "grid": np.int64([[[0, 1], [-2, 9]], [[1, 3], [1, 13]]]),
        "lamps": np.int8([[[0, 1], [1, 0]], [[1, 1], [0, 1]]]),
        "force": np.float64([[[-1.0], [-3.0]], [[0.1], [np.float32(1e30)]]]),
    }
    assert taken.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(taken[name], array, strict=True)
        for row in taken[name]:
            assert space[name].contains(row)
        taken[name][:] = 0  # as an environment might
        np.testing.assert_array_equal(given[name], kept[name])


def test_a_lone_action_is_written_bare() -> None:
    write = action_writer("Env-v0", Box(-1.0, 1.0, (), np.float32))
    np.testing.assert_array_equal(
        write({"action": np.float32([[2.0], [-0.25]])}), np.float32([1.0, -0.25]), strict=True
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_clipped_number_never_leaves_its_bounds(dtype: type) -> None:
    """0.1 is another number in every dtype, and the policy's are float32."""
    space = Box(dtype(-0.1), dtype(0.1), (1,), dtype)
    row = action_writer("Env-v0", space)({"action": np.float32([[0.1], [-0.1], [7.0], [-7.0]])})
    assert row.dtype == dtype
    assert all(space.contains(value) for value in row)
    np.testing.assert_array_equal(row[2:], dtype([[0.1], [-0.1]]))


def test_random_actions_are_allowed_ones_and_reach_every_choice() -> None:
    specs: dict[str, ActionSpec] = {
        "room": DiscreteSpec(3, start=5),
        "grid": MultiDiscreteSpec((2, 4), (0, 1)),
        "lamps": MultiBinarySpec((2, 2)),
        "force": BoxSpec((4,), (-2.0, 0.5, None, None), (4.0, None, -0.5, None)),
    }
    drawn = random_actions(specs, 4000, np.random.default_rng(0))
    for name, spec in specs.items():
        assert (drawn[name].shape, drawn[name].dtype.name) == ((4000, *spec.array.shape), spec.array.dtype)
    assert set(drawn["room"].tolist()) == {0, 1, 2}
    assert [set(column) for column in drawn["grid"].T.tolist()] == [{0, 1}, {0, 1, 2, 3}]
    assert [set(column) for column in drawn["lamps"].T.tolist()] == [{0, 1}] * 4
    uniform, above, below, free = drawn["force"].T
    assert (uniform.min() >= -2.0, uniform.max() <= 4.0) == (True, True)
    # Uniform: mean 1, deviation 6 / sqrt(12), so that of 4000 is 0.027. Standard normal: 0.016.
    assert uniform.mean() == pytest.approx(1.0, abs=0.1)
    assert above.min() == 0.5
    assert above.max() > 2.0
    assert below.max() == -0.5
    assert (free.mean(), free.std()) == (pytest.approx(0.0, abs=0.06), pytest.approx(1.0, abs=0.06))


def test_discrete_observations_become_one_hot_rows() -> None:
    read = observation_reader("Env-v0", Discrete(3, start=5))
    rows = read(np.array([5, 7, 6]))["observation"]
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize("outside", [4, 8])
def test_a_discrete_observation_outside_its_space_is_refused(outside: int) -> None:
    read = observation_reader("Env-v0", Discrete(3, start=5))
    with pytest.raises(ValueError, match="lies outside Discrete\\(3, start=5\\)"):
        read(np.array([5, outside]))


def test_box_observations_are_copies_in_the_declared_dtype() -> None:
    read = observation_reader("Env-v0", Dict({"x": Box(0, 1, (2,), np.float32)}))
    buffer = np.array([[0.25, 0.5]], dtype=np.float64)
    kept = read({"x": buffer})["x"]
    buffer[:] = 9.0
    assert kept.dtype == np.float32
    np.testing.assert_array_equal(kept, [[0.25, 0.5]])
