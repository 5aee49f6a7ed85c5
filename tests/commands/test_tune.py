"""`distrl tune`; tests/failures/test_tune.py trains."""

import pytest

from distrl.commands.main import main
from distrl.experiments import tuning
from distrl.experiments.directory import SweepDirectory

SEARCH = """\
set: {environment.id: CartPole-v1, stop.env_steps: 100}
vary: {network.learning_rate: {low: 1e-4, high: 1e-2, log: true}}
trials: 3
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rates.yaml"
    path.write_text(SEARCH)
    return path


@pytest.fixture
def launches(monkeypatch):
    """Calls of `tune`, which trains nothing and notes one trial."""
    calls = []

    def tune(search, place, parallel, say):
        calls.append((search, place, parallel))
        study = tuning.open_study(search, place)
        trial = study.ask()
        trial.suggest_float("network.learning_rate", 1e-4, 1e-2, log=True)
        study.tell(trial, 7.0)
        return 0

    monkeypatch.setattr(tuning, "tune", tune)
    return calls


def test_a_new_search_a_launch_that_goes_on_and_their_words(file, launches, capsys):
    assert main(["tune", str(file), "--dir", "rates", "--parallel", "2", "--trials", "9", "--minutes", "2"]) == 0
    ((search, place, parallel),) = launches
    assert (place.path.name, parallel, search.trials, search.minutes) == ("rates", 2, 9, 2.0)
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == ["search in rates", "trials: 1 complete"]
    assert told[2].startswith("best: trial 1, mean return 7.00: network.learning_rate=")
    assert told[3:] == ["go on with: distrl tune rates", "pictures: rates/history.svg"]
    (place.path / "best.yaml").touch()
    assert main(["tune", "rates"]) == 0
    assert launches[1][0].trials == 9  # the file in the directory has it
    assert launches[1][0].minutes is None  # those were the first launch's
    assert "train with it: distrl train rates/best.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("set: {environment.id: CartPole-v1}", "vary names no setting to search"),
        ("vary: {network.lerning_rate: [1]}", "did you mean network.learning_rate?"),
        ("vary: {seed: [1]}", "vary.seed: every run has a seed already"),
        ("vary: {network.learning_rate: [0.1]}\npruner: median", "evaluation.every_env_steps is null"),
    ],
)
def test_bad_searches_are_one_line_and_leave_nothing(file, launches, capsys, text, told):
    file.write_text(text)
    assert main(["tune", "rates.yaml", "--dir", "rates"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("distrl: error: ")
    assert told in line
    assert not SweepDirectory(file.parent / "rates").path.exists()
    assert not launches


def test_directories_that_contradict_each_other(file, launches, capsys):
    main(["tune", str(file), "--dir", "rates"])
    for arguments, told in (
        (["tune", str(file), "--dir", "rates"], "already holds a search; go on with: distrl tune rates"),
        (["tune", "rates", "--dir", "other"], "rates is a search's directory, which --dir other contradicts"),
        (["tune", "."], "there is no search.yaml; name the file of a search, or a search's directory"),
        (["sweep", "rates"], "there is no rates/sweep.yaml; name the file of a sweep, or a sweep's directory"),
    ):
        assert main(arguments) == 2
        assert told in capsys.readouterr().err.splitlines()[-1]


def test_without_optuna_the_extra_is_named(file, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["tune", str(file)]) == 2
    assert "Optuna, which proposes settings, is not installed: pip install" in capsys.readouterr().err
