import pytest

from benchmarks import provenance, schedule
from benchmarks.measurement import FailedError, keep, result_path
from benchmarks.schedule import measure_all, open_measurements, remaining_s


def test_what_is_there_is_not_measured_again(row, result):
    one, two = row("one"), row("two")
    kept = [result("one", 1, 0.0), result("two", 2, 0.0)]
    assert open_measurements([one, two], [1, 2], kept) == [(two, 1), (one, 2)]


def test_a_row_with_seeds_of_its_own_is_measured_under_these(measured, row, tmp_path, capsys):
    measure_all([row("one", seeds=(2,)), row("three")], [1, 2], tmp_path, print)
    assert measured == [("three", 1), ("one", 2), ("three", 2)]
    assert "[1/3] three seed 1" in capsys.readouterr().out


def test_the_rest_takes_as_long_as_what_was_like_it(row, result):
    one, two, pong = row("one"), row("two"), row("pong", None, env_steps=None, minutes=2.0)
    done = [result("one", 1, 0.0, wall_s=10.0), result("one", 2, 0.0, wall_s=30.0)]
    assert remaining_s([(one, 3), (two, 1), (pong, 1)], done) == 20.0 + 20.0 + 120.0
    assert remaining_s([(one, 3)], []) is None


@pytest.fixture
def measured(monkeypatch, result):
    """Stands for measuring: row "two" fails under seed 1."""
    calls = []

    def measure(row, seed, out):
        calls.append((row.name, seed))
        if (row.name, seed) == ("two", 1):
            raise FailedError("distrl: error: no")
        made = result(row.name, seed, 470.0 + seed, configuration=configuration(row))
        keep(result_path(out, row, seed), vars(made))
        return made

    monkeypatch.setattr(schedule, "measure", measure)
    monkeypatch.setattr(schedule, "random_return", lambda row, seed, out: 22.0)
    monkeypatch.setattr(provenance, "configuration", configuration)
    return calls


def configuration(row):
    return f"{row.name} {row.sets}"


def test_another_configuration_is_measured_again(measured, row, tmp_path):
    measure_all([row("one")], [2], tmp_path, print)
    measure_all([row("one")], [2], tmp_path, print)
    measure_all([row("one", sets=("a=1",))], [2], tmp_path, print)
    assert measured == [("one", 2), ("one", 2)]


def test_random_actions_are_measured_when_they_are_missing(measured, monkeypatch, row, tmp_path):
    asked = []

    def random_return(row, seed, out):
        asked.append((row.name, seed))
        if len(asked) == 1:
            raise FailedError("no")

    monkeypatch.setattr(schedule, "random_return", random_return)
    rows = [row("one"), row("two")]
    assert measure_all(rows, [1], tmp_path, print)[1][-1] == "random actions in CartPole-v1: no"
    assert measure_all(rows, [1], tmp_path, print)[1] == ["two seed 1: distrl: error: no"]
    assert asked == [("one", 1)] * 2


def test_all_are_measured_and_a_second_time_only_what_failed(measured, row, tmp_path):
    rows, told = [row("one"), row("two")], []
    results, failures = measure_all(rows, [1, 6], tmp_path, told.append)
    assert measured == [("one", 1), ("two", 1), ("one", 6), ("two", 6)]
    assert [(found.row, found.seed) for found in results] == [("one", 1), ("one", 6), ("two", 6)]
    assert failures == ["two seed 1: distrl: error: no"]
    assert told[1] == ("[1/4] one seed 1: mean return 471.0 (MISSED 475) after 200,000 steps in 0 s · 3 min to go")
    assert told[3] == "[2/4] two seed 1: failed: distrl: error: no in 0 s · 2 min to go"
    assert told[5].startswith("[3/4] one seed 6: mean return 476.0 (>= 475) after")
    measured.clear()
    told.clear()
    measure_all(rows, [1, 6], tmp_path, told.append)
    assert measured == [("two", 1)]
    assert told[0] == "3 of 4 are there already"


@pytest.mark.parametrize(("seconds", "words"), [(99.4, "99 s"), (150, "2 min"), (5999, "100 min"), (9000, "2.5 h")])
def test_times_are_told_roughly(seconds, words):
    assert schedule.in_words(seconds) == words
