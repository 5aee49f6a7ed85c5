"""Transitions over several steps, against a table by hand and a twin that walks step by step."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distrl.replay.n_step import n_step_transitions

PLAIN, TERMINATED, LOST_LIFE, TRUNCATED = range(4)


def rows_of(kinds):
    """Arrays [T, B] of environments whose steps have these kinds; a row that is not valid follows where one ended."""
    length = len(kinds[0])
    rewards = np.zeros((length, len(kinds)), np.float32)
    terminated, truncated = np.zeros(rewards.shape, np.bool_), np.zeros(rewards.shape, np.bool_)
    valid = np.ones(rewards.shape, np.bool_)
    for b, column in enumerate(kinds):
        over = False
        for t, kind in enumerate(column):
            if over:
                valid[t, b], over = False, False
                continue
            rewards[t, b] = t + 1 + 10 * b
            terminated[t, b] = kind in (TERMINATED, LOST_LIFE)
            truncated[t, b] = kind == TRUNCATED
            over = kind in (TERMINATED, TRUNCATED)
    return rewards, terminated, truncated, valid


def slow(rewards, terminated, truncated, valid, discount, n):
    """One row after the other, one step after the other."""
    length, environments = rewards.shape
    out = [np.zeros(rewards.shape, dtype) for dtype in (np.float64, bool, bool, np.int32)]
    for b in range(environments):
        for t in range(length):
            if not valid[t, b]:
                continue
            total, k = 0.0, 0
            while True:
                total += discount**k * float(rewards[t + k, b])
                ended = (terminated[t + k, b], truncated[t + k, b])
                k += 1
                if k == n or any(ended) or t + k == length:
                    break
            for array, value in zip(out, (total, *ended, k), strict=True):
                array[t, b] = value
    return out


def test_a_table_by_hand():
    """discount 1/2, n = 3: the row after the limit is not valid, and holds the true final observation."""
    arrays = rows_of([[PLAIN, PLAIN, TRUNCATED, PLAIN, PLAIN, TERMINATED, PLAIN, PLAIN]])
    got = n_step_transitions(*arrays, discount=0.5, steps=3)
    # rewards 1 2 3 - 5 6 - 8; from the row t to the row t + k
    assert got.rewards[:, 0].tolist() == [1 + 1 + 0.75, 2 + 1.5, 3, 0, 5 + 3, 6, 0, 8]
    assert got.bootstrap_steps[:, 0].tolist() == [3, 2, 1, 0, 2, 1, 0, 1]
    assert got.truncated[:, 0].tolist() == [True, True, True, False, False, False, False, False]
    assert got.terminated[:, 0].tolist() == [False, False, False, False, True, True, False, False]
    assert (got.rewards.dtype, got.bootstrap_steps.dtype) == (np.float32, np.int32)


def test_one_step_is_what_travelled():
    arrays = rows_of([[PLAIN, TERMINATED, PLAIN, PLAIN], [LOST_LIFE, PLAIN, TRUNCATED, PLAIN]])
    got = n_step_transitions(*arrays, discount=0.9, steps=1)
    for mine, travelled in zip(got[:3], arrays[:3], strict=True):
        assert mine.tobytes() == travelled.tobytes()
    assert np.array_equal(got.bootstrap_steps, arrays[3])


def test_what_comes_in_is_not_written_to():
    arrays = rows_of([[PLAIN, TRUNCATED, PLAIN, PLAIN]])
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    n_step_transitions(*arrays, discount=0.9, steps=2)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))


KINDS = st.sampled_from([PLAIN, PLAIN, PLAIN, TERMINATED, LOST_LIFE, TRUNCATED])


@given(data=st.data(), length=st.integers(1, 9), environments=st.integers(1, 3), n=st.integers(1, 11))
def test_it_is_its_slow_twin(data, length, environments, n):
    kinds = [data.draw(st.lists(KINDS, min_size=length, max_size=length)) for _ in range(environments)]
    arrays = rows_of(kinds)
    got = n_step_transitions(*arrays, discount=0.9, steps=n)
    want = slow(*arrays, 0.9, n)
    np.testing.assert_allclose(got.rewards, want[0], rtol=1e-6)
    for mine, twin in zip(got[1:], want[1:], strict=True):
        assert np.array_equal(mine, twin)
