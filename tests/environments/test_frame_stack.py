"""Frame stacks against gymnasium's own, episode by episode."""

import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

from distrl.environments.worlds.toy import StepCounter
from distrl.frames import FrameStack


@pytest.mark.parametrize("size", [1, 3, 5])
def test_stacks_are_gymnasiums_over_several_episodes(size):
    reference = FrameStackObservation(StepCounter(terminate_at_steps=4), size)
    single = StepCounter(terminate_at_steps=4)
    stack, ended = FrameStack(size), False
    seen = stack.push(single.reset()[0][None], np.array([False]))
    expected, _ = reference.reset()
    for _ in range(15):
        np.testing.assert_array_equal(seen[0], expected[:, 0], strict=True)
        if ended:
            observation, ended = single.reset()[0], False
            expected, _ = reference.reset()
            seen = stack.push(observation[None], np.array([True]))
        else:
            observation, _, ended, _, _ = single.step(0)
            expected = reference.step(0)[0]
            seen = stack.push(observation[None], np.array([False]))


def test_environments_begin_on_their_own_and_nothing_is_written_twice():
    stack = FrameStack(2)
    first = stack.push(np.float32([[1], [10]]), np.array([False, False]))
    second = stack.push(np.float32([[2], [20]]), np.array([False, True]))
    assert first.tolist() == [[1, 1], [10, 10]]
    assert second.tolist() == [[1, 2], [20, 20]]
    stack.reset()
    assert stack.push(np.float32([[5], [6]]), np.array([True, False])).tolist() == [[5, 5], [6, 6]]
