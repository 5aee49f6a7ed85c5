"""`environment.metrics` in whole trainings in one process: metrics.csv, evaluations, `stop`, and resumed runs."""

import csv

import pytest

import distrl
from distrl.data_store.checkpoints import load_newest
from distrl.observers.metrics_csv import CsvSink
from tests.launch.test_deterministic import Training, compare

METRICS = {"pay": "sum", "episode": "last", "late": "max", "never": "mean"}


def config(algorithm="impala", **tree):
    """Every update takes one unroll of four rows, and so two episodes, the next ones of two environments."""
    return {
        "environment": {
            "id": "tests.measured:Measured",
            "kwargs": {"n": 2, "length_steps": 3},
            "vectorization": "sync",
            "metrics": METRICS,
        },
        "algorithm": {"name": algorithm},
        "network": {"middleware_parameters": {"scheme": [4]}},
        "actors": {"count": 0, "environments": 2, "unroll_length_steps": 4},
        "learner": {"batch_size": 1},
        "checkpoint": {"every_s": None, "every_updates": 1000},
        **tree,
    }


def rows_of(path):
    """Return the rows of metrics.csv by updates."""
    with path.open() as file:
        return {int(row["updates"]): row for row in csv.DictReader(file)}


def test_the_columns_are_means_over_the_last_100_episodes(tmp_path):
    run = Training(tmp_path, "run", "impala")
    run.config = config(evaluation={"every_env_steps": 60, "episodes": 4, "environments": 2})
    run.stop = {"metrics": {"episode": 30.5}}
    reason, snapshot = run.train(1000)
    assert (reason, snapshot["updates"], snapshot["unreported"]) == ("metrics", 55, "never")
    sink = CsvSink(tmp_path / "metrics.csv")
    for each in run.snapshots:
        sink.write(each)
    sink.close()
    rows = rows_of(tmp_path / "metrics.csv")
    names = ("info_pay_100", "info_episode_100", "info_late_100", "info_never_100")
    assert {updates: [row[name] for name in names] for updates, row in rows.items()} == {
        10: ["6.0", "5.5", "6.5", ""],
        20: ["6.0", "10.5", "11.5", ""],
        30: ["6.0", "15.5", "16.5", ""],
        40: ["6.0", "20.5", "21.5", ""],
        50: ["6.0", "25.5", "26.5", ""],
        55: ["6.0", "30.5", "30.5", ""],
    }
    # Two episodes of each of the evaluation's environments: its sixth, of the last weights, has the numbers 11 and 12.
    evaluated = [rows[55][f"evaluation_info_{name}"] for name in ("pay", "episode", "never")]
    assert evaluated == ["6.0", "11.5", ""]


@pytest.mark.long
def test_actors_with_environments_in_processes_report_them_over_redis(tmp_path):
    tree = config(actors={"count": 1, "environments": 2, "unroll_length_steps": 4})
    tree |= {"stop": {"metrics": {"episode": 40.5}, "updates": 2000}}
    tree["environment"]["vectorization"] = "async"
    tree["evaluation"] = {"every_env_steps": 60, "episodes": 4, "environments": 2}
    summary = distrl.train(distrl.RunConfig.model_validate(tree), run_dir=str(tmp_path / "run"), view="silent")
    assert (summary.error, summary.stop_reason, summary.imbalance) == (None, "metrics", 0)
    last = [*rows_of(tmp_path / "run" / "metrics.csv").values()][-1]
    assert (last["info_pay_100"], last["info_never_100"]) == ("6.0", "")
    assert float(last["info_episode_100"]) == float(last["info_late_100"]) >= 40.5
    events = (tmp_path / "run" / "logs" / "events.log").read_text()
    assert events.count("environment.metrics: info of the last 100 episodes does not have never") == 1
    assert "over 4 episodes, pay 6.00, episode" in events


@pytest.mark.parametrize("algorithm", ["a3c", pytest.param("dqn", marks=pytest.mark.long)])
def test_gradient_actors_and_replay_report_them_too(tmp_path, algorithm):
    run = Training(tmp_path, "run", algorithm)
    run.config = config(algorithm)
    if algorithm == "dqn":
        run.config["algorithm"]["replay"] = {"capacity_steps": 1000, "min_size_steps": 6, "samples_per_insert": None}
        run.config["learner"] = {"batch_size": 2}
    else:
        del run.config["learner"]
    _, snapshot = run.train(12)
    assert snapshot["episodes"] > 3
    assert snapshot["info_pay_100"] == 6.0
    assert snapshot["info_episode_100"] == (snapshot["episodes"] / 2 + 1) / 2
    assert snapshot["info_never_100"] is None


def test_a_resumed_run_goes_on_bit_by_bit_and_may_have_further_metrics(tmp_path):
    runs = [Training(tmp_path, name, "impala") for name in ("whole", "halves")]
    for run in runs:
        run.config = config(checkpoint={"every_s": None, "every_updates": 3})
        run.config["environment"]["metrics"] = {"drawn": "mean", "pay": "sum"}
    compare(*runs)
    whole, halves = (load_newest(run.run_dir / "checkpoints").meta["recent_metrics"] for run in runs)
    assert whole == halves
    assert len(whole["drawn"]) == len({*whole["drawn"]}) == 12
    runs[1].config["environment"]["metrics"] = {"late": "max", "pay": "sum"}
    _, snapshot = runs[1].train(9)
    assert (snapshot["info_late_100"], snapshot["info_pay_100"]) == (3.0, 6.0)  # late: of the third of three episodes
    assert "info_drawn_100" not in snapshot
    meta = load_newest(runs[1].run_dir / "checkpoints").meta["recent_metrics"]
    assert [(name, len(values)) for name, values in meta.items()] == [("late", 6), ("pay", 18)]
