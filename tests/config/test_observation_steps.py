import math

import pytest
from pydantic import ValidationError

from distrl.config.preprocessing import (
    BinaryStep,
    CenterStep,
    ClipStep,
    ConcatStep,
    GrayscaleStep,
    ReshapeStep,
    ResizeStep,
    ScaleStep,
    SelectStep,
    SliceStep,
    StackStep,
)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: ResizeStep(width=3), "either width and height, or factor"),
        (lambda: ResizeStep(width=3, height=3, factor=0.5), "either width and height, or factor"),
        (lambda: ResizeStep(), "either width and height, or factor"),
        (lambda: ResizeStep(factor=math.inf), "less than or equal to 1000|finite number"),
        (lambda: ClipStep(low=-math.inf), "finite number"),
        (lambda: BinaryStep(threshold=math.nan), "finite number"),
        (lambda: GrayscaleStep(weights=(math.inf,)), "finite number"),
        (lambda: ScaleStep(multiply=math.inf), "finite number"),
        (lambda: ConcatStep(to=""), "to\n.*should match pattern"),
        (lambda: ConcatStep(to="a/b"), "to\n.*should match pattern"),
        (lambda: BinaryStep(keep_axis=True), "keep_axis is of sum_channels: true"),
        (lambda: ClipStep(), "clip needs low, high or both"),
        (lambda: ClipStep(low=2, high=1), "low: 2.0 is above high: 1.0"),
        (lambda: CenterStep(low=1, high=1), "low: 1.0 is not below high: 1.0"),
        (lambda: ScaleStep(), "either multiply or divide"),
        (lambda: ScaleStep(multiply=1, divide=1), "either multiply or divide"),
        (lambda: ReshapeStep(shape=(-1, -1)), "at most one -1"),
        (lambda: ReshapeStep(shape=(0, 2)), "numbers from 1"),
        (lambda: SelectStep(), "either keep or discard"),
        (lambda: SelectStep(keep=("x",), discard=("y",)), "either keep or discard"),
        (lambda: SelectStep(names=("x",), keep=("y",)), "'y' is not in names"),
        (lambda: SelectStep(discard=("y",)), "'y' is not in names"),
        (lambda: SelectStep(keep=()), "at least 1 item"),
        (lambda: GrayscaleStep(weights=()), "at least 1 item"),
        (lambda: SliceStep(low=(0,), high=(-2,)), "greater than or equal to -1"),
        (lambda: StackStep(frames=1), "greater than or equal to 2"),
    ],
)
def test_what_makes_no_sense_is_refused(make, why):
    with pytest.raises(ValidationError, match=why):
        make()


@pytest.mark.row("D112")
@pytest.mark.parametrize("factor", [{"multiply": 0}, {"divide": 0}])
def test_a_factor_of_zero_is_refused(factor):
    with pytest.raises(ValueError, match="scale by 0 leaves nothing"):
        ScaleStep(**factor)


@pytest.mark.row("D111", "T09")
def test_a_limit_of_zero_is_a_limit():
    assert (ClipStep(high=0).low, ClipStep(high=0).high) == (None, 0.0)
