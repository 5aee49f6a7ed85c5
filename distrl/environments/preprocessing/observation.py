"""Table of the steps for single observations; stacks, which have a state, are in `stacking.py`."""

from collections.abc import Callable, Mapping
from typing import Any

from distrl.config.observation_steps import (
    BinaryStep,
    CenterStep,
    ClipStep,
    CropStep,
    FlattenStep,
    GrayscaleStep,
    MoveAxisStep,
    NormalizeStep,
    OneHotStep,
    ReshapeStep,
    ResizeStep,
    ScaleStep,
    SelectStep,
    SliceStep,
    SqueezeStep,
    StandardizeStep,
    ToDtypeStep,
    ToUint8Step,
    TransposeStep,
)
from distrl.environments.preprocessing import image, numeric, shaping
from distrl.environments.preprocessing.fit import Fitted
from distrl.types import ArraySpec

FITS: Mapping[type[Any], Callable[[Any, ArraySpec], Fitted]] = {
    CropStep: image.crop,
    ResizeStep: image.resize,
    GrayscaleStep: image.grayscale,
    BinaryStep: image.binary,
    ClipStep: numeric.clip,
    ScaleStep: numeric.scale,
    ToDtypeStep: numeric.to_dtype,
    ToUint8Step: numeric.to_uint8,
    CenterStep: numeric.center,
    NormalizeStep: numeric.normalize,
    StandardizeStep: numeric.standardize,
    OneHotStep: numeric.one_hot,
    SliceStep: shaping.cut,
    MoveAxisStep: shaping.move_axis,
    TransposeStep: shaping.transpose,
    SqueezeStep: shaping.squeeze,
    ReshapeStep: shaping.reshape,
    FlattenStep: shaping.flatten,
    SelectStep: shaping.select,
}
"""Step -> function of the step and the array that it is given."""
