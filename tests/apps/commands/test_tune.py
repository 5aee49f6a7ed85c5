"""`distrl tune`; tests/failures/test_tune.py trains."""

import pytest

from distrl.apps.commands.main import main
from distrl.apps.experiments import evolving, tuning
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.population_record import open_record

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
        (
            "set: {environment.id: CartPole-v1, recording.name: all}\nvary: {network.learning_rate: [0.1, 1.0]}",
            "recording.name: all (from file rates.yaml): several runs would record to one data set; train one with",
        ),
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


@pytest.fixture
def populations(file, monkeypatch):
    """Calls of `evolve`, which trains nothing."""
    calls = []

    def evolve(search, place, say):
        calls.append((search, place))
        open_record(search, place).write(place)
        return 130

    monkeypatch.setattr(evolving, "evolve", evolve)
    file.write_text("set: {environment.id: CartPole-v1}\nvary: {network.learning_rate: {low: 1e-4, high: 1e-2}}\n")
    return calls


def test_a_population_a_launch_that_goes_on_and_their_words(file, populations, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # neither Optuna nor matplotlib
    assert main(["tune", str(file), "--dir", "rates", "--population", "3", "--minutes", "2"]) == 130
    ((search, place),) = populations
    assert (place.path.name, search.population.members, search.minutes) == ("rates", 3, 2.0)
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "population in rates"
    assert told[1].startswith("0001       unknown after 0 steps  network.learning_rate=")
    assert told[4:6] == [
        "0 times a member took over from a better one: rates/population.json",
        "go on with: distrl tune rates",
    ]
    assert told[6].startswith("no pictures: matplotlib, which draws the picture of a population, is not installed")
    assert main(["tune", "rates"]) == 130
    assert (populations[1][0].population.members, populations[1][0].minutes) == (3, None)
    place.file.write_text(place.file.read_text().partition("population:")[0])
    assert main(["tune", "rates"]) == 2
    assert "rates holds a population, and rates/search.yaml has no section population" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--population", "3", "--parallel", "2"], "--parallel 2 has no use with population: all members train at"),
        (["--population", "3", "--trials", "2"], "trials has no use with population; leave it out"),
        (["--population", "1"], "should be greater than or equal to 2"),
    ],
)
def test_flags_that_a_population_has_no_use_for(file, populations, capsys, options, told):
    assert main(["tune", str(file), "--dir", "rates", *options]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (file.parent / "rates").exists()
    assert populations == []


def test_a_population_needs_settings_that_may_change(file, populations, capsys):
    file.write_text("set: {environment.id: CartPole-v1}\nvary: {learner.batch_size: [1, 2]}\n")
    assert main(["tune", str(file), "--dir", "rates", "--population", "3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "vary.learner.batch_size: it cannot change while a member trains; these can: network.learning_rate" in line
    assert not (file.parent / "rates").exists()


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
