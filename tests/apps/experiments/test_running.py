import json
import os
import signal

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.experiments import running, runs_here
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.running import check_runs, run_sweep
from distrl.apps.experiments.sweep import Sweep
from distrl.config.load import validated
from distrl.errors import ConfigError
from tests.apps.experiments.trainings import Trainings


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """launch(trainings, **sweep) -> (ending, lines); the directory stays the same."""
    place = SweepDirectory(tmp_path / "sweep")

    def run(trainings, parallel=1, again=False, **tree):
        sweep = validated(Sweep, {"vary": {"network.learning_rate": [1e-3, 1e-4]}, "seeds": "1..2", **tree}, {})
        if not place.exists:
            place.create(sweep, load())
        monkeypatch.setattr(runs_here, "Pool", trainings)
        monkeypatch.setattr(running, "_POLL_S", 0.001)
        said = []
        ending = run_sweep(sweep, place, parallel, said.append, again=again)
        return ending, said

    run.place = place
    return run


def test_every_run_is_trained_once_with_its_settings_and_seed(launch):
    trainings = Trainings()
    start, commands = trainings.start, {}

    def note(name, arguments, log, inherited):
        commands[name] = arguments
        assert len(inherited) == 1  # the sweep's lock
        start(name, arguments, log, inherited)

    trainings.start = note
    ending, said = launch(trainings, parallel=2)
    assert trainings.started == ["0001", "0002", "0003", "0004"]
    assert trainings.at_once == 2
    place = launch.place
    assert commands["0002"] == [
        *("train", str(place.base), "--seed", "2", "--run-dir", str(place.run(ending.runs[1].planned))),
        *("--resume", "auto", "--dated", "--set", "network.learning_rate=0.001"),
        *("--set", "launch.sigterm_exit_code=0"),
    ]
    assert (ending.exit_code, ending.left) == (0, 0)
    assert [run["state"] for run in json.loads((place.path / "sweep.json").read_text())["runs"]] == ["done"] * 4
    assert said[0] == "[1/4] network.learning_rate=0.001 seed 1 …"
    assert (
        "[1/4] network.learning_rate=0.001 seed 1: mean return 7.00 after 100 steps in 4.0 s · 3 to go, about 6.0 s"
        in said
    )

    again = Trainings()
    ending, said = launch(again)
    assert (again.started, ending.exit_code, said) == ([], 0, ["4 runs ended already"])


def test_a_run_that_fails_ends_nothing_but_itself(launch):
    trainings = Trainings(
        {
            "0001": {"exit_code": 3, "stop_reason": "the learner failed", "error": "losses are not finite"},
            "0003": {"exit_code": 2, "log": "noise\ndistrl: error: no such environment\nmore noise\n"},
            "0004": {"exit_code": -9, "log": "killed in the middle\n"},
        }
    )
    ending, said = launch(trainings)
    assert [run.outcome.state for run in ending.runs] == ["failed", "done", "failed", "failed"]
    assert [run.outcome.error for run in ending.runs] == [
        *("losses are not finite", None, "no such environment", "killed by signal 9")
    ]
    assert (ending.exit_code, ending.left) == (1, 0)
    assert any(line.endswith("seed 1: FAILED: losses are not finite · 3 to go, about 12 s") for line in said)

    # The next launch leaves what failed, also what left no summary.
    none = Trainings()
    assert launch(none)[0].exit_code == 1
    assert none.started == []
    every = Trainings()
    ending, _ = launch(every, again=True)
    assert (ending.exit_code, every.started) == (0, ["0001", "0003", "0004"])


def test_another_file_is_refused_and_another_budget_is_not(launch):
    launch(Trainings())
    for tree, told in (
        ({"seeds": "1..3"}, r"run 0003 was network\.learning_rate=0\.0001 seed 1 and would be .*=0\.001 seed 3"),
        (
            {"vary": {"network.learning_rate": [1e-4, 1e-3]}},
            "run 0001 was .*=0.001 seed 1 and would be .*=0.0001 ",
        ),
        ({"vary": {"network.learning_rate": [1e-3]}}, "run 0003 was .* and would be none"),
    ):
        with pytest.raises(ConfigError, match=f"sweep.yaml has changed: {told}.*; change only its budget"):
            launch(Trainings(), **tree)
    fewer = Trainings()
    ending, said = launch(fewer, budget={"runs": 2})
    assert (fewer.started, len(ending.runs), ending.left, said) == ([], 4, 0, ["4 runs ended already"])
    assert len(json.loads((launch.place.path / "sweep.json").read_text())["runs"]) == 4


