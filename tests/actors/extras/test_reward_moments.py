"""Moments of the discounted return: by hand, against a slow twin, and over the seams of unrolls."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.actors.extras.reward_moments import RewardMoments
from tests.actors.extras.unrolls import EMPTY

YES, NO = True, False


def moments(rewards, ended, valid, discount=0.5):
    """Return the moments of one unroll of one environment."""
    column = [np.array(rows)[:, None] for rows in (rewards, ended, valid)]
    return RewardMoments(discount, 1).moments(column[0].astype(np.float32), *column[1:])


def of(returns):
    """Return the expected moments of these returns."""
    returns = np.array(returns, np.float64)
    return {"count": len(returns), "mean": returns.mean(), "squares": ((returns - returns.mean()) ** 2).sum()}


@pytest.mark.row("D113")
@pytest.mark.parametrize(
    ("rewards", "ended", "valid", "returns"),
    [
        # R_t = R_{t-1} / 2 + r_t
        ([4, 2, 1], [NO, NO, NO], [YES, YES, YES], [4, 4, 3]),
        # An end starts it anew, and the row after it counts for nothing.
        ([4, 2, 0, 1, 1], [NO, YES, NO, NO, NO], [YES, YES, NO, YES, YES], [4, 4, 1, 1.5]),
        ([4, 0], [YES, NO], [YES, NO], [4]),
        # Two ends in one unroll, one of them in its last row.
        ([8, 0, 2, 4], [YES, NO, NO, YES], [YES, NO, YES, YES], [8, 2, 5]),
        # An unroll that begins with the row after an end.
        ([0, 6, 2], [NO, NO, NO], [NO, YES, YES], [6, 5]),
        # An episode that was given up ends with a row that does not count.
        ([4, 9, 1], [NO, NO, NO], [YES, NO, YES], [4, 1]),
    ],
)
def test_by_hand(rewards, ended, valid, returns):
    assert moments(rewards, ended, valid) == pytest.approx(of(returns), rel=1e-12)


def test_where_no_row_is_valid_there_is_nothing_to_tell():
    told = moments([0], [NO], [NO])
    assert {name: float(value) for name, value in told.items()} == {"count": 0.0, "mean": 0.0, "squares": 0.0}
    assert {(value.dtype.name, value.shape) for value in told.values()} == {("float64", ())}


def test_with_discount_0_it_is_the_reward():
    assert moments([4, 2, 1], [NO, YES, NO], [YES, YES, NO], discount=0.0) == pytest.approx(of([4, 2]))


def test_an_open_episode_goes_on_in_the_next_unroll_and_a_closed_one_does_not():
    running = RewardMoments(0.5, 2)
    first = np.float32([[4, 8]])
    running.moments(first, np.array([[NO, YES]]), np.array([[YES, YES]]))
    told = running.moments(np.float32([[1, 0]]), np.array([[NO, NO]]), np.array([[YES, NO]]))
    assert told == pytest.approx(of([3]))
    running.reset(None, None)
    assert running.moments(first, np.array([[NO, NO]]), np.array([[YES, YES]])) == pytest.approx(of([4, 8]))


def test_unrolls_carry_them_and_a_lost_life_counts_as_an_end():
    running = RewardMoments(0.5, 1)
    column = {"rewards": np.float32([[4], [2], [1]]), "terminated": np.array([[YES], [NO], [NO]])}
    off = np.zeros((3, 1), bool)
    unroll = replace(EMPTY, **column, truncated=np.array([[NO], [YES], [NO]]), valid=~off)
    assert running.close(unroll).reward_moments == pytest.approx(of([4, 2, 1]))


def slow(rewards, ended, valid, discount):
    """R of every valid step of one environment, in order."""
    returns, running = [], 0.0
    for reward, end, counts in zip(rewards, ended, valid, strict=True):
        if counts:
            running = discount * running + float(reward)
            returns.append(running)
        if end:
            running = 0.0
    return returns


@given(st.data(), st.integers(1, 3), st.integers(1, 12), st.sampled_from([0.0, 0.9, 0.99, 1.0]))
def test_wherever_unrolls_are_cut_all_of_them_together_say_the_same_as_a_slow_twin(data, count, steps, discount):
    ended = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=count, max_size=count), min_size=steps)))
    valid = np.ones(ended.shape, bool)
    for row in range(1, len(ended)):  # the row after an end is no step, and no end
        valid[row] = ~ended[row - 1]
        ended[row] &= valid[row]
    rewards = np.random.default_rng(len(ended)).normal(5.0, 2.0, ended.shape).astype(np.float32) * valid
    cut = data.draw(st.integers(0, len(ended)))
    running = RewardMoments(discount, count)
    parts = [running.moments(rewards[part], ended[part], valid[part]) for part in (slice(0, cut), slice(cut, None))]
    expected = np.concatenate([slow(rewards[:, i], ended[:, i], valid[:, i], discount) for i in range(count)])
    total = sum(part["count"] for part in parts)
    mean = sum(part["count"] * part["mean"] for part in parts) / total
    assert total == len(expected)
    assert mean == pytest.approx(expected.mean(), abs=1e-9)
    squares = sum(part["squares"] + part["count"] * (part["mean"] - mean) ** 2 for part in parts)
    assert squares == pytest.approx(((expected - expected.mean()) ** 2).sum(), abs=1e-6)
