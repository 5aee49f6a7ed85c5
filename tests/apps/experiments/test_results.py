import pytest

from distrl.apps.experiments.directory import RunResult, SweepRun
from distrl.apps.experiments.results import ReturnScale, Wording, comparisons, each_over_each, over_the_best
from distrl.apps.experiments.sweep import Planned
from distrl.apps.reports.intervals import interval
from distrl.errors import ConfigError


def done(score, seed=1, steps=100, seconds=60.0, **values):
    dotted = {name.replace("__", "."): value for name, value in values.items()}
    return SweepRun(Planned(seed, dotted, seed), RunResult("done", steps, seconds, score))


def failed(seed=1, **values):
    return SweepRun(done(0, seed, **values).planned, RunResult("failed", 10, 1.0, 99.0, "broken"))


def test_combinations_are_ordered_by_the_returns_of_runs_that_are_done():
    runs = [done(1.0, a=1), done(2.0, 2, a=1), failed(a=2), done(5.0, 2, 200, 120.0, a=2), failed(a=3)]
    runs.append(SweepRun(done(0, 2, a=3).planned, RunResult("interrupted", 10, 1.0, 99.0)))
    (found,) = comparisons(runs, "E-v0", {})
    assert found.environment == "E-v0"
    assert [(one.label, one.scores, one.score) for one in found.combinations] == [
        ("a=2", ((5.0,),), interval([5.0])),
        ("a=1", ((1.0, 2.0),), interval([1.0, 2.0])),
        ("a=3", (), None),
    ]
    assert [(one.scored, one.failed, one.steps, one.minutes) for one in found.combinations] == [
        (1, 1, (200, 200), 2.0),
        (2, 0, (100, 100), 1.0),
        (0, 1, None, None),
    ]
    assert len(found.scored) == 2


def test_each_environment_is_compared_alone_without_bounds():
    runs = [done(1.0, environment__id="A"), done(2.0, environment__id="B"), failed(environment__id="B")]
    found = comparisons(runs, "unused", {})
    assert [(each.environment, [one.label for one in each.combinations]) for each in found] == [
        ("A", ["every seed"]),
        ("B", ["every seed"]),
    ]


def test_all_environments_are_compared_between_their_bounds():
    """Combination 2 is in one environment alone, and 3 has no score in the other: neither has one in all."""
    runs = [
        *(done(score, seed, environment__id="A", x=1) for seed, score in ((1, 50.0), (2, 100.0))),
        *(done(score, seed, environment__id="B", x=1) for seed, score in ((1, -1.0), (2, 1.0))),
        done(1.0, environment__id="A", x=2),
        done(1.0, environment__id="A", x=3),
        failed(environment__id="B", x=3),
    ]
    together, *each = comparisons(runs, "unused", {"A": ReturnScale(0.0, 100.0), "B": ReturnScale(-1.0, 1.0)})
    assert together.environment is None
    assert [(one.label, one.scores) for one in together.combinations] == [
        ("x=1", ((0.5, 1.0), (0.0, 1.0))),
        ("x=3", ()),
    ]
    assert together.combinations[0].score == interval([0.5, 1.0, 0.0, 1.0], [2, 2])
    assert together.combinations[0].values == {"x": 1}
    assert [one.environment for one in each] == ["A", "B"]
    assert each[0].combinations[0].scores == ((50.0, 100.0),)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"A": ReturnScale(0, 1)}, "--normalise needs bounds of every environment; add --normalise B=LOW:HIGH"),
        ({"A": ReturnScale(0, 1), "C": ReturnScale(0, 1)}, "--normalise C: no run has it; "),
    ],
)
def test_bounds_that_do_not_fit(bounds, told):
    runs = [done(1.0, environment__id="A"), done(2.0, environment__id="B")]
    with pytest.raises(ConfigError, match=told):
        comparisons(runs, "unused", bounds)


def test_bounds_of_one_environment():
    with pytest.raises(ConfigError, match="all runs have E-v0; leave it out"):
        comparisons([done(1.0)], "E-v0", {"E-v0": ReturnScale(0, 1)})


def test_improvement_over_the_best_and_over_each():
    runs = [
        done(score, seed, a=a)
        for a, scores in ((1, (1.0, 3.0)), (2, (2.0, 5.0)), (3, (0.0,)))
        for seed, score in enumerate(scores)
    ]
    (found,) = comparisons(runs, "E-v0", {})
    assert {label: one.centre for label, one in over_the_best(found).items()} == {"a=1": 0.25, "a=3": 0.0}
    every = each_over_each(found)
    assert every["a=1", "a=2"] == over_the_best(found)["a=1"]
    assert every["a=2", "a=1"] == (0.75, 1.0 - every["a=1", "a=2"].high, 1.0 - every["a=1", "a=2"].low)
    assert len(every) == 6
    assert over_the_best(comparisons([failed()], "E-v0", {})[0]) == {}


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (
            [{"network.learning_rate": 1e-3}, {"network.learning_rate": 0.01}],
            ["learning_rate=0.001", "learning_rate=0.01"],
        ),
        ([{"x": 0.123456}, {"x": 0.123499}], ["x=0.12346", "x=0.1235"]),  # as many digits as tell them apart
        (
            [{"algorithm.name": "ppo", "a.clip": 1}, {"algorithm.name": "a2c"}],
            ["algorithm=ppo clip=1", "algorithm=a2c"],
        ),
        ([{"a.rate": 1, "b.rate": None}], ["a.rate=1 b.rate=null"]),
        ([{"environment.kwargs.api_key": "k3y"}], ["api_key=•••"]),
        ([{"actors.count": 1}], ["actors.count=1"]),  # a bare count says nothing
        ([{"environment.id": "A"}], ["every seed"]),
    ],
)
def test_labels_are_short_and_tell_combinations_apart(values, labels):
    runs = [
        SweepRun(Planned(place, each, 1), RunResult("done", 1, 1.0, -float(place))) for place, each in enumerate(values)
    ]
    wording = Wording(runs)
    found = [
        wording.label({path: value for path, value in each.items() if path != "environment.id"}) for each in values
    ]
    assert found == labels
    assert wording.value({}, "x") == "–"


def test_labels_are_told_apart_from_settings_that_do_not_vary():
    (found,) = comparisons([done(1.0, checkpoint__keep_s=2)], "E-v0", {}, ["checkpoint.keep_s", "films.keep_s"])
    assert found.combinations[0].label == "checkpoint.keep_s=2"


def test_combinations_that_print_alike_have_labels_of_their_own():
    runs = [done(1.0, a=1), done(3.0, 2, a="1"), done(2.0, 3, a=True)]
    (found,) = comparisons(runs, "E-v0", {})
    assert [(one.label, one.scores) for one in found.combinations] == [
        ("a=1", ((3.0,),)),
        ("a=true", ((2.0,),)),
        ("a=1 (2)", ((1.0,),)),
    ]
    assert set(over_the_best(found)) <= {"a=1", "a=true", "a=1 (2)"}
