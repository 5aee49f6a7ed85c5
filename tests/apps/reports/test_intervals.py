import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.apps.reports.intervals import (
    Interval,
    bootstrap,
    improvement,
    interquartile_mean,
    interval,
    median_interval,
    performance_profile,
    ratio_of_medians,
)

SCORES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7], 7.0),
        ([2, 4], 3.0),
        ([0, 10, 100], (0.25 * 0 + 10 + 0.25 * 100) / 1.5),
        ([100, 2, 4, -50], 3.0),
        ([1, 2, -math.inf], -math.inf),
        ([1, 2, 3, 4, 5, 6, 7, -math.inf], 3.5),
        ([1, 2, 3, 4, 5], (0.75 * 2 + 3 + 0.75 * 4) / 2.5),
        ([9, 1, 2, 3, 4, 5, 6, -8], 3.5),
    ],
)
def test_the_middle_half_counts(scores, expected):
    assert interquartile_mean(scores) == pytest.approx(expected)


def test_it_is_taken_along_the_first_axis():
    np.testing.assert_allclose(interquartile_mean([[1, 40], [2, 10], [4, 20], [3, 30]]), [2.5, 25.0])


@given(SCORES)
def test_all_resamples_of_few_scores_are_taken_each_once(scores):
    means = [float(interquartile_mean(drawn)) for drawn in itertools.product(scores, repeat=len(scores))]
    low, high = bootstrap(scores)
    np.testing.assert_allclose([low, high], np.percentile(means, [2.5, 97.5], method="inverted_cdf"), atol=1e-9)


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=9))
def test_of_many_scores_the_interval_repeats_and_lies_among_them(scores):
    found = interval(scores)
    assert found == interval(scores)
    assert min(scores) - 1e-9 <= found.low <= found.high <= max(scores) + 1e-9


def test_columns_are_drawn_together():
    low, high = bootstrap([[0, 0], [1, 10], [2, 20]])
    np.testing.assert_allclose(10 * low[0], low[1])
    np.testing.assert_allclose(10 * high[0], high[1])


def test_groups_are_drawn_by_themselves():
    """Resamples of (1, 3 | 10, 20): four of each pair, and the interquartile mean is that of the middle two."""
    means = [
        interquartile_mean([*first, *second])
        for first in itertools.product((1, 3), repeat=2)
        for second in itertools.product((10, 20), repeat=2)
    ]
    assert interval([1, 3, 10, 20], [2, 2]) == (6.5, *np.percentile(means, [2.5, 97.5], method="inverted_cdf"))
    assert interval([1, 3, 10, 20], [2, 2]).high < interval([1, 3, 10, 20]).high == 20.0


def test_many_columns_are_the_same_in_parts(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(6, 3, 2))
    whole = bootstrap(scores)
    monkeypatch.setattr("distrl.apps.reports.intervals.AT_ONCE", 6 * 2000)
    np.testing.assert_array_equal(bootstrap(scores), whole)
    assert whole[0].shape == (3, 2)


