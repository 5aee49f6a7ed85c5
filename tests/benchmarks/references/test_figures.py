"""Comparisons that agree, that do not, and that would compare nothing."""

import numpy as np
import pytest

from benchmarks.references import figures
from benchmarks.references.figures import agree, differ


@pytest.fixture(autouse=True)
def taken(monkeypatch):
    kept = []
    monkeypatch.setattr(figures, "TAKEN", kept)
    return kept


def test_the_largest_error_of_all_arrays_is_kept(taken):
    ours, theirs = [np.array([[1.0, 2.0]]), np.array([3.0])], [np.array([[1.0, 2.5]]), np.array([-4.0 + 7.25])]
    agree("PPO", "weights", "SB3", ours, theirs, allowed=0.5, note="epsilon")
    (figure,) = taken
    assert (figure.error, figure.of, figure.allowed, figure.note) == (0.5, 3.25, 0.5, "epsilon")


def test_an_error_beyond_the_bound_fails_and_is_kept(taken):
    with pytest.raises(AssertionError, match=r"weights: differs from SB3 by 0\.5 of 2\.5, allowed is 0\.4"):
        agree("PPO", "weights", "SB3", [2.0], [2.5], allowed=0.4)
    assert taken[0].error == 0.5


def test_what_is_no_number_fails():
    with pytest.raises(AssertionError, match="differs from SB3 by nan"):
        agree("PPO", "weights", "SB3", [np.nan, 1.0], [1.0, 1.0], allowed=1.0)


def test_nothing_compared_fails():
    with pytest.raises(AssertionError, match="all values are 0"):
        agree("PPO", "weights", "SB3", [0.0], [0.0], allowed=1.0)
    with pytest.raises(AssertionError, match=r"weights: .* numbers"):
        agree("PPO", "weights", "SB3", [1.0], [1.0, 1.0], allowed=1.0)


def test_a_difference_that_is_told_must_be_there(taken):
    differ("PPO", "weights", "SB3", [1.0], [1.5], least=0.1, of=2.0, note="epsilon")
    assert (taken[0].error, taken[0].of, taken[0].allowed) == (0.5, 2.0, None)
    with pytest.raises(AssertionError, match="but should by 1: epsilon"):
        differ("PPO", "weights", "SB3", [1.0], [1.5], least=1.0, note="epsilon")
