"""Single action spaces: what travels, how it becomes what environments take, and what is refused."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, OneOf, Sequence, Space, Text

from distrl.environments.action_spaces import action_spec, array_writer
from distrl.environments.random_actions import random_action
from distrl.types import ActionSpec, ArraySpec, BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec


@pytest.mark.row("M04")
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
    assert action_spec(space) == expected
    assert expected.array == array


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (Box(0, 9, (1,), np.int64), "it is a Box of int64; whole numbers are a MultiDiscrete"),
        (Box(0, 255, (1,), np.uint8), "it is a Box of uint8; whole numbers are a MultiDiscrete"),
        (Box(0, 1, (2, 0), np.float32), "its shape (2, 0) holds no number"),
        (MultiDiscrete([]), "its shape (0,) holds no number"),
        (Discrete(2**40), "its 1,099,511,627,776 choices are more than the 16,777,216 that a network takes one-hot"),
        (
            MultiDiscrete([2, 2**33]),
            "its 8,589,934,594 choices are more than the 16,777,216 that a network takes one-hot",
        ),
        (Text(8), "it is a Text"),
        (Sequence(Discrete(2)), "it is a Sequence"),
        (OneOf([Discrete(2), Discrete(3)]), "it is a OneOf"),
    ],
)
def test_what_is_not_supported_says_why(space: Space, reason: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # compared below
        action_spec(space)
    assert str(caught.value) == reason


def written(space: Space, actions: np.ndarray) -> np.ndarray:
    kept = actions.copy()
    taken = array_writer(space)(actions)
    result = taken.copy()
    taken[:] = 0  # as an environment might
    np.testing.assert_array_equal(actions, kept)
    assert all(space.contains(np.asarray(row)) for row in result)
    return result


def test_choices_are_counted_from_their_start_again() -> None:
    np.testing.assert_array_equal(written(Discrete(3, start=5), np.int32([0, 2])), np.int64([5, 7]), strict=True)
    grid = MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 9]])
    np.testing.assert_array_equal(
        written(grid, np.int32([[0, 0, 0, 0], [1, 2, 3, 4]])),
        np.int64([[[0, 1], [-2, 9]], [[1, 3], [1, 13]]]),
        strict=True,
    )


def test_switches_have_the_shape_of_their_space_again() -> None:
    np.testing.assert_array_equal(
        written(MultiBinary([2, 2]), np.int32([[0, 1, 1, 0], [1, 1, 0, 1]])),
        np.int8([[[0, 1], [1, 0]], [[1, 1], [0, 1]]]),
        strict=True,
    )


def test_numbers_are_cut_to_their_bounds() -> None:
    space = Box(np.float64([[-1.0], [-np.inf]]), np.float64([[0.1], [np.inf]]), dtype=np.float64)
    np.testing.assert_array_equal(
        written(space, np.float32([[-3.0, -3.0], [0.5, 1e30]])),
        np.float64([[[-1.0], [-3.0]], [[0.1], [np.float32(1e30)]]]),
        strict=True,
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_clipped_number_never_leaves_its_bounds(dtype: type) -> None:
    """0.1 is another number in every dtype, and the policy's are float32."""
    space = Box(dtype(-0.1), dtype(0.1), (1,), dtype)
    rows = written(space, np.float32([[0.1], [-0.1], [7.0], [-7.0]]))
    assert rows.dtype == dtype
    np.testing.assert_array_equal(rows[2:], dtype([[0.1], [-0.1]]))


def test_random_choices_reach_every_choice() -> None:
    rng = np.random.default_rng(0)
    room = random_action(DiscreteSpec(3, start=5), 4000, rng)
    grid = random_action(MultiDiscreteSpec((2, 4), (0, 1)), 4000, rng)
    lamps = random_action(MultiBinarySpec((2, 2)), 4000, rng)
    assert [(drawn.shape, drawn.dtype) for drawn in (room, grid, lamps)] == [
        ((4000,), np.int32),
        ((4000, 2), np.int32),
        ((4000, 4), np.int32),
    ]
    assert set(room.tolist()) == {0, 1, 2}
    assert [set(column) for column in grid.T.tolist()] == [{0, 1}, {0, 1, 2, 3}]
    assert [set(column) for column in lamps.T.tolist()] == [{0, 1}] * 4


@pytest.mark.row("E15")
def test_random_numbers_are_uniform_between_bounds_and_normal_without() -> None:
    spec = BoxSpec((4,), (-2.0, 0.5, None, None), (4.0, None, -0.5, None))
    drawn = random_action(spec, 4000, np.random.default_rng(0))
    assert (drawn.shape, drawn.dtype) == ((4000, 4), np.float32)
    assert np.isfinite(drawn).all()
    uniform, above, below, free = drawn.T
    assert (uniform.min() >= -2.0, uniform.max() <= 4.0) == (True, True)
    # Uniform: mean 1, deviation 6 / sqrt(12), so that of 4000 is 0.027. Standard normal: 0.016.
    assert uniform.mean() == pytest.approx(1.0, abs=0.1)
    assert above.min() == 0.5
    assert above.max() > 2.0
    assert below.max() == -0.5
    assert (free.mean(), free.std()) == (pytest.approx(0.0, abs=0.06), pytest.approx(1.0, abs=0.06))
