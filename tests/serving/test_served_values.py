from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from distrl.environments.spaces import env_spec
from distrl.errors import DistrlError
from distrl.serving.served_values import action_writer, batched_arrays
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec, OneHot

VECTOR = {"observation": ArraySpec((2,), "float32")}
NESTED = {"camera": ArraySpec((2, 2), "uint8"), "pair/0": ArraySpec((), "float32"), "pair/1": ArraySpec((1,), "int32")}
CAMERA = np.array([[1, 2], [3, 255]])


def test_one_observation_or_many():
    arrays, single = batched_arrays([1, 2], VECTOR)
    np.testing.assert_array_equal(arrays["observation"], np.float32([[1, 2]]), strict=True)
    assert single
    arrays, single = batched_arrays(np.float64([[1, 2], [3, 4]]), VECTOR)
    np.testing.assert_array_equal(arrays["observation"], np.float32([[1, 2], [3, 4]]), strict=True)
    assert not single


@pytest.mark.parametrize(
    "shown",
    [
        {"camera": CAMERA, "pair": (0.5, [7])},
        {"camera": CAMERA, "pair": [0.5, [7]]},
        {"camera": CAMERA, "pair/0": 0.5, "pair/1": [7]},
    ],
)
def test_several_are_taken_nested_or_by_name(shown):
    arrays, single = batched_arrays(shown, NESTED)
    assert single
    np.testing.assert_array_equal(arrays["camera"], CAMERA[None].astype(np.uint8), strict=True)
    np.testing.assert_array_equal(arrays["pair/0"], np.float32([0.5]), strict=True)
    np.testing.assert_array_equal(arrays["pair/1"], np.int32([[7]]), strict=True)


def test_a_dict_may_hold_the_one_observation():
    spec = env_spec("D", spaces.Dict({"observation": spaces.Box(-1, 1, (2,))}), spaces.Discrete(2), None, None)
    arrays, _ = batched_arrays({"observation": [1, 2]}, spec.observations)
    np.testing.assert_array_equal(arrays["observation"], [[1, 2]])


@pytest.mark.parametrize(
    ("shown", "specs", "message"),
    [
        ([1, 2, 3], VECTOR, r"'observation' has shape \(3,\); the policy takes \(2,\), or \(B, 2\) for B at once"),
        (3, VECTOR, r"'observation' has shape \(\)"),
        (np.zeros((0, 2)), VECTOR, r"has shape \(0, 2\)"),
        (np.zeros((1, 1, 2)), VECTOR, r"has shape \(1, 1, 2\)"),
        ([1, np.nan], VECTOR, "'observation' is not finite"),
        ([1, 1e39], VECTOR, "'observation' is not finite"),
        (["a", "b"], VECTOR, "'observation' is <U1, the policy takes float32"),
        ([[1], [2, 3]], VECTOR, "'observation' is no array: "),
        ({"camera": CAMERA}, NESTED, "'pair/0' is missing"),
        (CAMERA, NESTED, "'camera' is missing"),
        ({"camera": CAMERA + 1, "pair": (0, [7])}, NESTED, "'camera' holds 2 … 256, which uint8 cannot"),
        ({"camera": CAMERA * 0.5, "pair": (0, [7])}, NESTED, "'camera' is float64, the policy takes uint8"),
        ({"camera": CAMERA, "pair": ([0, 0], [[7], [8]])}, NESTED, "observations differ in how many they are"),
    ],
)
def test_what_does_not_fit_is_one_line(shown, specs, message):
    with pytest.raises(DistrlError, match=message) as raised:
        batched_arrays(shown, specs)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        (DiscreteSpec(3, start=5), np.int32([0, 2]), np.array([5, 7])),
        (MultiDiscreteSpec((2, 3), (1, -1)), np.int32([[0, 2]]), np.array([[1, 1]])),
        (MultiDiscreteSpec((2, 3), (1, -1), (2, 1)), np.int32([[0, 2]]), np.array([[[1], [1]]])),
        (MultiBinarySpec((1, 2)), np.int32([[1, 0]]), np.int8([[[1, 0]]])),
        (BoxSpec((1, 2), (-1.0, None), (1.0, None)), np.float32([[-3, 5]]), np.float32([[[-1, 5]]])),
        (BoxSpec((1,), (-0.1,), (0.1,)), np.float32([[7]]), np.array([[0.1]])),  # float32 has no 0.1
    ],
)
def test_actions_are_the_environments_own(spec, given, expected):
    write = action_writer({"action": spec})
    np.testing.assert_array_equal(write({"action": given}, False), expected, strict=True)
    np.testing.assert_array_equal(write({"action": given}, True), expected[0], strict=True)