def test_a_profile_is_the_share_of_runs_above_each_threshold():
    """Two runs: of four resamples one has both of the least, so the interval reaches from least to greatest."""
    share, low, high = performance_profile([[1.0, 3.0]], [0.0, 1.0, 2.0, 3.0])
    assert [[*each] for each in (share, low, high)] == [[1, 0.5, 0.5, 0], [1, 0, 0, 0], [1, 1, 1, 0]]
    share, low, high = performance_profile([[1.0, 3.0], [5.0]], [2.0])  # the second environment's run is always there
    np.testing.assert_allclose([share, low, high], [[2 / 3], [1 / 3], [1]])


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=2), st.integers(-1, 4))
def test_a_profile_is_that_of_the_slow_way(groups, threshold):
    draws = [itertools.product(group, repeat=len(group)) for group in groups]
    shares = [np.mean([score > threshold for part in parts for score in part]) for parts in itertools.product(*draws)]
    found = [float(each[0]) for each in performance_profile(groups, [threshold])]
    scores = [score for group in groups for score in group]
    ends = np.percentile(shares, [2.5, 97.5], method="inverted_cdf")
    np.testing.assert_allclose(found, [np.mean([score > threshold for score in scores]), *ends], atol=1e-12)


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=8))
def test_a_profile_falls_from_one_to_none_within_its_interval(scores):
    share, low, high = performance_profile([scores], [-10, *sorted(scores), 10])
    assert (share[0], share[-1]) == (1.0, 0.0)
    assert (np.diff(share) <= 0).all()
    assert (np.diff(low) <= 1e-12).all()
    assert (low <= share + 1e-12).all()
    assert (share <= high + 1e-12).all()


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([[2]], [[1]], 1.0),
        ([[1]], [[1]], 0.5),
        ([[1, 2]], [[1, 2]], 0.5),
        ([[1, 3]], [[2, 3]], (0 + 0 + 1 + 0.5) / 4),
        ([[5, 5, 5]], [[4, 5]], 0.75),
        ([[1], [9, 9]], [[2], [3]], 0.5),  # lost in one environment, won in the other, whatever the numbers of runs
        ([[-math.inf]], [[0]], 0.0),
    ],
)
def test_the_probability_of_improvement_counts_wins_and_half_of_ties(ours, theirs, expected):
    assert improvement(ours, theirs).centre == pytest.approx(expected)


GROUP = st.lists(st.integers(0, 4), min_size=1, max_size=3)


@given(GROUP, GROUP)
def test_the_probability_of_improvement_is_that_of_the_slow_way(ours, theirs):
    def won(ones, others):
        return np.mean([(one > other) + 0.5 * (one == other) for one in ones for other in others])

    draws = itertools.product(itertools.product(ours, repeat=len(ours)), itertools.product(theirs, repeat=len(theirs)))
    ends = np.percentile([won(*drawn) for drawn in draws], [2.5, 97.5], method="inverted_cdf")
    np.testing.assert_allclose(improvement([ours], [theirs]), [won(ours, theirs), *ends], atol=1e-12)


@given(st.lists(st.tuples(GROUP, GROUP), min_size=1, max_size=2))
def test_one_improves_as_often_as_the_other_does_not(pairs):
    ours, theirs = zip(*pairs, strict=True)
    there, back = improvement(ours, theirs), improvement(theirs, ours)
    assert there.centre + back.centre == pytest.approx(1.0)
    assert -1e-9 <= there.low <= there.centre + 1e-9
    assert there.centre - 1e-9 <= there.high <= 1 + 1e-9
    assert improvement(ours, ours).centre == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("other", "expected"), [((0, 4, 6), True), ((0, 5, 6), True), ((0, 5.1, 6), False), ((0, 0, 0.9), False)]
)
def test_intervals_overlap_where_they_share_a_number(other, expected):
    assert Interval(3, 1, 5).overlaps(Interval(*other)) is expected
    assert Interval(*other).overlaps(Interval(3, 1, 5)) is expected


def test_the_median_with_an_interval_of_what_was_measured():
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert median_interval([5.0]) == (5.0, 5.0, 5.0)
    centre, low, high = median_interval([float(value) for value in range(1, 1001)])
    assert centre == 500.5
    assert 450.0 < low < 500.5 < high < 550.0  # 1.96 * sqrt(1000) / 2 = 31 ranks to either side


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6), st.floats(0.5, 4.0))
def test_a_ratio_of_medians_scales_and_its_interval_holds_it(values, factor):
    centre, low, high = ratio_of_medians([factor * value for value in values], values)
    assert centre == pytest.approx(factor)
    assert low <= centre * (1 + 1e-9)
    assert high >= centre * (1 - 1e-9)


def test_a_ratio_of_medians_without_spread_has_none_either():
    assert ratio_of_medians([2.0, 2.0, 2.0], [4.0, 4.0]) == (0.5, 0.5, 0.5)
