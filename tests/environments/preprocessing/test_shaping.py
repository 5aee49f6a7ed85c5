import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import ArraySpec

IMAGE = np.arange(100).reshape(10, 10)


@pytest.mark.row("D102", "T09")
def test_slice_with_minus_one_for_the_end(through):
    """The ancestor indexed with a list of slices, which NumPy takes for an array of indices."""
    cut = through(IMAGE, {"step": "slice", "low": [2, 2], "high": [-1, 5]})
    np.testing.assert_array_equal(cut, IMAGE[2:, 2:5], strict=True)
    assert cut.shape == (8, 3)


@pytest.mark.parametrize(
    ("low", "high", "why"),
    [
        ([2], [-1], r"int64 \(10, 10\): low and high have 1 and 1 numbers; each takes one for each axis"),
        ([2, 0], [-1, 11], "0 … 10 of axis 1 is nothing that it has"),
        ([5, 0], [5, -1], "5 … 4 of axis 0 is nothing that it has"),
    ],
)
def test_a_slice_of_nothing_is_refused(pipeline, low, high, why):
    with pytest.raises(ConfigError, match=why):
        pipeline(ArraySpec((10, 10), "int64"), {"step": "slice", "low": low, "high": high})


@pytest.mark.row("D103")
def test_move_axis(through):
    image = np.random.default_rng(0).random((3, 84, 80))
    moved = through(image, {"step": "move_axis", "source": 0, "destination": -1})
    np.testing.assert_array_equal(moved, np.moveaxis(image, 0, -1), strict=True)
    assert moved.shape == (84, 80, 3)
    back = through(moved, {"step": "move_axis", "source": -1, "destination": 0})
    np.testing.assert_array_equal(back, image, strict=True)
    with pytest.raises(ConfigError, match="there is no axis 3"):
        through(image, {"step": "move_axis", "source": 3, "destination": 0})


def test_transpose(through):
    image = np.random.default_rng(0).random((3, 4, 5))
    np.testing.assert_array_equal(through(image, {"step": "transpose", "axes": [2, 0, 1]}), image.transpose(2, 0, 1))
    with pytest.raises(ConfigError, match=r"axes: \[0, 0, 1\] is no order of its axes"):
        through(image, {"step": "transpose", "axes": [0, 0, 1]})


@pytest.mark.row("D108")
def test_squeeze(through):
    assert through(np.zeros((84, 84, 1)), {"step": "squeeze"}).shape == (84, 84)
    assert through(np.zeros((1, 84, 1)), {"step": "squeeze", "axis": 0}).shape == (84, 1)
    with pytest.raises(ConfigError, match="axis 1 has 84 elements"):
        through(np.zeros((1, 84, 1)), {"step": "squeeze", "axis": 1})


@pytest.mark.row("L08.10")
def test_reshape_and_flatten_keep_the_order_of_elements(through):
    given = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(through(given, {"step": "reshape", "shape": [2, -1]}), given.reshape(2, 6))
    np.testing.assert_array_equal(through(given, {"step": "flatten"}), np.arange(12))
    assert through(np.float64(3), {"step": "flatten"}).tolist() == [3]
    with pytest.raises(ConfigError, match=r"its 12 elements do not fill the shape \[5, -1\]"):
        through(given, {"step": "reshape", "shape": [5, -1]})
    with pytest.raises(ConfigError, match=r"do not fill the shape \[6\]"):
        through(given, {"step": "reshape", "shape": [6]})


@pytest.mark.row("D105")
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"names": ["x", "y", "z"], "keep": ["x", "z"]}, [10, 30]),
        ({"names": ["x", "y", "z"], "keep": ["z", "x"]}, [30, 10]),
        ({"names": ["x", "y", "z"], "discard": ["x"]}, [20, 30]),
        ({"keep": [0, -1]}, [10, 30]),
        ({"names": ["x", "y", "z"], "discard": ["x", 2]}, [20]),
    ],
)
def test_select_parts_by_name_or_index(through, how, expected):
    assert through(np.int64([10, 20, 30]), {"step": "select", **how}).tolist() == expected


