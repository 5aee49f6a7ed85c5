import numpy as np
import pytest

from distrl.apps.dashboard.importance import importances


def test_the_share_by_hand():
    # Groups 1, 3 and 5, 7: means 2 and 6 around 4; between 2·2² + 2·2² = 16, in all 9 + 1 + 1 + 9 = 20.
    (one,) = importances({"rate": [0.1, 0.1, 0.2, 0.2]}, [1.0, 3.0, 5.0, 7.0]).values()
    assert one.share == pytest.approx(0.8)
    # Of the six ways to choose two of four runs, {1, 3} and {5, 7} have that share; {1, 5} and {3, 7} have 4 / 20.
    assert one.p == pytest.approx(2 / 6)
    assert one.chance == pytest.approx(0.8)
    assert (one.groups, one.in_classes) == (2, False)


def test_what_matters_comes_first_and_chance_is_told_from_it():
    random = np.random.default_rng(0)
    rates, noise = np.repeat([1e-3, 1e-2, 1e-1], 8), random.normal(size=24)
    found = importances({"kind": [*"abababababababababababab"], "rate": rates.tolist()}, 10 * np.log10(rates) + noise)
    assert [*found] == ["rate", "kind"]
    assert found["rate"].share > 0.95
    assert found["rate"].p < 0.01
    assert found["kind"].share <= found["kind"].chance
    assert found["kind"].p > 0.05


def test_numbers_that_occur_once_are_sorted_into_three_classes():
    (one,) = importances({"rate": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}, [0.0, 0.0, 5.0, 5.0, 10.0, 10.0]).values()
    assert (one.groups, one.in_classes) == (3, True)
    assert one.share == pytest.approx(1.0)
    assert one.p == pytest.approx(6 / 90)  # of 6! / (2! 2! 2!) orders, the six of the three classes


def test_several_settings_make_chance_findings_less_sure():
    outcomes = [1.0, 3.0, 5.0, 7.0]
    pairs = {"a": ["x", "x", "y", "y"], "b": ["x", "y", "x", "y"]}
    found = importances(pairs, outcomes)
    assert found["a"].p == pytest.approx(2 * 2 / 6)  # Holm: twice the p of one setting alone
    assert found["b"].p >= found["a"].p


@pytest.mark.parametrize(
    ("values", "outcomes"),
    [
        (["a", "b", "a"], [1.0, 2.0, 3.0]),  # too few runs
        (["a", "a", "a", "a"], [1.0, 2.0, 3.0, 4.0]),  # does not differ
        (["a", "b", "c", "d"], [1.0, 2.0, 3.0, 4.0]),  # each value once
        (["a", "b", "a", "b"], [1.0, 1.0, 1.0, 1.0]),  # nothing to explain
    ],
)
def test_what_cannot_be_judged_is_left_out(values, outcomes):
    assert importances({"kind": values}, outcomes) == {}
