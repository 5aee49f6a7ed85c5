"""Steps that move elements about or leave some out, and change none."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distrl.config import preprocessing as steps
from distrl.environments.preprocessing.fit import Fitted, UnfitError
from distrl.types import Array, ArraySpec


def check_quantities(given: ArraySpec, name: str = "it") -> None:
    """Raise UnfitError if these numbers stand for categories, which no step but one_hot and stack takes."""
    if given.categories is not None:
        raise UnfitError(f"{name} is of categories, not of quantities; put one_hot before it")


def cut(step: steps.SliceStep, given: ArraySpec) -> Fitted:
    """``x[low[0]:high[0], low[1]:high[1], …]``; a high of -1 is the end."""
    if not len(step.low) == len(step.high) == len(given.shape):
        raise UnfitError(
            f"low and high have {len(step.low)} and {len(step.high)} numbers; each takes one for each axis"
        )
    ends = [size if high == -1 else high for high, size in zip(step.high, given.shape, strict=True)]
    for axis, (low, high, size) in enumerate(zip(step.low, ends, given.shape, strict=True)):
        if not low < high <= size:
            raise UnfitError(f"{low} … {high - 1} of axis {axis} is nothing that it has")
    # A tuple: a list of slices would be taken for an array of indices.
    window = (slice(None), *(slice(low, high) for low, high in zip(step.low, ends, strict=True)))
    shape = tuple(high - low for low, high in zip(step.low, ends, strict=True))
    return Fitted(replace(given, shape=shape), lambda rows: rows[window])


def move_axis(step: steps.MoveAxisStep, given: ArraySpec) -> Fitted:
    """As `numpy.moveaxis`, axes counted without the batch's."""
    source, destination = axis_of(step.source, given.shape), axis_of(step.destination, given.shape)
    axes = [axis for axis in range(len(given.shape)) if axis != source]
    axes.insert(destination, source)
    return _transposed(axes, given)


def transpose(step: steps.TransposeStep, given: ArraySpec) -> Fitted:
    """As `numpy.transpose`, axes counted without the batch's."""
    if sorted(step.axes) != [*range(len(given.shape))]:
        raise UnfitError(f"axes: {[*step.axes]} is no order of its axes")
    return _transposed(step.axes, given)


def _transposed(axes: Sequence[int], given: ArraySpec) -> Fitted:
    batched = (0, *(1 + axis for axis in axes))
    shape = tuple(given.shape[axis] for axis in axes)
    return Fitted(replace(given, shape=shape), lambda rows: rows.transpose(batched))


def squeeze(step: steps.SqueezeStep, given: ArraySpec) -> Fitted:
    """Drop one axis, or all, that have one element."""
    if step.axis is None:
        return _reshaped(tuple(size for size in given.shape if size != 1), given)
    axis = axis_of(step.axis, given.shape)
    if given.shape[axis] != 1:
        raise UnfitError(f"axis {step.axis} has {given.shape[axis]} elements")
    return _reshaped(given.shape[:axis] + given.shape[axis + 1 :], given)


def reshape(step: steps.ReshapeStep, given: ArraySpec) -> Fitted:
    """Another shape; -1 is the rest."""
    size = math.prod(given.shape)
    known = math.prod(extent for extent in step.shape if extent != -1)
    if size % known or (-1 not in step.shape and size != known):
        raise UnfitError(f"its {size} elements do not fill the shape {[*step.shape]}")
    return _reshaped(tuple(size // known if extent == -1 else extent for extent in step.shape), given)


def flatten(step: steps.FlattenStep, given: ArraySpec) -> Fitted:
    """One axis for all elements, the last axis fastest."""
    return _reshaped((math.prod(given.shape),), given)


def _reshaped(shape: tuple[int, ...], given: ArraySpec) -> Fitted:
    return Fitted(replace(given, shape=shape), lambda rows: rows.reshape(len(rows), *shape))


def select(step: steps.SelectStep, given: ArraySpec) -> Fitted:
    """Parts along an axis, in the order of `keep`, or all but those of `discard`."""
    axis = axis_of(step.axis, given.shape)
    size = given.shape[axis]
    if step.names is not None and len(step.names) != size:
        raise UnfitError(f"axis {step.axis} has {size} parts, and there are {len(step.names)} names")
    named = {name: index for index, name in enumerate(step.names or ())}
    given_parts = [named[part] if isinstance(part, str) else part for part in step.keep or step.discard or ()]
    for part in given_parts:
        if not -size <= part < size:
            raise UnfitError(f"axis {step.axis} has no part {part}")
    parts = [part % size for part in given_parts]
    if step.discard is not None:
        parts = [part for part in range(size) if part not in parts]
    if not parts:
        raise UnfitError("nothing is left")
    shape = (*given.shape[:axis], len(parts), *given.shape[axis + 1 :])
    return Fitted(replace(given, shape=shape), lambda rows: np.take(rows, parts, axis=axis + 1))


def joined(step: steps.ConcatStep, given: Sequence[ArraySpec]) -> ArraySpec:
    """The spec of several arrays joined along an axis; other axes are equal. The dtype is one that holds them all."""
    first = given[0]
    axis = axis_of(step.axis, first.shape)
    rest = {spec.shape[:axis] + spec.shape[axis + 1 :] for spec in given if len(spec.shape) == len(first.shape)}
    if len(rest) > 1 or any(len(spec.shape) != len(first.shape) for spec in given):
        raise UnfitError(f"shapes {', '.join(str(spec.shape) for spec in given)} differ beside axis {step.axis}")
    extent = sum(spec.shape[axis] for spec in given)
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    vocabularies = {spec.vocabulary for spec in given}
    if vocabularies != {None} and (len(vocabularies) > 1 or len(shape) != 1):
        raise UnfitError("tokens go along one axis with tokens of the same vocabulary; put to_dtype: float32 before it")
    lows = [spec.low for spec in given if spec.low is not None]
    highs = [spec.high for spec in given if spec.high is not None]
    return ArraySpec(
        shape,
        np.result_type(*(spec.dtype for spec in given)).name,
        min(lows) if len(lows) == len(given) else None,
        max(highs) if len(highs) == len(given) else None,
        vocabulary=first.vocabulary,
    )


def join(arrays: Sequence[Array], axis: int) -> Array:
    """Arrays [B, ...] along an axis that is counted without the batch's."""
    return np.concatenate(arrays, axis if axis < 0 else axis + 1)


def stacked(step: steps.StackStep, given: ArraySpec) -> ArraySpec:
    """The spec of a stack: `frames` equal parts along the last axis, the newest at its end.

    [height, width] -> [height, width, frames]; [..., channels] -> [..., frames * channels]; a number -> [frames].
    """
    *rest, channels = frame_shape(given)
    return replace(given, shape=(*rest, step.frames * channels), frames=step.frames)


def frame_shape(given: ArraySpec) -> tuple[int, ...]:
    """With an axis for frames to go along: a last one for numbers and for [height, width]."""
    return (*given.shape, 1) if len(given.shape) in (0, 2) else given.shape


def axis_of(axis: int, shape: tuple[int, ...]) -> int:
    """The axis counted from 0, without the batch's."""
    if not -len(shape) <= axis < len(shape):
        raise UnfitError(f"there is no axis {axis}")
    return axis % len(shape)
