import numpy as np
import pytest

from distrl.environments.preprocessing.fit import UnfitError, as_dtype
from distrl.environments.preprocessing.numeric import bounds_of, elementwise, floating
from distrl.environments.preprocessing.shaping import axis_of
from distrl.types import ArraySpec


def test_bounds_go_through_the_function_itself():
    """0.1 and 0.3 are no float32: the bounds must be what the rows become, not what real numbers would."""
    given = ArraySpec((2,), "float32", float(np.float32(0.1)), 3.0)
    spec, apply = elementwise(given, "float32", lambda rows: rows * np.float32(0.3))
    assert spec.low == float(apply(np.float32([0.1]))[0])
    assert spec.high == float(np.float32(3.0) * np.float32(0.3))


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(1.0, 3.0, (-3.0, -1.0)), (1.0, None, (None, -1.0)), (None, 3.0, (-3.0, None))]
)
def test_a_falling_function_swaps_the_bounds(low, high, expected):
    spec = elementwise(ArraySpec((1,), "float32", low, high), "float32", np.negative).spec
    assert (spec.low, spec.high) == expected


def test_a_bound_that_becomes_infinite_is_none():
    spec = elementwise(ArraySpec((1,), "float32", 0.0, 3e38), "float32", lambda rows: rows * np.float32(10)).spec
    assert (spec.low, spec.high) == (0.0, None)


def test_numbers_of_a_dtype_are_the_nearest_it_can_hold():
    assert as_dtype(-3.0, "uint8") == 0
    assert as_dtype(2.0**63, "int64") == 2**63 - 1
    assert as_dtype(1e300, "float32") == np.inf


def test_fractions_need_a_floating_dtype():
    assert [floating(dtype) for dtype in ("uint8", "bool", "float16", "float64")] == [
        "float32",
        "float32",
        "float16",
        "float64",
    ]


def test_axes_count_from_either_end():
    assert [axis_of(axis, (3, 4)) for axis in (0, 1, -1, -2)] == [0, 1, 1, 0]
    with pytest.raises(UnfitError, match="there is no axis 2"):
        axis_of(2, (3, 4))


def test_bounds_are_the_steps_or_the_observations():
    given = ArraySpec((1,), "float32", -1.0, None)
    assert bounds_of(given, None, 4.0) == (-1.0, 4.0)
    with pytest.raises(UnfitError, match="it has no upper bound; give the step low and high"):
        bounds_of(given, None, None)
    with pytest.raises(UnfitError, match="low: -1 is not below high: -1"):
        bounds_of(given, None, -1.0)
