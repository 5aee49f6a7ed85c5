import json

import optuna
import pytest

from benchmarks import speed, tuning
from benchmarks.measurement import FailedError
from distrl.apps.experiments.search import Search
from distrl.config.load import load, validated


@pytest.mark.parametrize("name", tuning.SEARCHES)
def test_every_search_can_be_tried(name):
    tree = tuning.SEARCHES[name]
    search = validated(Search, {"vary": tree["vary"]}, {})
    tried = tree["set"] | {
        path: varied.values[-1] if varied.values else varied.high for path, varied in search.vary.items()
    }
    load(preset=tree["preset"], sets=[f"{path}={json.dumps(value)}" for path, value in tried.items()])


@pytest.fixture
def study(tmp_path):
    """A search with a trial of 1.5, one of 2.5, and one that was pruned."""
    place = tmp_path / "acrobot"
    place.mkdir()
    made = optuna.create_study(study_name="distrl", storage=f"sqlite:///{place / 'study.db'}", direction="maximize")
    choices = {
        "x": optuna.distributions.FloatDistribution(0.0, 9.0),
        "a.y": optuna.distributions.CategoricalDistribution(["1", "2"]),
    }
    for value, state in ((1.5, "COMPLETE"), (2.5, "COMPLETE"), (None, "PRUNED")):
        params = {"x": value or 0.0, "a.y": "2"}
        trial = optuna.trial.create_trial(
            params=params, distributions=choices, value=value, state=optuna.trial.TrialState[state]
        )
        made.add_trial(trial)
    return place


def test_both_settings_are_judged_under_seeds_that_no_trial_had(study, monkeypatch, tmp_path, capsys):
    commands = []

    def run(arguments):
        commands.append(arguments)
        return json.dumps({"mean_return": 10.0 * len(commands)})

    monkeypatch.setattr(tuning, "run", run)
    monkeypatch.setattr(tuning, "search", lambda name, out: study)
    assert tuning.main(["--only", "acrobot", "--out", str(tmp_path / "out")]) == 0
    trained = [command for command in commands if command[2] == "train"]
    assert [command[3] for command in trained] == [str(study / "base.yaml")] * 3 + [str(study / "best.yaml")] * 3
    assert [command[command.index("--seed") + 1] for command in trained] == ["101", "102", "103"] * 2
    assert capsys.readouterr().out.splitlines()[-1] == (
        "| acrobot | 30,000 | 3, 1 of them pruned | 20, 40, 60: 40 | 80, 100, 120: 100 |"
        " `x` 2.5, `y` 2 (trial 2: 2.50) |"
    )


def test_a_worker_that_fails_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning.sys, "executable", "false")
    with pytest.raises(FailedError, match="distrl tune ended with 1"):
        tuning.Worker(tmp_path, tmp_path / "log").wait()


def test_a_killed_worker_has_ended(monkeypatch, tmp_path):
    program = tmp_path / "sleeps"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(tuning.sys, "executable", str(program))
    worker = tuning.Worker(tmp_path, tmp_path / "log")
    assert worker.process.poll() is None
    worker.kill()
    assert worker.process.poll() == -9


def test_the_page_says_what_the_committed_report_says():
    page = tuning.PAGE.read_text("utf-8")
    assert speed.published(page, "tuning", speed.page_text("tuning", tuning.block)) == page
