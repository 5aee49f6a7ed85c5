import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import ArraySpec

GOES_ON, BEGINS = np.ones(1, bool), np.zeros(1, bool)


def shown(made, *values, valid=GOES_ON):
    return made.observations({"observation": np.float32([[value] for value in values])}, valid)["observation"].tolist()


@pytest.mark.row("D109", "L08.11", "L10.6", "T21")
def test_the_first_frame_fills_the_stack_and_the_newest_is_last(pipeline):
    made = pipeline(ArraySpec((1,), "float32"), {"step": "stack", "frames": 4})
    assert [shown(made, 1), shown(made, 2), shown(made, 3)] == [[[1, 1, 1, 1]], [[1, 1, 1, 2]], [[1, 1, 2, 3]]]
    assert shown(made, 9, valid=BEGINS) == [[9, 9, 9, 9]]
    assert shown(made, 8) == [[9, 9, 9, 8]]
    made.reset()
    assert shown(made, 7) == [[7, 7, 7, 7]]


@pytest.mark.row("L07", "L08.11", "L10.6")
def test_reset_clears_the_stacks_of_every_observation(pipeline):
    specs = {"a": ArraySpec((), "float32"), "b": ArraySpec((1,), "int64")}
    made = pipeline(specs, {"step": "stack", "frames": 2})

    def after(value):
        out = made.observations({"a": np.float32([value]), "b": np.int64([[value]])}, GOES_ON)
        assert {name: array.dtype.name for name, array in out.items()} == {"a": "float32", "b": "int64"}
        return out["a"].tolist(), out["b"].tolist()

    assert [after(1), after(2)] == [([[1, 1]], [[1, 1]]), ([[1, 2]], [[1, 2]])]
    made.reset()
    assert after(3) == ([[3, 3]], [[3, 3]])


def test_one_row_begins_anew_and_the_others_go_on(pipeline):
    made = pipeline(ArraySpec((1,), "float32"), {"step": "stack", "frames": 2})
    shown(made, 1, 10, valid=np.ones(2, bool))
    assert shown(made, 2, 20, valid=np.array([True, False])) == [[1, 2], [20, 20]]
    assert shown(made, 3, 30, valid=np.ones(2, bool)) == [[2, 3], [20, 30]]


@pytest.mark.row("D109")
@pytest.mark.parametrize(
    ("shape", "stacked"),
    [((), (4,)), ((3,), (12,)), ((5, 6), (5, 6, 4)), ((5, 6, 3), (5, 6, 12)), ((2, 5, 6, 3), (2, 5, 6, 12))],
)
def test_frames_are_equal_parts_of_the_last_axis(pipeline, shape, stacked):
    made = pipeline(ArraySpec(shape, "uint8", 0.0, 255.0), {"step": "stack", "frames": 4})
    assert made.spec.observations["observation"] == ArraySpec(stacked, "uint8", 0.0, 255.0, frames=4)
    frames = np.random.default_rng(0).integers(0, 256, (4, 2, *shape), np.uint8)  # [time, B, ...]
    for frame in frames:
        out = made.observations({"observation": frame}, np.ones(2, bool))["observation"]
    parts = np.split(out, 4, axis=-1)
    for part, frame in zip(parts, frames, strict=True):
        np.testing.assert_array_equal(part.reshape(frame.shape), frame, strict=True)


@pytest.mark.row("D109")
@pytest.mark.parametrize("after", [{"step": "flatten"}, {"step": "stack"}, {"step": "concat"}])
def test_nothing_comes_after_the_stack(pipeline, after):
    with pytest.raises(ConfigError, match=r"preprocessing\[1\] .*stack is the last step of its observation"):
        pipeline(ArraySpec((1,), "float32"), {"step": "stack"}, after)


def test_what_was_handed_out_does_not_change(pipeline):
    made = pipeline(ArraySpec((1,), "float32"), {"step": "stack", "frames": 2})
    first = made.observations({"observation": np.float32([[1]])}, GOES_ON)["observation"]
    shown(made, 2)
    shown(made, 3, valid=BEGINS)
    assert first.tolist() == [[1, 1]]


def test_a_buffer_that_is_written_again_does_no_harm(pipeline):
    made = pipeline(ArraySpec((1,), "float32"), {"step": "stack", "frames": 2})
    buffer = np.float32([[1]])
    made.observations({"observation": buffer}, GOES_ON)
    buffer[:] = 2
    assert made.observations({"observation": buffer}, GOES_ON)["observation"].tolist() == [[1, 2]]
