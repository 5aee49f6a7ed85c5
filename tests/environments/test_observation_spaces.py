"""Single observation spaces: what array each becomes, by hand, and what is refused."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Space, Text, Tuple

from distrl.config.environment import TextParameters
from distrl.environments.observation_spaces import array_reader, array_spec, range_check
from distrl.types import ArraySpec, OneHot

TEXT = TextParameters(length_tokens=3, vocabulary=50)


@pytest.mark.row("M04")
@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box(-1.0, 1.0, (3,), np.float32), ArraySpec((3,), "float32", -1.0, 1.0)),
        (Box(0, 255, (2, 4, 3), np.uint8), ArraySpec((2, 4, 3), "uint8", 0.0, 255.0)),
        (Box(-np.inf, np.inf, (), np.float64), ArraySpec((), "float64", None, None)),
        (Box(np.float32([0, 0]), np.float32([1, 2]), dtype=np.float32), ArraySpec((2,), "float32", 0.0, None)),
        (Box(-5, np.iinfo(np.int64).max, (1,), np.int64), ArraySpec((1,), "int64", -5.0, float(2**63))),
        (Discrete(4, start=-1), ArraySpec((1,), "uint8", 0.0, 3.0, one_hot=OneHot((), (4,), (-1,)))),
        (MultiDiscrete([2, 300]), ArraySpec((2,), "uint16", 0.0, 299.0, one_hot=OneHot((2,), (2, 300), (0, 0)))),
        (
            MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 9]]),
            ArraySpec((4,), "uint8", 0.0, 4.0, one_hot=OneHot((2, 2), (2, 3, 4, 5), (0, 1, -2, 9))),
        ),
        (MultiBinary(4), ArraySpec((4,), "int8", 0.0, 1.0)),
        (MultiBinary([2, 3]), ArraySpec((2, 3), "int8", 0.0, 1.0)),
        (Text(8), ArraySpec((3,), "int32", 0.0, 49.0, vocabulary=50)),
    ],
)
def test_the_array_of_every_kind(space: Space, expected: ArraySpec) -> None:
    assert array_spec(space, TEXT) == expected


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (Box(0, 1, (0, 3), np.float32), "its shape (0, 3) holds no number"),
        (
            Discrete(2**24 + 1),
            "its 16,777,217 choices are more than the 16,777,216 that a network takes one-hot",
        ),
        (MultiDiscrete([]), "its shape (0,) holds no number"),
        (Sequence(Discrete(2)), "it is a Sequence"),
        (Graph(Discrete(2), None), "it is a Graph"),
        (OneOf([Discrete(2), Discrete(3)]), "it is a OneOf"),
    ],
)
def test_what_is_not_supported_says_why(space: Space, reason: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # compared below
        array_spec(space, TEXT)
    assert str(caught.value) == reason


def read(space: Space, raw: object, count: int = 2) -> np.ndarray:
    return array_reader(space, TEXT, count)(raw)


def test_a_choice_travels_as_a_whole_number_from_0() -> None:
    space = Discrete(3, start=5)
    rows = read(space, np.array([5, 7, 6]), 3)
    np.testing.assert_array_equal(rows, np.uint8([[0], [2], [1]]), strict=True)
    spec = array_spec(space, TEXT)
    assert spec == ArraySpec((1,), "uint8", 0.0, 2.0, one_hot=OneHot((), (3,), (5,)))
    np.testing.assert_array_equal(spec.expand(rows), np.float32([[1, 0, 0], [0, 0, 1], [0, 1, 0]]), strict=True)
    assert spec.expanded == ArraySpec((3,), "float32", 0.0, 1.0)


@pytest.mark.parametrize(
    ("n", "dtype"), [(1, "uint8"), (256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "int32")]
)
def test_choices_travel_in_the_smallest_dtype(n: int, dtype: str) -> None:
    spec = array_spec(Discrete(n, start=-2), TEXT)
    assert (spec.shape, spec.dtype, spec.low, spec.high) == ((1,), dtype, 0.0, n - 1)
    rows = read(Discrete(n, start=-2), np.array([n - 3, -2]))
    np.testing.assert_array_equal(rows, np.array([[n - 1], [0]], dtype), strict=True)


def test_several_choices_travel_flat() -> None:
    space = MultiDiscrete([[2, 3], [1, 2]], start=[[0, 4], [-2, 9]])
    rows = read(space, np.array([[[0, 5], [-2, 10]], [[1, 6], [-2, 9]]]))
    np.testing.assert_array_equal(rows, np.uint8([[0, 1, 0, 1], [1, 2, 0, 0]]), strict=True)
    expected = [[1, 0, 0, 1, 0, 1, 0, 1], [0, 1, 0, 0, 1, 1, 1, 0]]
    np.testing.assert_array_equal(array_spec(space, TEXT).expand(rows), np.float32(expected), strict=True)


def test_unsigned_choices_may_start_below_nothing() -> None:
    rows = read(MultiDiscrete([2, 2], dtype=np.uint8, start=[250, 3]), np.uint8([[251, 3], [250, 4]]))
    np.testing.assert_array_equal(rows, [[1, 0], [0, 1]])


def test_switches_stay_as_they_are() -> None:
    raw = np.int8([[0, 1, 1], [1, 0, 1]])
    np.testing.assert_array_equal(read(MultiBinary(3), raw), raw, strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_copies_in_the_declared_dtype(dtype: type) -> None:
    buffer = np.array([[0.25, 0.5]], dtype=dtype)
    kept = read(Box(0, 1, (2,), np.float32), buffer, 1)
    buffer[:] = 9.0
    np.testing.assert_array_equal(kept, np.float32([[0.25, 0.5]]), strict=True)


@pytest.mark.row("E02")
@pytest.mark.parametrize(
    ("space", "raw", "message"),
    [
        (Discrete(3, start=5), [5, 4], r"\[5 4\] lies outside Discrete\(3, start=5\)"),
        (Discrete(3, start=5), [8, 5], r"\[8 5\] lies outside Discrete"),
        (Discrete(5), [1.5, 1.0], "float64 is no kind of whole numbers"),
        (Discrete(3), [1, 1, 1], r"its shape is \(3,\), the space of 2 environments says \(2,\)"),
        (MultiDiscrete([2, 3]), [[0, 2], [2, 0]], r"lies outside MultiDiscrete\(\[2 3\]\)"),
        (MultiDiscrete([2, 3], start=[0, 1]), [[0, 1], [0, 0]], "lies outside MultiDiscrete"),
        (MultiDiscrete([2, 3]), [[0, 1, 0], [0, 0, 0]], r"its shape is \(2, 3\), the space of 2 environments says"),
        (MultiBinary(2), [[0, 1], [0, 2]], r"lies outside MultiBinary\(2\)"),
        (MultiBinary(2), np.int8([[0, -1], [0, 0]]), r"lies outside MultiBinary\(2\)"),
        (Box(0, 1, (2,), np.float32), np.zeros((2, 3), np.float32), r"its shape is \(2, 3\), the space of 2 env"),
        (Box(0, 1, (2,), np.float32), np.zeros((1, 2), np.float32), r"its shape is \(1, 2\), the space of 2 env"),
        (Box(0, 1, (2,), np.float32), [[0.0, 1.0], [0.0]], "inhomogeneous"),
        (Text(4), ["go", 3], "3 of type int is not a text"),
    ],
)
def test_what_lies_outside_the_space_is_refused_at_once(space: Space, raw: object, message: str) -> None:
    raw = np.int8(raw) if isinstance(space, MultiBinary) else raw
    with pytest.raises(ValueError, match=message):
        read(space, raw)


def test_numbers_that_would_be_cut_to_fit_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Cannot cast array data from dtype.'float64'. to dtype.'uint8'."):
        read(Box(0, 255, (1,), np.uint8), np.array([[0.5], [1.0]]))


def test_whole_numbers_are_checked_wherever_they_are_and_floats_nowhere() -> None:
    small = Box(-100, 100, (2,), np.int8)
    check = range_check(Dict(x=Box(0, 1, (1,), np.float32), y=Tuple([Discrete(2), small])))
    assert check is not None
    fine = {"x": np.float32([1e30]), "y": (1, np.int8([-128, 127]))}
    check([fine, fine, {**fine, "y": (1, [-128, 127])}])
    with pytest.raises(ValueError, match="'observation/y/1' holds -129 … 127, which int8 of its space cannot"):
        check([fine, {**fine, "y": (1, [-129, 127])}])
    assert range_check(Dict(x=Box(0, 1, (1,), np.float32), y=Discrete(2))) is None
