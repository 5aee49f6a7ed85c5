"""Stacks of frames: what the learner makes again is what the actor saw, bit for bit."""

import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given
from hypothesis import strategies as st

from distrl import frames
from distrl.environments.worlds.toy import StepCounter
from distrl.frames import FrameStack

CASES = st.fixed_dictionaries(
    {
        "length": st.integers(1, 7),  # T
        "count": st.integers(1, 3),  # N
        "frames": st.sampled_from([1, 2, 3, 4, 5, 8]),  # n, also beyond T
        "shape": st.sampled_from([(1,), (2,), (2, 3, 1), (2, 3, 2)]),
        "dtype": st.sampled_from(["uint8", "int8", "float32", "int64"]),
        "ends": st.sampled_from([0.0, 0.2, 0.7]),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def slow_stack(episode, n):
    """The last n frames of an episode so far, the first one repeated before its beginning."""
    return np.concatenate([episode[max(0, len(episode) - n + k)] for k in range(n)], axis=-1)


def play(case):
    """An unroll out of a longer random history: single frames [T + n, N, …], valid [T, N], and the stacks seen."""
    n, length, count = case["frames"], case["length"], case["count"]
    random = np.random.default_rng(case["seed"])
    before = int(random.integers(0, 4))  # steps of the episode before row 0
    valid = random.random((length, count)) >= case["ends"]
    rows = np.empty((length + n, count, *case["shape"]), case["dtype"])
    seen = np.empty((length + 1, count, *case["shape"][:-1], n * case["shape"][-1]), case["dtype"])
    for environment in range(count):
        episode = [random.integers(0, 256, case["shape"]).astype(case["dtype"]) for _ in range(before + 1)]
        seen[0, environment] = slow_stack(episode, n)
        for k in range(n):
            rows[k, environment] = episode[max(0, len(episode) - n + k)]
        for row in range(length):
            frame = random.integers(0, 256, case["shape"]).astype(case["dtype"])
            episode = [*episode, frame] if valid[row, environment] else [frame]
            rows[n + row, environment] = frame
            seen[row + 1, environment] = slow_stack(episode, n)
    return rows, valid, seen


@given(CASES)
def test_rebuilt_stacks_are_those_that_were_seen(case):
    rows, valid, seen = play(case)
    rows.flags.writeable = False  # as decoded ones are
    np.testing.assert_array_equal(frames.rebuilt(rows, valid, case["frames"]), seen, strict=True)


@given(CASES)
def test_an_actors_stacks_are_the_slow_ones(case):
    n = case["frames"]
    rows, valid, seen = play(case)
    stacks = frames.joined(rows[:n])
    np.testing.assert_array_equal(stacks, seen[0], strict=True)
    for row in range(case["length"]):
        before = stacks.copy()
        after = frames.advanced(stacks, rows[n + row], ~valid[row], n)
        np.testing.assert_array_equal(stacks, before)
        np.testing.assert_array_equal(after, seen[row + 1], strict=True)
        np.testing.assert_array_equal(frames.newest(after, n), rows[n + row], strict=True)
        stacks = after


@given(CASES)
def test_split_undoes_joined(case):
    n = case["frames"]
    rows, _, _ = play(case)
    np.testing.assert_array_equal(frames.split(frames.joined(rows[:n]), n), rows[:n], strict=True)


def test_by_hand():
    stacks = np.int32([[1, 10, 2, 20, 3, 30], [4, 40, 5, 50, 6, 60]])  # three frames of two numbers
    assert frames.split(stacks, 3)[:, 0].tolist() == [[1, 10], [2, 20], [3, 30]]
    assert frames.newest(stacks, 3).tolist() == [[3, 30], [6, 60]]
    after = frames.advanced(stacks, np.int32([[7, 70], [8, 80]]), np.array([False, True]), 3)
    assert after.tolist() == [[2, 20, 3, 30, 7, 70], [8, 80, 8, 80, 8, 80]]
    assert frames.filled(np.int32([[1, 2]]), 2).tolist() == [[1, 2, 1, 2]]


def test_what_is_not_contiguous_is_refused():
    stacks = np.zeros((2, 3, 4), np.uint8)
    with pytest.raises(AssertionError):
        frames.advanced(stacks, stacks[..., :1], np.zeros(2, bool), 4, out=np.zeros((3, 2, 4), np.uint8).swapaxes(0, 1))


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
