import pytest

from distrl.apps.dashboard.outcomes import best_words, centre_of, grouped
from distrl.apps.reports.intervals import Interval


def test_groups_are_in_order_of_their_outcomes():
    groups = grouped(["a", "b", "a", "c", None], [1.0, 5.0, 3.0, None, 9.0], "mean")
    assert [(one.label, one.members, one.counted) for one in groups] == [
        ("b", (1,), 1),
        ("a", (0, 2), 2),
        ("c", (3,), 0),
    ]
    assert groups[1].outcome == Interval(2.0, 1.0, 3.0)
    assert groups[2].outcome is None


def test_centres():
    assert centre_of([1.0, 2.0, 9.0], "mean").centre == 4.0
    assert centre_of([1.0, 2.0, 9.0], "median") == (2.0, 1.0, 9.0)
    assert centre_of([1.0, 2.0, 9.0], "iqm").centre == pytest.approx((0.25 * 1 + 2 + 0.25 * 9) / 1.5)


def test_the_best_group_in_a_sentence():
    rates = ["rate=0.1", "rate=0.1", "rate=0.2", "rate=0.2"]
    told = best_words(grouped(rates, [10.0, 20.0, 300.0, 400.0], "iqm"), "iqm")
    assert told == "rate=0.2: IQM 350.0 [300.0, 400.0] over 2 runs; next rate=0.1: IQM 15.0 [10.0, 20.0] over 2 runs."
    overlapping = best_words(grouped(rates, [10.0, 20.0, 15.0, 30.0], "mean"), "mean")
    assert overlapping.endswith("Their intervals overlap: train more seeds to tell them apart.")
    assert best_words(grouped(rates[1:], [10.0, 20.0, 15.0], "mean"), "mean").endswith(
        "A single run has no interval: train more seeds to tell them apart."
    )
    assert best_words(grouped(["all"], [1.5], "mean"), "mean") == "all: 1.50 in 1 run."
    assert best_words(grouped(["all"], [None], "mean"), "mean") == ""
