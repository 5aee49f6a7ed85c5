import numpy as np
import pytest

from distrl.apps.dashboard.comparing import Asked, Compared
from distrl.apps.dashboard.files import NotThereError, id_of
from distrl.apps.dashboard.payloads import numbers
from distrl.errors import ConfigError
from distrl.observers.metrics_csv import CsvSink


def test_a_run_that_has_ended(runs, make_run):
    numbers = {"mean_return_100": 475.5, "env_steps_per_s": 2356.0, "updates_per_s": 7.5, "wall_s": 68.0, "updates": 4}
    folder = make_run("a", **numbers, policy_lag={"mean": 1.5, "max": 3}, learner_idle_share=0.25)
    (folder / "logs" / "learner.log").touch()
    told = runs.described(id_of("a"))
    snapshot, listed = told["snapshot"], told["run"]["numbers"]
    assert {name: snapshot[name] for name in numbers} == numbers
    assert (snapshot["policy_lag_mean"], snapshot["policy_lag_max"], snapshot["learner_wait_share"]) == (1.5, 3.0, 0.25)
    assert {name: listed[name] for name in numbers.keys() & listed.keys()} == {
        name: snapshot[name] for name in numbers.keys() & listed.keys()
    }
    assert snapshot["training_s"] == listed["training_s"] == 1.5  # of the newest row, over all resumptions
    assert (told["live"], told["logs"]) == (None, ["learner"])
    assert "redis_url" not in str(told)


def test_a_run_without_a_summary_has_a_time_of_training_and_none_from_launch_to_end(runs, make_run):
    make_run("a", ended=False)
    told = runs.described(id_of("a"))
    assert told["snapshot"]["training_s"] == told["run"]["numbers"]["training_s"] == 1.5
    assert "wall_s" not in told["run"]["numbers"]


def test_the_page_the_table_and_the_summary_agree(runs, make_run):
    make_run("a", rows=5, produced=9, trained=6, queued=2, dropped={"stale": 1})
    told = runs.described(id_of("a"))
    assert told["run"]["numbers"]["env_steps"] == told["snapshot"]["env_steps"] == 500
    assert {name: count for name, count in told["ledger"].items() if count} == {
        "produced": 9,
        "trained": 6,
        "queued": 2,
        "dropped": {"stale": 1},
    }
    assert runs.curves(id_of("a"), ["mean_return_100"], "steps", 100, 1)["curves"]["mean_return_100"]["x"][-1] == 500.0


def test_curves(runs, make_run):
    make_run("a", rows=4)
    told = runs.curves(id_of("a"), ["mean_return_100", "loss", "none_such"], "updates", 100, 2)
    assert told.pop("mark").endswith(".4")
    assert told == {
        "over": "updates",
        "more": False,
        "curves": {
            "mean_return_100": {"x": [1.0, 2.0, 3.0, 4.0], "y": [10.0, 15.0, 25.0, 35.0]},
            "loss": {"x": [], "y": []},
            "none_such": {"x": [], "y": []},
        },
        "ruler": {
            "steps": [100.0, 200.0, 300.0, 400.0],
            "updates": [1.0, 2.0, 3.0, 4.0],
            "episodes": [1.0, 2.0, 3.0, 4.0],
            "time": [0.5, 1.0, 1.5, 2.0],
        },
    }


def test_later_rows_continue_a_curve(runs, make_run):
    folder = make_run("a", rows=4)
    mark = runs.curves(id_of("a"), ["mean_return_100"], "updates", 100, 2)["mark"]
    sink = CsvSink(folder / "metrics.csv")
    sink.write({"updates": 5, "env_steps": 500, "episodes": 5, "wall_s": 2.5, "mean_return_100": 50.0})
    sink.close()
    told = runs.curves(id_of("a"), ["mean_return_100"], "updates", 100, 2, raw=True, since=mark)
    assert told["curves"] == {"mean_return_100": {"x": [5.0], "y": [45.0]}}
    assert told["raw"] == {"mean_return_100": {"x": [5.0], "y": [50.0]}}
    assert told["ruler"] == {"steps": [500.0], "updates": [5.0], "episodes": [5.0], "time": [2.5]}
    assert told["more"]
    other = runs.curves(id_of("a"), ["mean_return_100"], "updates", 100, 2, since="0.4")
    assert (other["more"], len(other["curves"]["mean_return_100"]["x"])) == (False, 5)


def test_long_curves_are_thinned_out(runs, make_run):
    make_run("a", rows=3000)
    line = runs.curves(id_of("a"), ["mean_return_100"], "time", 50, 1)["curves"]["mean_return_100"]
    assert len(line["x"]) <= 50
    assert (line["y"][0], line["y"][-1]) == (10.0, 30000.0)


def test_the_configuration_is_masked(runs, make_run):
    make_run("a", config="memory:\n  url: redis://:pw@h  # flag --redis-url\n")
    (value,) = runs.configuration(id_of("a"))["values"]
    assert value == {
        "path": "memory.url",
        "value": "redis://•••@h",
        "origin": "flag --redis-url",
        "text": "redis://•••@h",
    }


def test_a_run_whose_redis_is_gone(runs, make_run, alive, tmp_path, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.live_runs.GIVE_UP_S", 0.01)
    make_run("a", ended=False, pid=alive, redis_url=f"unix://{tmp_path}/none")
    (row,) = runs.listed()
    assert (row["state"], row["numbers"]) == ("running", {})
    assert "is unreachable" in row["problem"]
    told = runs.described(id_of("a"))
    assert "is unreachable" in told["live"]["problem"]
    assert told["snapshot"]["updates"] == 3.0  # of its files
    assert "is unreachable" in runs.fleet()["redis"][0]["problem"]


def test_a_damaged_table_leaves_the_rest(runs, make_run):
    (make_run("a") / "metrics.csv").write_text("a,b\n1\n")
    told = runs.described(id_of("a"))
    assert (told["columns"], told["run"]["state"]) == (["a", "b"], "ended")
    assert told["snapshot"]["env_steps"] == 300  # of its summary
    make_run("b")
    compared = Compared(runs, Asked([id_of("a"), id_of("b")])).curves("mean_return_100", "steps", 100, 1)
    assert [len(line["x"]) for line in compared["curves"].values()] == [0, 3]
    with pytest.raises(ConfigError, match="is not a table of metrics"):
        runs.curves(id_of("a"), ["loss"], "steps", 10, 1)


def test_a_run_that_is_gone_is_read_once_per_look_at_the_directories(runs, make_run, make_summary, monkeypatch):
    folder = make_run("a", ended=False)
    monkeypatch.setattr("distrl.apps.dashboard.index.FRESH_S", 1e9)
    (first,) = runs.listed()
    assert (first["state"], first["numbers"]["env_steps"]) == ("gone", 300)
    assert runs.listed()[0] is first
    make_summary(run_id="a").write(folder / "summary.json")
    runs.index._due = 0.0
    assert runs.listed()[0]["state"] == "ended"


def test_no_such_run(runs):
    for ask in (runs.described, runs.configuration, lambda one: runs.curves(one, ["loss"], "steps", 10, 1)):
        with pytest.raises(NotThereError):
            ask("0000000000000000")


def test_numbers_for_json():
    assert numbers(np.array([1 / 3, np.nan, np.inf, 123456789.0])) == [0.3333333, None, None, 123456800.0]
