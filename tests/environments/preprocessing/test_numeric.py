import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import ArraySpec

F = np.float32
LINE = F([0, 5, 10])


@pytest.mark.row("D101", "L08.1", "L10.7")
@pytest.mark.parametrize(
    ("given", "low", "high", "expected"),
    [
        (F([-1, 0.5, 2]), 0, 1, F([0, 0.5, 1])),
        (F([2]), 0, 1, F([1])),
        (F([-7, 1, 7]), -1, 1, F([-1, 1, 1])),
        (F([-7, 7]), None, 0, F([-7, 0])),
        (F([-7, 7]), 0, None, F([0, 7])),
        (np.uint8([0, 9, 255]), -3, 200, np.uint8([0, 9, 200])),
        (np.int64([-9, 9]), -1, 1, np.int64([-1, 1])),
        (np.float64([0.3]), 0, 0.1, np.float64([0.1])),
    ],
)
def test_clip(through, given, low, high, expected):
    np.testing.assert_array_equal(through(given, {"step": "clip", "low": low, "high": high}), expected, strict=True)


@pytest.mark.row("D101")
def test_the_clipped_space_is_known(pipeline):
    step = {"step": "clip", "low": -1, "high": 1}
    specs = [
        pipeline(ArraySpec((2,), "float32", low, high), step).spec.observations["observation"]
        for low, high in ((-5.0, 5.0), (None, None), (0.0, None), (3.0, 5.0))
    ]
    assert [(spec.low, spec.high) for spec in specs] == [(-1, 1), (-1, 1), (0, 1), (1, 1)]


def test_whole_numbers_are_clipped_to_whole_numbers(pipeline):
    with pytest.raises(ConfigError, match=r"uint8 \(1,\): 0.5 is no limit of whole numbers; put to_dtype before it"):
        pipeline(ArraySpec((1,), "uint8"), {"step": "clip", "low": 0.5})


@pytest.mark.row("L08.7", "L08.8", "L10.8")
@pytest.mark.parametrize(
    ("given", "how", "expected"),
    [
        (F([3]), {"multiply": 2}, F([6])),
        (np.uint8([3, 255]), {"multiply": 2}, F([6, 510])),
        (np.uint8([255, 0]), {"divide": 255}, F([1, 0])),
        (F([10]), {"divide": 2}, F([5])),
        (np.int64([-1]), {"divide": 4}, F([-0.25])),
        (np.float64([1]), {"divide": 3}, np.float64([1 / 3])),
        (np.float16([1]), {"multiply": 3}, np.float16([3])),
    ],
)
def test_scale(through, given, how, expected):
    np.testing.assert_array_equal(through(given, {"step": "scale", **how}), expected, strict=True)


@pytest.mark.parametrize(
    ("dtype", "step", "why"),
    [
        ("float32", {"step": "scale", "multiply": 1e300}, r"1e\+300 is more than float32 can hold"),
        ("uint8", {"step": "scale", "divide": 1e300}, r"1e\+300 is more than float32 can hold"),
        ("float16", {"step": "scale", "multiply": 1e5}, "100000 is more than float16 can hold"),
        ("float32", {"step": "scale", "divide": 1e-300}, "1e-300 is 0 in float32"),
        ("float32", {"step": "clip", "low": 1e300}, r"1e\+300 is more than float32 can hold"),
        ("float32", {"step": "center", "low": -1e300, "high": 0}, r"-1e\+300 is more than float32 can hold"),
        ("float32", {"step": "center", "low": 0.7, "high": 0.70000001}, "ends where it begins, at 0.7 in float32"),
    ],
)
def test_numbers_that_the_dtype_cannot_hold_are_refused(pipeline, dtype, step, why):
    with pytest.raises(ConfigError, match=why):
        pipeline(ArraySpec((1,), dtype), step)


def test_scaled_bounds(pipeline):
    given = ArraySpec((1,), "uint8", 0.0, 255.0)
    divided = pipeline(given, {"step": "scale", "divide": 255}).spec.observations["observation"]
    assert divided == ArraySpec((1,), "float32", 0.0, 1.0)
    mirrored = pipeline(given, {"step": "scale", "multiply": -2}).spec.observations["observation"]
    assert mirrored == ArraySpec((1,), "float32", -510.0, 0.0)


@pytest.mark.row("L08.2")
@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        (F([1.9, -1.9]), "uint8", [1, 0]),
        (F([300, 255.9]), "uint8", [255, 255]),
        (F([-1.9]), "int16", [-1]),
        (F([3e9]), "int32", [2**31 - 1]),
        (F([1e30, -1e30]), "int64", [2**63 - 1024, -(2**63)]),
        (np.int64([-1, 300, 7]), "uint8", [0, 255, 7]),
        (np.uint8([7]), "float32", [7.0]),
        (np.array([True, False]), "uint8", [1, 0]),
        (F([1e6, -1e6, 65519]), "float16", [65504, -65504, 65504]),
        (np.int64([10**6, -(10**6), 7]), "float16", [65504, -65504, 7]),
        (np.uint16([65535, 0]), "float16", [65504, 0]),
        (np.float64([1e300, -1e300]), "float32", np.finfo(F).max * np.float64([1, -1])),
        (np.float64([np.nan]), "float32", [np.nan]),  # the environment's own failure
    ],
)
def test_to_dtype_cuts_fractions_and_never_wraps_or_overflows(through, given, dtype, expected):
    np.testing.assert_array_equal(
        through(given, {"step": "to_dtype", "dtype": dtype}), np.array(expected, dtype), strict=True
    )


