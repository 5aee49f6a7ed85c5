"""`distrl sweep` and `distrl train --seeds`; tests/failures/test_sweep.py trains."""

import pytest

from distrl.apps.commands import sweep as module
from distrl.apps.commands.main import main
from distrl.apps.experiments.directory import RunResult, SweepDirectory, SweepRun, read_file
from distrl.apps.experiments.running import LaunchEnd
from distrl.apps.experiments.sweep import Planned, Sweep

SWEEP = """\
set: {environment.id: CartPole-v1, stop.env_steps: 100}
vary: {network.learning_rate: [1e-3, 1e-4]}
seeds: 1..2
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rates.yaml"
    path.write_text(SWEEP)
    return path


@pytest.fixture
def launches(monkeypatch):
    """Calls of `run_sweep`, which trains nothing."""
    calls = []

    def run_sweep(sweep, place, parallel, say, *, again, elsewhere):
        assert elsewhere is None
        calls.append((sweep, place, parallel, again))
        runs = [
            SweepRun(Planned(1, {"a": 1}, 1), RunResult("done", 100, 1.0, 7.0)),
            SweepRun(Planned(2, {"a": 1}, 2), RunResult("done", 100, 1.0, 9.0)),
            SweepRun(Planned(3, {"a": 2}, 1), RunResult("done", 100, 1.0, 8.5)),
            SweepRun(Planned(4, {"a": 2}, 2), RunResult("failed", 10, 1.0, 1.0, "broken")),
            SweepRun(Planned(5, {"a": 3}, 1), RunResult("interrupted")),
        ]
        return LaunchEnd(runs, 1, 1)

    monkeypatch.setattr(module, "run_sweep", run_sweep)
    return calls


def test_a_new_sweep_gets_a_directory_and_ends_with_the_best_first(file, launches, capsys):
    assert main(["sweep", str(file), "--dir", "rates", "--parallel", "2"]) == 1
    ((sweep, place, parallel, again),) = launches
    assert (place.path.name, parallel, again) == ("rates", 2, False)
    assert (read_file(place.file, Sweep)[0], sweep.seeds) == (sweep, (1, 2))
    assert capsys.readouterr().out.splitlines() == [
        "sweep in rates",
        "settings  runs  mean return  95 % interval  least  greatest  failed",
        "a=2       1     8.50         –              8.50   8.50      1",
        "a=1       2     8.00         7.00 … 9.00    7.00   9.00",
        "a=3       0     –            –              –      –",
        "1 run is left; go on with: distrl sweep rates --parallel 2",
        "all runs: rates/sweep.json; distrl report rates; distrl compare rates",
    ]


def test_a_directory_goes_on_with_another_budget(file, launches):
    main(["sweep", str(file), "--dir", "rates"])
    assert main(["sweep", "rates", "--runs", "3", "--minutes", "5", "--again"]) == 1
    sweep, place, parallel, again = launches[1]
    assert (sweep.budget.runs, sweep.budget.minutes, parallel, again) == (3, 5.0, 1, True)
    assert read_file(place.file, Sweep)[0].budget.runs is None  # the file stays as it was written


def test_a_default_directory_is_a_new_one_under_runs(file, launches):
    main(["sweep", str(file)])
    assert launches[0][1].path.parent.name == "runs"
    assert launches[0][1].path.name.startswith("rates-")


def test_a_dry_run_lists_the_runs_and_writes_nothing(file, launches, capsys):
    assert main(["sweep", str(file), "--dir", "rates", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "run   settings                             state",
        "0001  network.learning_rate=0.001 seed 1   waiting",
        "0002  network.learning_rate=0.001 seed 2   waiting",
        "0003  network.learning_rate=0.0001 seed 1  waiting",
        "0004  network.learning_rate=0.0001 seed 2  waiting",
        "4 runs",
    ]
    place = SweepDirectory(file.parent / "rates")
    assert not place.path.exists()
    assert not launches

    main(["sweep", str(file), "--dir", "rates"])
    place.write_index(
        [SweepRun(Planned(1, {"network.learning_rate": 1e-3}, 1), RunResult("failed", error="broken"))], 0.0
    )
    capsys.readouterr()
    main(["sweep", "rates", "--dry-run"])
    states = [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert states == ["failed", "waiting", "waiting", "waiting"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("vary: {network.lerning_rate: [1, 2]}", "did you mean network.learning_rate?"),
        ("set: {environment.id: CartPole-v1}", "nothing to compare"),
        ("set: [1]\nseeds: 1..2", "set (from file rates.yaml) must be a mapping of dotted paths to values, not [1]"),
        ("set: {seed: 4}\nseeds: 1..2", "has a seed, and every run has its own; leave it out"),
        ("preset: cartpole-ppo\nset: {recording.name: all}\nseeds: 1..2", "recording.name: all (from file rates.yaml)"),
        ("vary: {recording.name: [one, other]}", "vary.recording.name: several runs would record to one data set"),
        ("preset: cartpole-pp\nseeds: 1..2", "cartpole-ppo"),
        ("config: other.yaml\nseeds: 1..2", "file other.yaml does not exist"),
        ("vary: {network.learning_rate: [-1.0]}", "run 0001 (network.learning_rate=-1.0 seed 1)"),
    ],
)
def test_bad_sweeps_are_one_line_and_leave_nothing(file, launches, capsys, text, told):
    file.write_text(text)
    assert main(["sweep", "rates.yaml", "--dir", "rates"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("distrl: error: ")
    assert told in line
    assert not SweepDirectory(file.parent / "rates").path.exists()
    assert not launches


def test_directories_that_contradict_each_other(file, launches, capsys):
    main(["sweep", str(file), "--dir", "rates"])
    for arguments, told in (
        (["sweep", str(file), "--dir", "rates"], "already holds a sweep; go on with: distrl sweep rates"),
        (["sweep", "rates", "--dir", "other"], "rates is a sweep's directory, which --dir other contradicts"),
        (["sweep", "."], "there is no sweep.yaml; name the file of a sweep, or a sweep's directory"),
    ):
        assert main(arguments) == 2
        assert told in capsys.readouterr().err.splitlines()[-1]


def test_train_with_seeds_is_a_sweep_of_one_configuration(file, launches, capsys):
    arguments = ["train", "--env", "CartPole-v1", "--set", "stop.env_steps=9", "--seeds", "1..3", "--parallel", "2"]
    assert main([*arguments, "--run-dir", "seeds"]) == 1
    ((sweep, place, parallel, _),) = launches
    assert (sweep.seeds, sweep.vary, parallel, place.path.name) == ((1, 2, 3), {}, 2, "seeds")
    assert "env_steps: 9" in place.base.read_text()
    capsys.readouterr()
    for further, told in (
        (["--run-dir", "seeds"], "already holds a sweep; go on with: distrl sweep seeds"),
        (["--seed", "4"], "--seeds 1..3 begins several new runs, and --seed is for one"),
        (["--resume", "auto"], "and --resume is for one"),
        (["--quiet"], "and --quiet is for one"),
        (["--record", "all"], "and --record is for one"),
    ):
        assert main([*arguments, *further]) == 2
        assert told in capsys.readouterr().err
    assert main(["train", "--env", "CartPole-v1", "--seeds", "5..1"]) == 2
    assert "5..1 names no seeds" in capsys.readouterr().err
    assert main(["train", "--env", "CartPole-v1", "--parallel", "2"]) == 2
    assert "--parallel 2 is for several runs; add --seeds" in capsys.readouterr().err


def test_only_seeds_are_one_line_of_the_table():
    """The interquartile mean of 1, 2 and 6: (1/4 + 2 + 6/4) / 1.5."""
    returns = {1: 1.0, 2: 2.0, 3: 6.0}
    runs = [SweepRun(Planned(seed, {}, seed), RunResult("done", 1, 1.0, mean)) for seed, mean in returns.items()]
    assert module.standings(runs).splitlines()[1] == "every seed  3     2.50         1.00 … 6.00    1.00   6.00"


def test_a_long_table_is_cut():
    runs = [
        SweepRun(Planned(number, {"a": number}, 1), RunResult("done", 1, 1.0, float(number))) for number in range(1, 26)
    ]
    lines = module.standings(runs).splitlines()
    assert lines[1].startswith("a=25 ")
    assert lines[-2].startswith("a=6 ")
    assert lines[-1] == "… and 5 more combinations"
