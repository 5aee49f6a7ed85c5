import os
import time
from dataclasses import asdict

import numpy as np
import pytest

from distrl.apps.dashboard.marks import columns, marks
from distrl.config.settings import Setting
from distrl.memory_backend.records import Estimate, Evaluation
from distrl.runs.evaluations import write_evaluation

BEGAN = 1_700_000_000


def clock(second):
    """The time of day as events.log has it, so many seconds after the beginning."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(BEGAN + second))


@pytest.fixture
def table():
    rows = np.arange(0.0, 101.0)
    return {"env_steps": 10 * rows, "updates": rows, "episodes": rows, "wall_s": rows}


@pytest.fixture
def folder(tmp_path):
    """A run whose training began at second 20 and whose newest row is of second 120."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "metrics.csv").touch()
    os.utime(tmp_path / "metrics.csv", (BEGAN + 120, BEGAN + 120))
    return tmp_path


def log(folder, *events):
    lines = [f"{clock(second)} {text}" for second, text in events]
    (folder / "logs" / "events.log").write_text("\n".join(lines) + "\n")


def shown(found):
    return [(round(one["x"]), one["kind"]) for one in found["marks"]]


def test_events_are_placed_by_the_clock_and_the_newest_row(folder, table):
    log(
        folder,
        (0, "run 1 in runs/a"),
        (40, "actor 0 started again (restart 1)"),
        (50, "asked: network.learning_rate 0.001 (by ann)"),
        (60, "scaled from 2 to 4 actors"),
        (70, "asked: pause (by ann)"),
        (75, "nothing of interest"),
        (300, "asked: stop (by ann)"),
    )
    found = marks(folder, table, {}, "steps")
    assert shown(found) == [(200, "restart"), (300, "parameter"), (400, "scale"), (500, "request")]
    assert found["marks"][1]["text"] == "asked: network.learning_rate 0.001 (by ann)"
    assert found["unplaced"] == 1
    assert [one["x"] for one in marks(folder, table, {}, "time")["marks"]] == [20.0, 30.0, 40.0, 50.0]


def test_a_resumed_run_goes_on_at_its_checkpoint(folder, table):
    log(
        folder,
        (-500, "run 1 in runs/a"),
        (-400, "evaluation at 300 steps: return 1.0 ± 0.5 over 5 episodes"),
        (-390, "actor 1 started again (restart 1)"),
        (70, "run 1 in runs/a"),
        (70, "resuming from ckpt-000000000070 (update 70)"),
        (72, "actor 0 started again (restart 1)"),
    )
    found = marks(folder, table, {}, "updates")
    assert shown(found) == [(40, "restart"), (70, "resumed"), (70, "restart")]


def test_checkpoints_targets_and_stages(folder, table):
    (folder / "checkpoints").mkdir()
    for name in ("ckpt-000000000040", "ckpt-000000000090", "ckpt-000000000090.replaced", "other"):
        (folder / "checkpoints" / name).mkdir()
    (folder / "checkpoints" / "best").write_text("ckpt-000000000040\n")
    table["curriculum_size"] = np.where(table["updates"] < 55, 1.0, 2.0)
    settings = {"stop.mean_return": Setting(475.0, "preset"), "stop.evaluation_return": Setting(None, "default")}
    settings |= {"stop.metrics.reward/forward": Setting(3, "flag"), "stop.metrics": Setting({}, "default")}
    found = marks(folder, table, settings, "steps")
    assert [(one["x"], one["text"]) for one in found["marks"]] == [
        (400.0, "checkpoint of update 40, the best"),
        (550.0, "size is 2"),
        (900.0, "checkpoint of update 90"),
    ]
    assert found["targets"] == [
        {"setting": "stop.mean_return", "metric": "mean_return_100", "value": 475.0},
        {"setting": "stop.metrics.reward/forward", "metric": "info_reward_forward_100", "value": 3.0},
    ]


def test_of_many_checkpoints_marks_are_spread_over_the_run_and_the_best_one_is_there(folder, table, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.marks.MOST_MARKS", 5)
    for update in range(1, 101):
        (folder / "checkpoints" / f"ckpt-{update:012}").mkdir(parents=True)
    (folder / "checkpoints" / "best").write_text("ckpt-000000000007\n")
    found = marks(folder, table, {}, "updates")["marks"]
    assert [one["x"] for one in found] == [1.0, 7.0, 25.0, 50.0, 75.0, 100.0]
    assert [one["text"] for one in found if "best" in one["text"]] == ["checkpoint of update 7, the best"]


def test_evaluations_have_the_spread_of_their_record(folder, table):
    told = Evaluation(1, 1000, 5, 1234.5, 10.5, 1200.0, 1240.0, 9.0, 0.5, success_rate=0.2)
    write_evaluation(folder / "evaluations.jsonl", asdict(told))
    table["evaluation_env_steps"] = np.where(table["updates"] < 10, np.nan, 50.0)
    table["evaluation_mean_return"] = np.where(table["updates"] < 10, np.nan, -2.0)
    assert marks(folder, table, {}, "updates")["evaluations"] == [
        {"x": 5.0, "mean": -2.0, "low": -2.0, "high": -2.0, "episodes": None},
        {"x": 100.0, "mean": 1234.5, "low": 1224.0, "high": 1240.0, "episodes": 5},
    ]


def test_estimates_have_their_intervals_beside_what_was_played(folder, table):
    estimates = (Estimate("fqe", 5.0, 4.0, 6.5), Estimate("ips", problem="no weights"), Estimate("wis", 3.0))
    told = Evaluation(1, 1000, 5, 9.0, 0.0, 9.0, 9.0, 9.0, 0.5, mean_discounted_return=4.5, estimates=estimates)
    write_evaluation(folder / "evaluations.jsonl", asdict(told))
    assert marks(folder, table, {}, "updates")["estimates"] == {
        "evaluation_mean_discounted_return": [{"x": 100.0, "mean": 4.5, "low": None, "high": None}],
        "evaluation_off_policy_fqe": [{"x": 100.0, "mean": 5.0, "low": 4.0, "high": 6.5}],
        "evaluation_off_policy_wis": [{"x": 100.0, "mean": 3.0, "low": None, "high": None}],
    }


def test_a_run_without_rows_has_no_marks(folder):
    assert marks(folder, {}, {}, "steps") == {
        "marks": [],
        "evaluations": [],
        "estimates": {},
        "targets": [],
        "unplaced": 0,
    }
    assert columns(["loss", "curriculum_a"])[-1] == "curriculum_a"


def test_checkpoints_outside_of_the_run_are_not_looked_at(folder, table, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "ckpt-000000000040").touch()
    (folder / "checkpoints").symlink_to(elsewhere)
    assert marks(folder, table, {}, "steps")["marks"] == []


def test_numbers_that_no_float_holds_are_left_out(folder, table):
    evaluation = Evaluation(1, 10**400, 1, 2.0, 0.0, 2.0, 2.0, 5.0, 1.0)
    write_evaluation(folder / "evaluations.jsonl", asdict(evaluation))
    found = marks(folder, table, {"stop.mean_return": Setting(10**400, "")}, "steps")
    assert (found["targets"], found["evaluations"]) == ([], [])
