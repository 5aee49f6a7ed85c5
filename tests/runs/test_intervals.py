import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.runs.intervals import (
    Interval,
    bootstrap,
    interquartile_mean,
    interval,
    median_interval,
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
