"""Selection and perturbation of population-based training, by tables."""

import random

import pytest

from distrl.apps.experiments.population import Taken, explored, first_values, score_of, teacher_of
from distrl.apps.experiments.search import Population, Search
from distrl.apps.experiments.sweep import Varied
from distrl.config.load import validated
from distrl.errors import ConfigError

RATE = "network.learning_rate"
VARY = {RATE: {"low": 1e-4, "high": 1e-2, "log": True}, "algorithm.entropy_weight": [0.0, 0.01, 0.1]}
EIGHT = {f"{number:04}": float(number) for number in range(1, 9)}


@pytest.mark.parametrize(
    ("name", "scores", "share", "teachers"),
    [
        ("0001", EIGHT, 0.25, {"0007", "0008"}),
        ("0002", EIGHT, 0.25, {"0007", "0008"}),
        ("0003", EIGHT, 0.25, set()),
        ("0008", EIGHT, 0.25, set()),
        ("0004", EIGHT, 0.5, {"0005", "0006", "0007", "0008"}),
        ("0001", {"0001": 1.0, "0002": 2.0}, 0.25, {"0002"}),  # one at least
        ("0002", {"0001": 1.0, "0002": 2.0}, 0.25, set()),
        ("0001", {"0001": 2.0, "0002": 2.0}, 0.25, set()),  # none is better
        ("0001", {"0001": 1.0, "0002": 1.0, "0003": 1.0, "0004": 2.0}, 0.5, {"0004"}),  # a teacher is better
        ("0001", {"0001": 1.0}, 0.25, set()),
        ("0009", EIGHT, 0.25, set()),  # no episode has ended
    ],
)
def test_the_worst_learn_from_the_best(name, scores, share, teachers):
    found = {teacher_of(name, scores, share, random.Random(seed)) for seed in range(50)}
    assert found == (teachers or {None})


def test_settings_are_changed_by_a_factor_within_bounds_or_drawn_anew():
    vary = {
        "rate": Varied(low=1e-4, high=1e-2),
        "count": Varied(low=1, high=8),
        "weight": Varied(values=(0.0, 0.01, 0.1)),
    }
    same = Population(redraw=0.0, factors=(0.5, 2.0))

    def outcomes(values, population=same):
        return [explored(values, vary, population, random.Random(seed)) for seed in range(100)]

    found = outcomes({"rate": 1e-3, "count": 3, "weight": 0.01})
    assert {each["rate"] for each in found} == {5e-4, 2e-3}
    assert {each["count"] for each in found} == {2, 6}  # 1.5 and 6
    one = [
        explored({"rate": 1e-3, "count": 1, "weight": 0.0}, vary, Population(redraw=0.0), random.Random(seed))
        for seed in range(100)
    ]
    assert {each["count"] for each in one} == {1, 2}  # 1 times 1.25 would be 1
    assert {each["weight"] for each in found} == {0.0, 0.1}
    at_the_ends = outcomes({"rate": 1e-2, "count": 8, "weight": 0.1})
    assert {each["rate"] for each in at_the_ends} == {5e-3, 1e-2}
    assert {each["count"] for each in at_the_ends} == {4, 8}
    assert {each["weight"] for each in at_the_ends} == {0.01, 0.1}
    drawn = outcomes({"rate": 1e-3, "count": 3, "weight": 0.01}, Population(redraw=1.0))
    assert len({each["rate"] for each in drawn}) == 100
    assert {each["weight"] for each in drawn} == {0.0, 0.01, 0.1}


@pytest.mark.parametrize(
    ("row", "taken", "evaluates", "score"),
    [
        ({}, None, False, None),
        ({"episodes": 7, "mean_return_100": 5.0}, None, False, 5.0),
        ({"episodes": 7, "mean_return_100": 5.0}, None, True, None),
        ({"evaluation_env_steps": 100, "evaluation_mean_return": 4.0, "mean_return_100": 5.0}, None, True, 4.0),
        ({"evaluation_env_steps": 100, "evaluation_mean_return": 4.0}, Taken(100, 9), True, None),
        ({"evaluation_env_steps": 101, "evaluation_mean_return": 4.0}, Taken(100, 9), True, 4.0),
        ({"episodes": 499, "mean_return_100": 5.0}, Taken(100, 400), False, None),
        ({"episodes": 500, "mean_return_100": 5.0}, Taken(100, 400), False, 5.0),
        ({"episodes": 7, "mean_return_100": float("nan")}, None, False, None),
    ],
)
def test_a_score_is_of_the_present_networks(row, taken, evaluates, score):
    assert score_of(row, taken, evaluates=evaluates) == score


def test_members_begin_apart_and_the_same_at_every_launch():
    search = validated(Search, {"vary": VARY, "population": {}}, {})
    values = [first_values(search, number) for number in range(1, 9)]
    assert values == [first_values(search, number) for number in range(1, 9)]
    assert len({each[RATE] for each in values}) == 8
    assert all(1e-4 <= each[RATE] <= 1e-2 for each in values)


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"population": {"members": 1}}, "population.members"),
        ({"population": {"share": 0.6}}, "population.share"),
        ({"population": {"factors": [0.0, 2.0]}}, r"factors must be finite numbers above 0, not \[0.0, 2.0\]"),
        ({"population": {}, "trials": 4}, "trials has no use with population; leave it out"),
        ({"population": {}, "pruner": "median"}, "pruner has no use with population"),
        ({"population": {}, "vary": {"a": [1, 2], "b": {"values": [1], "when": {"a": 1}}}}, "without conditions"),
    ],
)
def test_a_population_that_makes_no_sense_is_refused(tree, told):
    with pytest.raises(ConfigError, match=told):
        validated(Search, {"vary": VARY, **tree}, {})
