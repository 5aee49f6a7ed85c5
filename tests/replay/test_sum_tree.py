"""The tree of sums: prefixes by hand, draws in proportion, and sums that stay right however often they change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.replay.sum_tree import FAN_OUT, SumTree


def tree_of(weights, capacity=None):
    tree = SumTree(capacity or len(weights))
    tree.update(np.arange(len(weights)), np.array(weights, np.float64))
    return tree


@pytest.mark.row("J06")
def test_sums_prefixes_and_the_least_of_1_2_3_4():
    tree = tree_of([1, 2, 3, 4])
    assert (tree.total, tree.minimum) == (10.0, 1.0)
    assert tree.find(np.array([0.0, 1.0, 3.5, 9.9])).tolist() == [0, 1, 2, 3]
    assert tree[np.array([3, 0, 3])].tolist() == [4, 1, 4]


@pytest.mark.row("J12")
def test_draws_are_stratified():
    """With priorities 1 … 4 and four draws, one comes from each quarter of the sum, which is 2.5 wide."""
    tree, rng = tree_of([1, 2, 3, 4]), np.random.default_rng(0)
    allowed = [{0, 1}, {1, 2}, {2, 3}, {3}]  # [0, 2.5), [2.5, 5), [5, 7.5), [7.5, 10)
    draws = np.stack([tree.sample(rng, 4) for _ in range(200)])
    assert [set(column) for column in draws.T.tolist()] == allowed


def test_draws_are_in_proportion():
    tree, rng = tree_of([1, 2, 3, 4], capacity=1000), np.random.default_rng(1)
    counts = np.bincount(np.concatenate([tree.sample(rng, 8) for _ in range(5000)]), minlength=4)
    assert len(counts) == 4
    np.testing.assert_allclose(counts / counts.sum(), [0.1, 0.2, 0.3, 0.4], atol=0.005)


def test_what_is_not_there_is_never_drawn_not_even_at_the_very_end():
    tree = SumTree(FAN_OUT**2 + 5)
    there = np.array([3, FAN_OUT + 2, FAN_OUT**2 + 1])
    tree.update(there, np.full(3, 0.1))
    rng = np.random.default_rng(2)
    assert set(np.concatenate([tree.sample(rng, 64) for _ in range(20)]).tolist()) == set(there.tolist())
    assert tree.find(np.array([tree.total, np.nextafter(tree.total, 1.0), 0.0])).tolist() == [there[-1], there[-1], 3]
    tree.update(there[2:], np.zeros(1))
    assert tree.find(np.array([tree.total])).tolist() == [there[1]]


def test_of_an_item_named_twice_the_last_weight_stays():
    tree = tree_of([1, 1, 1])
    tree.update(np.array([0, 2, 0]), np.array([5.0, 3.0, 7.0]))
    assert (tree[np.array([0, 1, 2])].tolist(), tree.total, tree.minimum) == ([7, 1, 3], 11.0, 1.0)


@given(data=st.data(), capacity=st.integers(1, 700))
def test_it_is_its_slow_twin(data, capacity):
    tree, twin = SumTree(capacity), np.zeros(capacity)
    numbers = st.integers(0, 1000)  # whole numbers, whose sums are exact in any order
    for _ in range(data.draw(st.integers(1, 4))):
        items = np.array(data.draw(st.lists(st.integers(0, capacity - 1), min_size=1, max_size=20)))
        weights = np.array([data.draw(numbers) for _ in items], np.float64)
        tree.update(items, weights)
        twin[items] = weights
    positive = twin[twin > 0]
    assert tree.total == twin.sum()
    assert tree.minimum == (positive.min() if positive.size else np.inf)
    if positive.size:
        prefixes = np.array([data.draw(st.floats(0, 1, exclude_max=True)) for _ in range(5)]) * twin.sum()
        ends = np.cumsum(twin)
        assert tree.find(prefixes).tolist() == [int(np.flatnonzero(ends > prefix)[0]) for prefix in prefixes]


def test_sums_stay_right_after_many_updates():
    """Differences would add up: each of these steps takes away nearly all that the last one put in."""
    rng, capacity = np.random.default_rng(3), 5000
    tree = SumTree(capacity)
    for scale in np.tile([1e12, 1e-6], 250):
        tree.update(rng.integers(capacity, size=64), rng.random(64) * scale)
    weights = rng.random(capacity) * 1e-6
    tree.update(np.arange(capacity), weights)
    assert tree.total == pytest.approx(weights.sum(), rel=1e-13)
    assert tree.minimum == weights.min()


def test_restoring_gives_the_same_bits():
    rng = np.random.default_rng(4)
    tree, other = SumTree(1000), SumTree(1000)
    for _ in range(20):
        tree.update(rng.integers(1000, size=50), rng.random(50))
    other.update(np.array([999]), np.array([3.0]))
    other.restore(tree.leaves.copy())
    for mine, theirs in zip(tree._sums + tree._least, other._sums + other._least, strict=True):
        assert mine.tobytes() == theirs.tobytes()


def test_what_is_no_weight_is_refused_and_changes_nothing():
    tree = tree_of([1, 2])
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="finite and at least 0"):
            tree.update(np.array([0, 1]), np.array([5.0, wrong]))
    assert tree.total == 3.0
    with pytest.raises(ValueError, match="all weights are 0"):
        SumTree(4).sample(np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        SumTree(0)