@pytest.mark.row("D110")
def test_to_uint8(through):
    step = {"step": "to_uint8", "low": 0, "high": 1}
    assert through(F([0.5, 0, 1, -3, 3]), step).tolist() == [127, 0, 255, 0, 255]
    bounded = {"step": "to_uint8"}
    assert through(F([-1, 0, 1]), bounded, low=-1.0, high=1.0).tolist() == [0, 127, 255]


@pytest.mark.parametrize(("low", "high"), [(-0.7, 0.1), (-2.1, 0.1), (0.0, 1e-3)])
def test_both_ends_of_to_uint8_are_hit(through, low, high):
    ends = np.float64([low, high])
    assert through(ends, {"step": "to_uint8", "low": low, "high": high}).tolist() == [0, 255]


@pytest.mark.row("L10.9")
def test_center(through, pipeline):
    assert through(LINE, {"step": "center"}, low=0.0, high=10.0).tolist() == [-1, 0, 1]
    assert through(LINE, {"step": "center", "low": 0, "high": 5}).tolist() == [-1, 1, 3]
    assert through(np.uint8([0, 255]), {"step": "center"}, low=0.0, high=255.0).tolist() == [-1, 1]
    spec = pipeline(ArraySpec((3,), "uint8", 0.0, 255.0), {"step": "center"}).spec.observations["observation"]
    assert spec == ArraySpec((3,), "float32", -1.0, 1.0)


def test_center_needs_bounds(pipeline):
    with pytest.raises(ConfigError, match="it has no lower bound; give the step low and high"):
        pipeline(ArraySpec((3,), "float32"), {"step": "center"})
    with pytest.raises(ConfigError, match="is too wide; give the step low and high"):
        pipeline(ArraySpec((3,), "float32", -3.4e38, 3.4e38), {"step": "center"})


@pytest.mark.row("L08.9", "L10.3")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (LINE, [0, 0.5, 1]),
        (np.uint8([0, 5, 10]), [0, 0.5, 1]),
        (F([7, 7]), [0, 0]),
        (F([0.1, 0.1, 0.1]), [0, 0, 0]),
        (F([-3e38, 0, 3e38]), [0, 0.5, 1]),
    ],
)
def test_normalize(through, given, expected):
    np.testing.assert_allclose(through(given, {"step": "normalize"}), np.float32(expected), atol=1e-7, strict=True)


@pytest.mark.row("L10.1")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (LINE, [-(1.5**0.5), 0, 1.5**0.5]),
        (np.uint8([0, 5, 10]), [-(1.5**0.5), 0, 1.5**0.5]),
        (F([7, 7]), [0, 0]),
        (F([0.1] * 7), [0] * 7),
        (F([1e-30, 3e-30]), [-1, 1]),
    ],
)
def test_standardize(through, given, expected):
    np.testing.assert_allclose(through(given, {"step": "standardize"}), np.float32(expected), rtol=1e-6, strict=True)


@pytest.mark.row("L08.9", "L10.1")
def test_each_row_is_taken_by_itself(pipeline):
    for step, expected in (("normalize", [[0, 1], [0, 1]]), ("standardize", [[-1, 1], [-1, 1]])):
        made = pipeline(ArraySpec((2,), "float32"), {"step": step})
        rows = made.observations({"observation": F([[0, 1], [100, 300]])}, np.ones(2, bool))["observation"]
        assert rows.tolist() == expected


@pytest.mark.row("L08.10")
def test_one_hot(through, pipeline):
    assert through(np.int64(2), {"step": "one_hot", "categories": 4}).tolist() == [0, 0, 1, 0]
    assert through(np.int64(2), {"step": "one_hot"}, low=0, high=3).tolist() == [0, 0, 1, 0]
    assert through(np.int32([5, 7]), {"step": "one_hot"}, low=5, high=7).tolist() == [[1, 0, 0], [0, 0, 1]]
    many = through(np.int32(999_999), {"step": "one_hot", "categories": 1_000_000})  # no table of all by all
    assert np.flatnonzero(many).tolist() == [999_999]
    spec = pipeline(ArraySpec((2,), "int64", 5, 7), {"step": "one_hot"}).spec.observations["observation"]
    assert spec == ArraySpec((2, 3), "float32", 0.0, 1.0)


def test_one_hot_refuses_what_it_cannot_know(pipeline, through):
    with pytest.raises(ConfigError, match="it is not of whole numbers"):
        pipeline(ArraySpec((), "float32"), {"step": "one_hot"})
    with pytest.raises(ConfigError, match="it has no bounds; give the step its number of categories"):
        pipeline(ArraySpec((), "int64", 0), {"step": "one_hot"})
    with pytest.raises(ConfigError, match="4294967296 categories make 8589934592 numbers of it; 16777216 is the most"):
        pipeline(ArraySpec((2,), "int64", -(2.0**31), 2.0**31 - 1), {"step": "one_hot"})
    with pytest.raises(ValueError, match="one_hot: 4 … 4 is not within 0 … 3"):
        through(np.int64(4), {"step": "one_hot", "categories": 4})