def test_several_actions_are_what_the_space_contains():
    space = spaces.Dict(
        {
            "drive": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(-1, 1, (2, 1), np.float64)]),
            "light": spaces.MultiBinary(2),
            "spec": spaces.Dict({"gears": spaces.MultiDiscrete([[2, 3]])}),
        }
    )
    specs = env_spec("D", spaces.Box(-1, 1, (2,)), space, None, None).actions
    assert [*specs] == ["drive/0", "drive/1", "light", "spec/gears"]
    chosen = {
        "drive/0": np.int32([0]),
        "drive/1": np.float32([[0.5, 9]]),
        "light": np.int32([[0, 1]]),
        "spec/gears": np.int32([[1, 2]]),
    }
    action = action_writer(specs)(chosen, True)
    assert space.contains(action)
    assert action["drive"][0] == -1
    np.testing.assert_array_equal(action["drive"][1], [[0.5], [1.0]])
    np.testing.assert_array_equal(action["light"], [0, 1])
    np.testing.assert_array_equal(action["spec"]["gears"], [[1, 2]])


DISCRETE = env_spec("D", spaces.Discrete(3, start=5), spaces.Discrete(2), None, None).observations
SEVERAL = env_spec(
    "M", spaces.MultiDiscrete([[2, 3], [1, 2]], start=[[0, 1], [0, 0]]), spaces.Discrete(2), None, None
).observations
EARLIER = {"observation": ArraySpec((3,), "float32", 0.0, 1.0, one_hot=OneHot((), (3,), (5,)))}
EARLIER_SEVERAL = {"observation": replace(SEVERAL["observation"].expanded, one_hot=SEVERAL["observation"].one_hot)}
NUMBERS = [[1, 3], [0, 1]]
ROW = [0, 1, 0, 0, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("specs", "shown", "numbers", "single"),
    [
        (DISCRETE, 6, [[1]], True),
        (DISCRETE, np.int64(7), [[2]], True),
        (DISCRETE, np.array([5, 7, 6], np.uint8), [[0], [2], [1]], False),  # as many as there are choices
        (DISCRETE, [0.0, 1.0, 0.0], [[1]], True),
        (DISCRETE, np.eye(3)[:2], [[0], [1]], False),
        (SEVERAL, NUMBERS, [[1, 2, 0, 1]], True),
        (SEVERAL, [NUMBERS, NUMBERS], [[1, 2, 0, 1]] * 2, False),
        (SEVERAL, np.float32(ROW), [[1, 2, 0, 1]], True),
    ],
)
def test_categories_are_counted_from_0(specs, shown, numbers, single):
    arrays, alone = batched_arrays(shown, specs)
    np.testing.assert_array_equal(arrays["observation"], np.uint8(numbers), strict=True)
    assert alone is single


@pytest.mark.parametrize(
    ("specs", "shown", "found", "wanted"),
    [
        (DISCRETE, [[6], [5]], r"int64 \(2, 1\)", r"\(\), or \(B\) for B at once, or one-hot rows of 3"),
        (DISCRETE, 0.5, r"float64 \(\)", r"\(\), or \(B\) for B at once, or one-hot rows of 3"),
        (DISCRETE, [0.5, 0.5, 0.0], r"float64 \(3,\)", r"\(\), or \(B\) for B at once, or one-hot rows of 3"),
        (SEVERAL, [1, 2, 0, 1], r"int64 \(4,\)", r"\(2, 2\), or \(B, 2, 2\) for B at once, or one-hot rows of 8"),
    ],
)
def test_what_are_no_categories_is_refused(specs, shown, found, wanted):
    with pytest.raises(DistrlError, match=f"'observation' is {found}; the policy takes whole numbers {wanted}"):
        batched_arrays(shown, specs)


@pytest.mark.parametrize(
    ("specs", "shown", "rows", "single"),
    [
        (EARLIER, 6, [[0, 1, 0]], True),
        (EARLIER, np.int64(7), [[0, 0, 1]], True),
        (EARLIER, np.array([5, 7, 6], np.uint8), np.eye(3)[[0, 2, 1]], False),  # as many as there are choices
        (EARLIER, [0.0, 1.0, 0.0], [[0, 1, 0]], True),
        (EARLIER, np.eye(3)[:2], np.eye(3)[:2], False),
        (EARLIER_SEVERAL, NUMBERS, [ROW], True),
        (EARLIER_SEVERAL, [NUMBERS, NUMBERS], [ROW, ROW], False),
        (EARLIER_SEVERAL, np.float32(ROW), [ROW], True),
    ],
)
def test_categories_become_one_hot_for_policies_of_earlier_versions(specs, shown, rows, single):
    arrays, alone = batched_arrays(shown, specs)
    np.testing.assert_array_equal(arrays["observation"], np.float32(rows), strict=True)
    assert alone is single


@pytest.mark.parametrize(
    ("specs", "shown"), [(DISCRETE, 4), (DISCRETE, [5, 8]), (SEVERAL, [[1, 0], [0, 1]]), (EARLIER, 4)]
)
def test_whole_numbers_outside_of_their_space_are_refused(specs, shown):
    with pytest.raises(DistrlError, match=r"'observation' is .*; the environment shows "):
        batched_arrays(shown, specs)
