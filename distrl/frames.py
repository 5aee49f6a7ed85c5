"""Stacks of frames: n observations one after the other along the last axis, the newest at its end.

Actors make stacks and ship single frames; the learner makes the same stacks of them again. Both call `advanced`, so
that what is learned from is what was acted on.
"""

import numpy as np

from distrl.types import Array, BoolArray


def joined(frames: Array) -> Array:
    """The frames of a first stack, in the order of time, as that stack.

    Args:
        frames: [n, B, ..., C], the newest last.

    Returns:
        [B, ..., n * C], contiguous.
    """
    count, channels = len(frames), frames.shape[-1]
    stacks = np.empty((*frames.shape[1:-1], count * channels), frames.dtype)
    for position, frame in enumerate(frames):
        stacks[..., position * channels : (position + 1) * channels] = frame
    return stacks


def split(stacks: Array, frames: int) -> Array:
    """The frames of stacks, in the order of time: the inverse of `joined`.

    Args:
        stacks: [B, ..., n * C].
        frames: n.

    Returns:
        [n, B, ..., C].
    """
    return np.moveaxis(stacks.reshape(*stacks.shape[:-1], frames, -1), -2, 0)


def filled(frame: Array, frames: int) -> Array:
    """Stacks in which every frame is the same, as at the beginning of an episode: [B, ..., C] -> [B, ..., n * C]."""
    return joined(np.broadcast_to(frame, (frames, *frame.shape)))


def newest(stacks: Array, frames: int) -> Array:
    """The newest frame of each stack: [..., n * C] -> [..., C], a view."""
    return stacks[..., stacks.shape[-1] - stacks.shape[-1] // frames :]


def advanced(stacks: Array, frame: Array, begins: BoolArray, frames: int, out: Array | None = None) -> Array:
    """The stacks of the next step.

    Args:
        stacks: [B, ..., n * C], of this step, contiguous.
        frame: [B, ..., C], the next.
        begins: bool [B]. Where a new episode begins with `frame`, which then fills the whole stack.
        frames: n.
        out: [B, ..., n * C], contiguous, to write to; None: a fresh array.

    Returns:
        `out`.
    """
    result = np.empty_like(stacks, order="C") if out is None else out
    channels = frame.shape[-1]
    assert stacks.flags.c_contiguous
    assert result.flags.c_contiguous  # else `reshape` would write to a copy
    # One copy of all bytes, moved by one frame: whatever it drags over a stack's end is overwritten by the newest.
    # Moving each stack by itself takes ten times as long, as its last axis is a few bytes.
    result.reshape(-1)[:-channels] = stacks.reshape(-1)[channels:]
    result[..., -channels:] = frame
    if begins.any():
        result[begins] = filled(frame[begins], frames)
    return result


def rebuilt(rows: Array, valid: BoolArray, frames: int) -> Array:
    """The stacks that an unroll's single frames came from.

    Args:
        rows: [T + n, N, ..., C]. The older n - 1 frames of row 0's stack, then the newest frame of every row.
        valid: bool [T, N]. Where ``valid[t]`` is False, an episode begins at row t + 1.
        frames: n.

    Returns:
        [T + 1, N, ..., n * C].
    """
    length = len(valid)
    stacks = np.empty((length + 1, *rows.shape[1:-1], frames * rows.shape[-1]), rows.dtype)
    stacks[0] = joined(rows[:frames])
    for row in range(length):
        advanced(stacks[row], rows[frames + row], ~valid[row], frames, out=stacks[row + 1])
    return stacks
