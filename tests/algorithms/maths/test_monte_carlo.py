"""Returns as they were paid: the rows' numbers by hand, twins that walk the episodes, and that place alone chooses.

Runs on every Keras backend (see test_backends.py).
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from distrl.algorithms.maths.monte_carlo import (
    UNKNOWN,
    episodes,
    less_others_at_timestep,
    normalized_by_episode,
    total_returns,
)

FEW = settings(max_examples=min(40, settings.default.max_examples), deadline=None)


def flags(text):
    """'..x.' -> bool [T, 1], True at x."""
    return np.array([letter == "x" for letter in text])[:, None]


def find(rewards, terminated, invalid, *, discount=0.5, longest_steps):
    valid = ~flags(invalid)
    paid = np.where(valid, np.array(rewards, "float32")[:, None], 0.0).astype("float32")
    return episodes(paid, flags(terminated), valid, discount=discount, longest_steps=longest_steps)


def column(tensor):
    return ops.convert_to_numpy(tensor)[:, 0].tolist()


# Rows 0 and 1: the end of an episode that began before. Row 2: its last observation. Rows 3 to 5: a whole episode that
# pays 1, 2, 3. Row 6: its last observation. Rows 7 and 8: an episode that the unroll's end cuts.
ROW = {"rewards": (7, 8, 9, 1, 2, 3, 9, 4, 4), "invalid": "..x...x..", "longest_steps": 3}


@pytest.mark.row("D162")
@pytest.mark.parametrize("terminated", [".x...x...", "........."], ids=["terminated", "truncated"])
def test_returns_by_hand(terminated):
    """Without a value to go on with, a time limit is an end like any other: 1 + .5 x 2 + .25 x 3 = 2.75."""
    found = find(ROW["rewards"], terminated, ROW["invalid"], longest_steps=3)
    assert column(found.returns)[:7] == [11.0, 8.0, 0.0, 2.75, 3.5, 3.0, 0.0]
    assert column(found.begins) == [UNKNOWN] * 3 + [3, 3, 3, 3, 7, 7]
    # Of nine rows the last at which an episode of three steps may begin is row 6.
    assert column(found.whole) == [True, True, False, True, True, True, False, False, False]
    assert column(found.whole_from_first) == [False] * 3 + [True] * 3 + [False] * 3
    assert column(total_returns(found))[3:6] == [2.75] * 3


@pytest.mark.row("D162")
def test_normalised_by_episode_by_hand():
    """2.75, 3.5, 3: mean 3.08333, deviation .311805."""
    found = find(terminated=".x...x...", **ROW)
    given = column(normalized_by_episode(found))
    assert given[3:6] == pytest.approx([-1.069045, 1.336306, -0.267261], abs=1e-5)
    one_step = find((1, 5, 0), "x..", ".x.", longest_steps=1)
    assert column(normalized_by_episode(one_step))[0] == 0.0  # nothing to compare with


@pytest.mark.row("D162")
def test_normalised_by_timestep_by_hand():
    """Two episodes, G = [2.75, 3.5, 3] and [5, 2]: each minus the other's; step 2 has no other to compare with."""
    found = find((0, 0, 1, 2, 3, 0, 4, 2, 0), "x...x..x.", ".x...x..x", longest_steps=3)
    assert column(found.returns)[2:] == [2.75, 3.5, 3.0, 0.0, 5.0, 2.0, 0.0]
    rescaled, learned = less_others_at_timestep(found)
    assert column(learned) == [False, False, True, True, False, False, True, True, False]
    assert [column(rescaled)[row] for row in (2, 3, 6, 7)] == [-2.25, 1.5, 2.25, -1.5]


def test_a_lost_life_ends_the_return_and_begins_the_next_one():
    """Row 2 terminates and no row is ignored after it: the steps of what comes next are counted from row 3."""
    found = find((9, 0, 1, 2, 4, 0), "..x.x.", ".x...x", longest_steps=3)
    assert column(found.returns)[2:] == [1.0, 4.0, 4.0, 0.0]
    assert column(found.begins)[2:5] == [2, 3, 3]


@st.composite
def played(draw):
    """Unrolls out of a longer play, [T, N], of episodes of at most M steps, and what comes after the unroll."""
    longest, length = draw(st.integers(1, 4)), draw(st.integers(4, 10))
    sequences = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    horizon = length + longest + 1
    rewards = rng.normal(size=(horizon, sequences)).astype("float32")
    terminated, valid = np.zeros((horizon, sequences), bool), np.ones((horizon, sequences), bool)
    for n in range(sequences):
        left = int(rng.integers(0, longest + 1))  # 0: the last row before was an episode's last step
        for t in range(horizon):
            valid[t, n] = left > 0
            left = left - 1 if left else int(rng.integers(1, longest + 1))
            if valid[t, n] and left == 0:
                terminated[t, n] = rng.random() < 0.5
    return np.where(valid, rewards, 0.0).astype("float32"), terminated, valid, length, longest


def true_return(rewards, valid, t, discount):
    """Walks to the end of the episode, beyond the unroll if need be."""
    total, weight = 0.0, 1.0
    while valid[t]:
        total, weight, t = total + weight * rewards[t], weight * discount, t + 1
    return total


@FEW
@given(played(), st.sampled_from([0.0, 0.5, 1.0]))
def test_what_counts_is_the_true_return_and_is_chosen_without_looking_ahead(play, discount):
    rewards, terminated, valid, length, longest = play
    found = episodes(rewards[:length], terminated[:length], valid[:length], discount=discount, longest_steps=longest)
    returns, begins, whole, from_first = (ops.convert_to_numpy(array) for array in found)
    totals = ops.convert_to_numpy(total_returns(found))
    for t, n in np.ndindex(length, rewards.shape[1]):
        assert whole[t, n] == (valid[t, n] and t <= length - longest)
        if whole[t, n]:
            assert returns[t, n] == pytest.approx(true_return(rewards[:, n], valid[:, n], t, discount), abs=1e-5)
        begin = t
        while begin > 0 and valid[begin - 1, n]:
            begin -= 1
        known = valid[t, n] and begin > 0
        assert from_first[t, n] == (known and begin <= length - longest)
        if known:
            assert begins[t, n] == begin
        if from_first[t, n]:
            assert totals[t, n] == pytest.approx(true_return(rewards[:, n], valid[:, n], begin, discount), abs=1e-5)


@FEW
@given(played())
def test_normalised_returns_are_their_twins(play):
    rewards, terminated, valid, length, longest = play
    found = episodes(rewards[:length], terminated[:length], valid[:length], discount=0.9, longest_steps=longest)
    returns, begins, _, from_first = (ops.convert_to_numpy(array) for array in found)
    by_episode = ops.convert_to_numpy(normalized_by_episode(found))
    by_timestep, learned = map(ops.convert_to_numpy, less_others_at_timestep(found))
    places = [place for place in np.ndindex(*returns.shape) if from_first[place]]
    for t, n in places:
        mine = np.array([returns[s, m] for s, m in places if (m, begins[s, m]) == (n, begins[t, n])], np.float64)
        expected = (returns[t, n] - mine.mean()) / mine.std() if mine.std() > 1e-5 else 0.0
        assert by_episode[t, n] == pytest.approx(expected, abs=2e-3)
        others = [
            returns[s, m]
            for s, m in places
            if s - begins[s, m] == t - begins[t, n] and (m, begins[s, m]) != (n, begins[t, n])
        ]
        assert learned[t, n] == bool(others)
        if others:
            assert by_timestep[t, n] == pytest.approx(returns[t, n] - np.mean(others), abs=1e-4)
    assert not (learned & ~from_first).any()