def test_a_launch_that_trains_nothing_keeps_the_list(launch):
    launch(Trainings())
    ending, _ = launch(Trainings(), budget={"minutes": 1e-9})
    assert len(json.loads((launch.place.path / "sweep.json").read_text())["runs"]) == 4
    assert (ending.exit_code, ending.left) == (0, 0)


def test_a_run_that_another_program_stops_goes_on_with_the_next_launch(launch):
    ending, said = launch(Trainings({"0001": {"stop_reason": "SIGTERM"}}))
    assert [run.outcome.state for run in ending.runs] == ["interrupted", "done", "done", "done"]
    assert any("seed 1: stopped (SIGTERM); it goes on with the next launch" in line for line in said)
    assert (ending.exit_code, ending.left) == (0, 1)
    again = Trainings()
    launch(again)
    assert again.started == ["0001"]


def test_without_a_number_of_runs_ten_that_do_not_begin_are_the_last(launch):
    ends = {f"{number:04}": {"exit_code": 2, "log": "distrl: error: no such thing\n"} for number in range(1, 99)}
    trainings = Trainings(ends)
    vary = {"network.learning_rate": {"low": 1e-4, "high": 1e-2}}
    ending, said = launch(trainings, vary=vary, method="random", budget={"env_steps": 1000})
    assert len(trainings.started) == running.BARREN
    assert said[-1] == "the last 10 runs failed before their first step, so no further one begins"
    assert ending.exit_code == 1


def test_a_line_now_and_then_says_where_the_runs_are(launch, monkeypatch):
    monkeypatch.setattr(running, "PROGRESS_S", 0.05)
    looks = []

    def late():
        looks.append(1)
        folder = launch.place.path / "0001"
        folder.mkdir(exist_ok=True)
        if len(looks) > 60:
            (folder / "metrics.csv").write_text("env_steps,mean_return_100\n100,\n12300,45.125\n")
        return None if len(looks) < 300 else {}

    _, said = launch(Trainings({"0001": late}))
    assert "under way: 0001 beginning" in said
    assert "under way: 0001 at 12,300 steps, mean return 45.1" in said


def test_a_budget_of_steps_begins_no_further_run(launch):
    ending, _ = launch(Trainings(), budget={"env_steps": 150})
    assert [run.planned.name for run in ending.runs] == ["0001", "0002"]
    assert (ending.left, ending.exit_code) == (2, 0)
    again = Trainings()
    launch(again, budget={"env_steps": 150})
    assert again.started == []


def test_when_the_time_is_up_runs_are_stopped_and_go_on_with_more_time(launch):
    trainings = Trainings()
    trainings.ends = {
        "0002": lambda: {"stop_reason": "SIGTERM"} if trainings.stopped else None,
    }
    ending, said = launch(trainings, budget={"minutes": 0.005})
    assert [run.outcome.state for run in ending.runs] == ["done", "interrupted"]
    assert "the 0.005 minutes are over: stopping 1 run after a last checkpoint …" in said
    assert (ending.left, ending.exit_code) == (3, 0)
    assert launch.place.index()[1] >= 0.005

    more = Trainings()
    ending, said = launch(more, budget={"minutes": 10})
    assert more.started == ["0002", "0003", "0004"]
    assert "[2/4] network.learning_rate=0.001 seed 2 goes on …" in said
    assert ending.exit_code == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_the_runs_in_order(launch, number, code):
    trainings = Trainings()

    def interrupt():
        if not trainings.stopped:
            os.kill(os.getpid(), number)
            return None
        return {"stop_reason": "SIGTERM"}

    trainings.ends = {"0002": interrupt}
    ending, said = launch(trainings)
    assert [run.outcome.state for run in ending.runs] == ["done", "interrupted"]
    assert (ending.exit_code, ending.left) == (code, 3)
    assert said[-1] == "[2/4] network.learning_rate=0.001 seed 2: stopped (SIGTERM); it goes on with the next launch"


def test_a_configuration_that_is_not_valid_is_found_before_anything_is_trained():
    base = load(flags={"--env": "CartPole-v1"})
    good = validated(Sweep, {"vary": {"algorithm.name": ["ppo", "a2c"]}}, {})
    check_runs(good, base)
    vary = {"algorithm.name": ["ppo", "a2c"], "algorithm.clip_range": [0.1]}
    with pytest.raises(
        ConfigError, match=r'^run 0002 \(algorithm\.name="a2c" .* seed 1\): unknown key algorithm\.clip_r'
    ):
        check_runs(validated(Sweep, {"vary": vary}, {}), base)
