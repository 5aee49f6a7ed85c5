"""Stacks of frames: n observations along the last axis, the newest last.

Actors stack frames and ship single ones; the learner rebuilds the stacks. Both call `advanced`, so that the learner
trains on the stacks that the actor acted on.
"""

from typing import Any

import numpy as np

from distrl.types import Array, BoolArray, IntArray

_NUMBERS: dict[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}
"""Frames in a stack of single bytes -> a number of as many bytes. The oldest frame is its lowest byte."""


def joined(frames: Array, out: Array | None = None) -> Array:
    """Stack frames, oldest first.

    Args:
        frames: [n, B, ..., C], the newest last.
        out: [B, ..., n * C]. The result; None: a new, contiguous array.

    Returns:
        [B, ..., n * C].
    """
    count, channels = len(frames), frames.shape[-1]
    stacks = np.empty((*frames.shape[1:-1], count * channels), frames.dtype) if out is None else out
    for position, frame in enumerate(frames):
        stacks[..., position * channels : (position + 1) * channels] = frame
    return stacks


def split(stacks: Array, frames: int) -> Array:
    """Invert `joined`: [B, ..., n * C] -> [n, B, ..., C], in the order of time."""
    return np.moveaxis(stacks.reshape(*stacks.shape[:-1], frames, -1), -2, 0)


def filled(frame: Array, frames: int) -> Array:
    """Stack one frame n times, as at the beginning of an episode: [B, ..., C] -> [B, ..., n * C]."""
    return joined(np.broadcast_to(frame, (frames, *frame.shape)))


def newest(stacks: Array, frames: int) -> Array:
    """Return a view of the newest frame of each stack: [..., n * C] -> [..., C]."""
    return stacks[..., stacks.shape[-1] - stacks.shape[-1] // frames :]


def advanced(
    stacks: Array,
    frame: Array,
    begins: BoolArray,
    frames: int,
    out: Array | None = None,
    spare: Array | None = None,
) -> Array:
    """Return the stacks of the next step.

    Args:
        stacks: [B, ..., n * C]. The stacks of this step, contiguous.
        frame: [B, ..., C]. The next frame.
        begins: bool [B]. True where a new episode begins with `frame`, which then fills the whole stack.
        frames: n.
        out: [B, ..., n * C]. The contiguous result; None: a new array.
        spare: Numbers [B, ..., 1] of `_NUMBERS` of any content, for a faster way; None: the way for all stacks.
    """
    result = np.empty_like(stacks, order="C") if out is None else out
    channels = frame.shape[-1]
    assert stacks.flags.c_contiguous
    assert result.flags.c_contiguous  # else `reshape` would write to a copy
    if spare is None:
        # One copy of all bytes, moved by one frame; the newest frame overwrites what crosses the end of a stack. Moving
        # each stack by itself takes ten times as long, as its last axis has few bytes.
        result.reshape(-1)[:-channels] = stacks.reshape(-1)[channels:]
        result[..., -channels:] = frame
    else:
        # NumPy computes many numbers at a time, but writes every n-th byte one by one.
        np.copyto(spare, frame.view(np.uint8))
        np.left_shift(spare, 8 * (frames - 1), out=spare)
        numbers = np.right_shift(stacks.view(spare.dtype), 8, out=result.view(spare.dtype))
        np.bitwise_or(numbers, spare, out=numbers)
    if begins.any():
        result[begins] = filled(frame[begins], frames)
    return result


def rebuilt(rows: Array, valid: BoolArray, frames: int, out: Array | None = None) -> Array:
    """Rebuild the stacks of an unroll from its single frames.

    Args:
        rows: [T + n, N, ..., C]. The older n - 1 frames of row 0's stack, then the newest frame of every row.
        valid: bool [T, N]. Where ``valid[t]`` is False, an episode begins at row t + 1.
        frames: n.
        out: [T + 1, N, ..., n * C]. The result, whose every row is contiguous; None: a new array.

    Returns:
        [T + 1, N, ..., n * C].
    """
    length = len(valid)
    shape = (length + 1, *rows.shape[1:-1], frames * rows.shape[-1])
    stacks = np.empty(shape, rows.dtype) if out is None else out
    joined(rows[:frames], stacks[0])
    number = _NUMBERS.get(frames) if rows.shape[-1] * rows.itemsize == 1 else None
    spare = None if number is None else np.empty((*shape[1:-1], 1), number)
    for row in range(length):
        advanced(stacks[row], rows[frames + row], ~valid[row], frames, stacks[row + 1], spare)
    return stacks


def reach(valid: BoolArray, frames: int) -> IntArray:
    """Return how many rows back the stack of each row reaches, at most n - 1: to the beginning of its episode.

    The oldest frame that it reaches stands in all older places. The stack of row 0 is known, and counts as a whole one.

    Args:
        valid: bool [T, N], as in `rebuilt`.
        frames: n.

    Returns:
        int32 [T + 1, N].
    """
    rows = np.full((len(valid) + 1, valid.shape[1]), frames - 1, np.int32)
    for row, goes_on in enumerate(valid):
        rows[row + 1] = np.where(goes_on, np.minimum(rows[row] + 1, frames - 1), 0)
    return rows


class FrameStack:
    """The newest `size` observations of B rows, stacked along the last axis, the newest at its end.

    The first observation of an episode fills the whole stack, as with padding "reset" of gymnasium's
    `FrameStackObservation`. Returned arrays are fresh: they are never written to again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._stacks: Array | None = None

    def reset(self) -> None:
        """Forget everything; the next observations fill their stacks."""
        self._stacks = None

    def push(self, observations: Array, begins: BoolArray) -> Array:
        """Add an observation of every row, [B, ..., C] -> [B, ..., size * C]; episodes begin where `begins`, [B]."""
        if self._stacks is None:
            self._stacks = filled(observations, self._size)
        else:
            self._stacks = advanced(self._stacks, observations, begins, self._size)
        return self._stacks
