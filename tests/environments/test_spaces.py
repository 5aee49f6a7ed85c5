"""Spaces: what each becomes, in which order, and what is refused with which words."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple

from distrl.environments.spaces import env_spec, observation_reader
from distrl.errors import ConfigError
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

ACTION = Discrete(2)


def observations(space: Space) -> dict[str, ArraySpec]:
    return env_spec("Env-v0", space, ACTION, None, None).observations


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
    assert spec.action == DiscreteSpec(5, 2)
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


def test_an_unsupported_action_says_what_is_supported() -> None:
    with pytest.raises(ConfigError) as caught:
        env_spec("Env-v0", Discrete(2), Box(-1, 1, (1,), np.float32), None, None)
    assert str(caught.value) == (
        "environment Env-v0: the space at 'action' cannot be used: it is a Box; Discrete is supported"
    )


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