def test_select_along_another_axis(through):
    given = np.arange(6).reshape(3, 2)
    assert through(given, {"step": "select", "keep": [2, 0], "axis": 0}).tolist() == [[4, 5], [0, 1]]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"names": ["x"], "keep": ["x"]}, "axis -1 has 3 parts, and there are 1 names"),
        ({"keep": [3]}, "axis -1 has no part 3"),
        ({"discard": [0, 1, 2]}, "nothing is left"),
    ],
)
def test_parts_that_are_not_there_are_refused(pipeline, how, why):
    with pytest.raises(ConfigError, match=why):
        pipeline(ArraySpec((3,), "float32"), {"step": "select", **how})


@pytest.mark.row("L08.13")
def test_concat(pipeline):
    given = {
        "a": ArraySpec((2,), "float32", 0.0, 1.0),
        "other": ArraySpec((1,), "uint8"),
        "b": ArraySpec((3,), "float64", -1.0, 5.0),
    }
    made = pipeline(given, {"step": "concat", "of": ["b", "a"], "to": "both"})
    assert list(made.spec.observations.items()) == [
        ("other", ArraySpec((1,), "uint8")),
        ("both", ArraySpec((5,), "float64", -1.0, 5.0)),
    ]
    out = made.observations(
        {"a": np.float32([[1, 2]]), "other": np.uint8([[9]]), "b": np.float64([[3, 4, 5]])}, np.ones(1, bool)
    )
    assert list(out) == ["other", "both"]
    np.testing.assert_array_equal(out["both"], np.float64([[3, 4, 5, 1, 2]]), strict=True)


def test_concat_of_all_along_another_axis(pipeline):
    given = {"a": ArraySpec((1, 2), "uint8", 0.0, 9.0), "b": ArraySpec((2, 2), "uint8")}
    made = pipeline(given, {"step": "concat", "axis": 0})
    assert made.spec.observations == {"observation": ArraySpec((3, 2), "uint8")}
    out = made.observations({"a": np.uint8([[[1, 2]]]), "b": np.uint8([[[3, 4], [5, 6]]])}, np.ones(1, bool))
    assert out["observation"].tolist() == [[[1, 2], [3, 4], [5, 6]]]


@pytest.mark.row("L08.13")
def test_concat_keeps_tokens_or_refuses_to(pipeline):
    text = ArraySpec((2,), "int32", 0.0, 9.0, vocabulary=10)
    made = pipeline({"a": text, "b": text}, {"step": "concat"})
    assert made.spec.observations == {"observation": ArraySpec((4,), "int32", 0.0, 9.0, vocabulary=10)}
    for other in (ArraySpec((2,), "int32", 0.0, 9.0), ArraySpec((2,), "int32", 0.0, 6.0, vocabulary=7)):
        with pytest.raises(ConfigError, match="observations a, b: tokens go along one axis with tokens of the same"):
            pipeline({"a": text, "b": other}, {"step": "concat"})


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"of": ["a", "b"]}, r"observations a, b: shapes \(2,\), \(1, 2\) differ beside axis -1"),
        ({"of": ["a", "a"]}, "one is there twice"),
        ({"of": ["a", "c"]}, "there is no observation 'c'; there are a, b"),
        ({"of": ["a"], "to": "b"}, "observations a: there is another observation 'b'"),
        ({"of": ["a"], "axis": 1}, "there is no axis 1"),
    ],
)
def test_what_does_not_go_together_is_refused(pipeline, step, why):
    given = {"a": ArraySpec((2,), "float32"), "b": ArraySpec((1, 2), "float32")}
    with pytest.raises(ConfigError, match=why):
        pipeline(given, {"step": "concat", **step})
