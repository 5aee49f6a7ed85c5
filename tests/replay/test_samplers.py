"""Samplers: every item as likely as it should be, importance weights, and priorities that arrive where they belong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distrl.config.replay import PrioritizedParameters
from distrl.config.schedules import LinearSchedule, Progress
from distrl.errors import NonFiniteError
from distrl.replay.new_items import NewItems
from distrl.replay.samplers import BalancedSampler, PrioritizedSampler, UniformSampler

ALL = np.ones(1, np.bool_)


def prioritized(priorities, slots=None, **parameters):
    """One item per slot, of these priorities."""
    sampler = PrioritizedSampler(PrioritizedParameters(**parameters), slots or len(priorities), 1)
    for slot, _ in enumerate(priorities):
        sampler.put(slot, ALL, None)
    sampler.reprioritise(np.arange(len(priorities)), np.array(priorities, np.float32))
    return sampler


def chances(sampler, items, draws=4000, progress=Progress()):  # noqa: B008
    """Share of each item among the draws, and the weight that each of them had."""
    rng, counts, weights = np.random.default_rng(0), np.zeros(items), np.zeros(items)
    for _ in range(draws):
        drawn = sampler.draw(rng, 8, progress)
        counts += np.bincount(drawn.positions, minlength=items)
        weights[drawn.positions] = drawn.importance_weights
    return counts / counts.sum(), weights


@pytest.mark.row("J02", "D130")
def test_uniform_draws_pass_a_chi_square_test():
    sampler = UniformSampler(4, 5)
    for slot in range(4):
        sampler.put(slot, np.arange(5) != slot, None)  # four of five items are there
    draws = sampler.draw(np.random.default_rng(0), 100_000, Progress()).positions
    counts = np.bincount(draws, minlength=20)
    absent = [0, 6, 12, 18]
    assert counts[absent].tolist() == [0, 0, 0, 0]
    there = np.delete(counts, absent)
    statistic = ((there - 100_000 / 16) ** 2 / (100_000 / 16)).sum()
    assert statistic < 30.58  # 1 % of chi-square with 15 degrees of freedom lies beyond


@pytest.mark.row("D133")
@pytest.mark.parametrize(
    ("alpha", "beta", "expected", "weights"),
    [
        (1.0, 1.0, [0.1, 0.2, 0.3, 0.4], [1, 0.5, 0.3333, 0.25]),
        (0.6, 0.4, [0.1482, 0.2247, 0.2866, 0.3405], [1, 0.8467, 0.7682, 0.7170]),
    ],
)
def test_probabilities_and_weights_of_priorities_1_2_3_4(alpha, beta, expected, weights):
    sampler = prioritized([1, 2, 3, 4], slots=100, alpha=alpha, beta=beta, epsilon=1e-6)
    leaves = sampler.state_arrays()["weights"][:4]
    np.testing.assert_allclose(leaves / leaves.sum(), expected, atol=5e-5)
    shares, told = chances(sampler, 4)
    np.testing.assert_allclose(shares, expected, atol=0.005)
    np.testing.assert_allclose(told, weights, atol=5e-5)


@pytest.mark.row("J03", "D133", "T14")
def test_item_0_is_updated_and_new_items_get_the_highest_priority_ever_seen():
    """Elsewhere an update whose first index was 0 was skipped as a whole, and the highest priority never rose."""
    sampler = prioritized([1, 1, 1], slots=8, alpha=1.0, epsilon=0.0)
    sampler.reprioritise(np.array([0]), np.float32([10]))
    sampler.put(3, ALL, None)
    assert sampler.state_arrays()["weights"].tolist() == [10, 1, 1, 10, 0, 0, 0, 0]
    sampler.reprioritise(np.array([0, 3, 1]), np.float32([2, 3, 4]))
    sampler.put(4, ALL, None)
    assert sampler.state_arrays()["weights"].tolist() == [2, 4, 1, 3, 10, 0, 0, 0]
    assert sampler.highest == 10.0


@pytest.mark.row("J10")
def test_new_items_come_first():
    """Five that were seen have large errors, five are new: a batch of five is exactly those, once."""
    sampler = prioritized([10] * 5, slots=10, alpha=1.0, epsilon=0.5, new_items_first=True)
    rng = np.random.default_rng(0)
    assert sampler.draw(rng, 5, Progress()).positions.tolist() == [0, 1, 2, 3, 4]
    for slot in range(5, 10):
        sampler.put(slot, ALL, np.float32([0.0]))
    drawn = sampler.draw(rng, 5, Progress())
    assert drawn.positions.tolist() == [5, 6, 7, 8, 9]
    np.testing.assert_allclose(drawn.importance_weights, np.ones(5))  # the least likely of all: the greatest weight
    rest = sampler.draw(rng, 1000, Progress()).positions
    assert np.count_nonzero(rest >= 5) == pytest.approx(1000 * 0.5 / 11, abs=5)  # priorities + epsilon: 10.5 and .5
    assert sampler.state_arrays()["weights"].tolist() == [10.5] * 5 + [0.5] * 5


@pytest.mark.row("J10")
def test_the_rest_of_a_batch_is_drawn_by_priority():
    sampler = prioritized([1, 0, 0], slots=4, alpha=1.0, epsilon=0.0, new_items_first=True)
    rng = np.random.default_rng(0)
    sampler.draw(rng, 3, Progress())
    sampler.put(3, ALL, np.float32([0.0]))
    assert sampler.draw(rng, 4, Progress()).positions.tolist() == [3, 0, 0, 0]
    assert sampler.draw(rng, 4, Progress()).positions.tolist() == [0, 0, 0, 0]


def test_without_the_setting_new_items_only_tie_with_the_highest_priority():
    sampler = prioritized([0] * 5, slots=10, alpha=1.0, epsilon=0.0)
    for slot in range(5, 10):
        sampler.put(slot, ALL, None)
    drawn = sampler.draw(np.random.default_rng(0), 5, Progress())
    assert drawn.positions.tolist() == [5, 6, 7, 8, 9]  # all others have no error left
    assert np.isfinite(drawn.importance_weights).all()
    assert prioritized([1] * 8, slots=8).draw(np.random.default_rng(0), 8, Progress()).positions.tolist() == [*range(8)]


@given(
    slots=st.integers(1, 4),
    calls=st.lists(st.lists(st.booleans(), min_size=3, max_size=3) | st.integers(0, 7), max_size=30),
    saved=st.integers(0, 30),
)
def test_new_items_are_those_of_a_list(slots, calls, saved):
    """A list of calls: what a slot now holds, or how many to take. At one of them the state moves to another object."""
    queue, twin, puts = NewItems(slots, 3), [], 0
    for number, call in enumerate(calls):
        if number == saved:
            state = {name: array.copy() for name, array in queue.state_arrays().items()}
            queue = NewItems(slots, 3)
            queue.restore(state)
        if isinstance(call, list):
            slot = puts % slots
            queue.put(slot, np.array(call))
            twin = [item for item in twin if item // 3 != slot]
            twin += [3 * slot + place for place in range(3) if call[place]]
            puts += 1
        else:
            assert queue.take(call).tolist() == twin[:call]
            twin = twin[call:]


@pytest.mark.row("D134")
def test_classes_of_90_and_10_make_halves_of_a_batch():
    sampler = BalancedSampler(10, 10)
    for slot in range(10):
        sampler.put(slot, np.ones(10, np.bool_), None, np.where(np.arange(10) == slot, 1, 0).astype(np.int32))
    rng, counts = np.random.default_rng(0), np.zeros(100)
    for _ in range(2000):
        drawn = sampler.draw(rng, 50, Progress())
        assert drawn.importance_weights is None
        assert np.count_nonzero(drawn.positions % 11 == 0) == 25  # the tenth that was labelled 1
        counts += np.bincount(drawn.positions, minlength=100)
    rare = np.arange(0, 100, 11)
    statistic = ((counts[rare] - 5000) ** 2 / 5000).sum()
    assert statistic < 21.67  # 1 % of chi-square with 9 degrees of freedom lies beyond
    often = np.delete(counts, rare)
    assert ((often - 50_000 / 90) ** 2 / (50_000 / 90)).sum() < 122.9  # likewise, with 89


@pytest.mark.row("D134")
def test_a_batch_that_cannot_be_halved_favours_no_class():
    sampler = BalancedSampler(1, 3)
    sampler.put(0, np.ones(3, np.bool_), None, np.int32([0, 4, 7]))
    rng, counts = np.random.default_rng(0), np.zeros(3)
    for _ in range(3000):
        counts += np.bincount(sampler.draw(rng, 1, Progress()).positions, minlength=3)
    np.testing.assert_allclose(counts, 1000, atol=100)


@given(
    slots=st.integers(1, 4),
    puts=st.lists(st.lists(st.integers(-1, 2), min_size=4, max_size=4), min_size=1, max_size=20),
    saved=st.integers(0, 20),
)
def test_classes_are_those_of_a_list(slots, puts, saved):
    """Labels of each slot, -1 where no item is. At one put the state moves to another object."""
    sampler, twin, rng = BalancedSampler(slots, 4), np.full(4 * slots, -1), np.random.default_rng(0)
    for number, labels in enumerate(puts):
        if number == saved:
            state = {name: array.copy() for name, array in sampler.state_arrays().items()}
            sampler = BalancedSampler(slots, 4)
            sampler.restore(state, (twin >= 0).reshape(-1, 4))
        slot = number % slots
        given_labels = np.array(labels, np.int32)
        sampler.put(slot, given_labels >= 0, None, np.maximum(given_labels, 0))
        twin[4 * slot : 4 * slot + 4] = labels
        there = np.unique(twin[twin >= 0])
        if there.size:
            drawn = sampler.draw(rng, 300 * len(there), Progress()).positions
            assert set(drawn.tolist()) == set(np.flatnonzero(twin >= 0).tolist())
            assert np.bincount(twin[drawn])[there].tolist() == [300] * len(there)


def test_a_restored_balanced_sampler_draws_the_same():
    """The class of the higher label comes first; a restored state meets classes in the order of their labels."""
    sampler, restored = BalancedSampler(3, 4), BalancedSampler(3, 4)
    for slot, label in enumerate((7, 2, 5)):
        sampler.put(slot, np.ones(4, np.bool_), None, np.full(4, label, np.int32))
    restored.restore(sampler.state_arrays(), np.ones((3, 4), np.bool_))
    drawn = [one.draw(np.random.default_rng(0), 50, Progress()).positions.tolist() for one in (sampler, restored)]
    assert drawn[0] == drawn[1]


def test_priorities_that_come_with_an_unroll():
    sampler = PrioritizedSampler(PrioritizedParameters(alpha=1.0, epsilon=0.5), 2, 3)
    sampler.put(0, np.array([True, False, True]), np.float32([4, np.nan, 2]))
    sampler.put(1, np.array([True, True, False]), None)
    assert sampler.state_arrays()["weights"].tolist() == [4.5, 0, 2.5, 4.5, 4.5, 0]
    sampler.put(0, np.array([False, False, False]), None)  # what was there is gone
    assert sampler.state_arrays()["weights"].tolist() == [0, 0, 0, 4.5, 4.5, 0]


@pytest.mark.parametrize(("steps", "beta"), [(0, 0.4), (50, 0.6), (100, 0.8), (10**9, 0.8)])
@pytest.mark.parametrize("counts", [pytest.param(name, marks=pytest.mark.row("D21")) for name in Progress._fields])
def test_beta_moves_along_its_schedule(counts, steps, beta):
    schedule = LinearSchedule(start=0.4, end=0.8, steps=100, counts=counts)
    sampler = prioritized([1, 2], beta=schedule, alpha=1.0, epsilon=0.0)
    weights = chances(sampler, 2, 10, Progress()._replace(**{counts: steps}))[1]
    assert weights.tolist() == pytest.approx([1.0, 2**-beta])


def test_beta_beyond_its_range_is_refused():
    with pytest.raises(ValidationError, match=r"beta: 1.5 comes up in its schedule; it must stay in \[0, 1\]"):
        PrioritizedParameters(beta=LinearSchedule(start=0.4, end=1.5, steps=10))


@pytest.mark.parametrize("given", [{}, {"steps": 50}, {"start": 0, "end": 1}])
def test_beta_does_not_move_by_the_defaults_of_epsilon(given):
    with pytest.raises(ValidationError, match="beta: kind linear needs start, end and steps"):
        PrioritizedParameters(beta={"kind": "linear", **given})


def test_priorities_that_are_none_are_refused():
    sampler = prioritized([1, 2])
    before = sampler.state_arrays()["weights"].copy()
    with pytest.raises(NonFiniteError, match="not finite"):
        sampler.reprioritise(np.array([0]), np.float32([np.inf]))
    with pytest.raises(ValueError, match="at least 0, not -1"):
        sampler.reprioritise(np.array([0]), np.float32([-1]))
    sampler.reprioritise(np.array([], np.int64), np.array([], np.float32))
    assert np.array_equal(sampler.state_arrays()["weights"], before)
