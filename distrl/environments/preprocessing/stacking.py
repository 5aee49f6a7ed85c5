"""The newest frames of an episode side by side, which make motion visible to a policy without memory."""

from dataclasses import replace

from distrl.config.observation_steps import StackStep
from distrl.environments.frame_stack import FrameStack
from distrl.environments.preprocessing.fit import UnfitError
from distrl.types import Array, ArraySpec, BoolArray


def stacked(step: StackStep, given: ArraySpec) -> ArraySpec:
    """The spec of a stack: `frames` equal parts along the last axis, the newest at its end.

    [height, width] -> [height, width, frames]; [..., channels] -> [..., frames * channels]; a number -> [frames].
    """
    if given.frames > 1:
        raise UnfitError("it is stacked already")
    *rest, channels = _frame_shape(given)
    return replace(given, shape=(*rest, step.frames * channels), frames=step.frames)


class Stacking:
    """Stacks the newest frames of each of B environments.

    Args:
        step: How many frames.
        given: One frame.
    """

    def __init__(self, step: StackStep, given: ArraySpec) -> None:
        self._frame_shape = _frame_shape(given)
        self._stack = FrameStack(step.frames)
        self.reset()

    def reset(self) -> None:
        self._is_empty = True

    def push(self, newest: Array, valid: BoolArray) -> Array:
        """Add the newest frames.

        Args:
            newest: [B, ...].
            valid: bool [B]. False where an episode begins: its first frame fills the stack.

        Returns:
            [B, ..., frames * channels], fresh.
        """
        frame = newest.reshape(len(newest), *self._frame_shape)
        if self._is_empty:
            self._is_empty = False
            return self._stack.reset(frame)
        return self._stack.push(frame, ~valid)


def _frame_shape(given: ArraySpec) -> tuple[int, ...]:
    """With an axis for frames to go along: a last one for numbers and for [height, width]."""
    return (*given.shape, 1) if len(given.shape) in (0, 2) else given.shape
