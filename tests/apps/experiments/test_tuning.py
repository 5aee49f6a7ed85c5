"""Searches with Optuna's own store on disk, and trainings that end as a test says."""

import contextlib
import fcntl
import os
import re
import signal
import sqlite3

import pytest
import yaml

from distrl.apps.config.configuration import load
from distrl.apps.experiments import tuning
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.search import Search
from distrl.apps.experiments.tuning import check_search, draw_pictures, open_study, outcome_lines, tune
from distrl.config.load import validated
from distrl.errors import ConfigError, DistrlError
from distrl.runs.summary import Summary
from tests.apps.experiments.trainings import FACTS, Trainings

VARY = {"network.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "algorithm.entropy_weight": [0.0, 0.01]}


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """launch(trainings, **search) -> (exit code, lines, study)."""
    place = SweepDirectory(tmp_path / "a search, 5%25?#", "search.yaml")

    def run(trainings, parallel=1, **tree):
        search = validated(Search, {"vary": VARY, "trials": 4, **tree}, {})
        if not place.exists:
            sets = ["evaluation.every_env_steps=100"] if search.pruner != "none" else []
            place.create(search, load(sets=sets))
        monkeypatch.setattr(tuning, "Pool", trainings)
        monkeypatch.setattr(tuning, "_POLL_S", 0.001)
        monkeypatch.setattr(tuning, "LOOK_S", 0.01)
        said = []
        code = tune(search, place, parallel, said.append)
        return code, said, open_study(search, place)

    run.place = place
    return run


def states(study):
    return [trial.state.name for trial in study.get_trials()]


def test_the_study_has_every_trial_and_best_yaml_the_best(launch):
    returns = {"0001": 5.0, "0002": 9.0, "0003": 7.0, "0004": 8.0}
    trainings = Trainings({name: {"mean_return_100": mean} for name, mean in returns.items()})
    code, said, study = launch(trainings, parallel=2)
    assert (code, trainings.started, trainings.at_once) == (0, [*returns], 2)
    assert [trial.value for trial in study.get_trials()] == [*returns.values()]
    assert [line for line in said if "the best so far" in line] == [
        line for line in said if "mean return 5.00" in line or "mean return 9.00" in line
    ]
    best = study.best_params
    tree = yaml.safe_load((launch.place.path / "best.yaml").read_text())
    assert tree["network"]["learning_rate"] == best["network.learning_rate"]
    assert 1e-4 <= best["network.learning_rate"] <= 1e-2
    assert load(file=launch.place.path / "best.yaml").config.network.learning_rate == best["network.learning_rate"]
    search = validated(Search, {"vary": VARY}, {})
    assert outcome_lines(search, launch.place)[0] == "trials: 4 complete"
    assert outcome_lines(search, launch.place)[1].startswith("best: trial 2, mean return 9.00: network.learning_rate=")
    pictures = draw_pictures(search, launch.place)
    assert pictures[0].name == "history.svg"
    assert all(path.read_text().startswith("<?xml") for path in pictures)


def test_more_trials_go_on_and_propose_other_values(launch):
    one, _, study = launch(Trainings(), trials=3)
    more = Trainings()
    code, _, study = launch(more, trials=6)
    assert (one, code, more.started) == (0, 0, ["0004", "0005", "0006"])
    rates = [trial.params["network.learning_rate"] for trial in study.get_trials()]
    assert len(set(rates)) == 6
    none = Trainings()
    assert launch(none, trials=6)[0] == 0
    assert none.started == []


def test_what_one_worker_proposes_two_launches_propose_as_well(launch, tmp_path):
    """A random sampler: TPE's proposals depend on the outcomes, which are equal here, too."""
    launch(Trainings(), trials=2, sampler="random")
    _, _, study = launch(Trainings(), trials=4, sampler="random")
    whole = SweepDirectory(tmp_path / "whole", "search.yaml")
    search = validated(Search, {"vary": VARY, "trials": 4, "sampler": "random"}, {})
    whole.create(search, load())
    tune(search, whole, 1, lambda line: None)
    assert [trial.params for trial in open_study(search, whole).get_trials()] == [
        trial.params for trial in study.get_trials()
    ]


def test_a_trial_of_a_dead_worker_goes_on_with_its_values(launch):
    def die():
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        launch(Trainings({"0002": die}))
    search = validated(Search, {"vary": VARY, "trials": 4}, {})
    before = open_study(search, launch.place).get_trials()[1]
    assert before.state.name == "RUNNING"
    (launch.place.path / "0002").mkdir()
    again = Trainings()
    code, said, study = launch(again)
    assert (code, again.started) == (0, ["0002", "0003", "0004"])
    assert study.get_trials()[1].params == before.params
    assert states(study) == ["COMPLETE"] * 4
    assert any(line.startswith("[2/4]") and line.endswith("goes on …") for line in said)


def test_a_trial_that_another_process_holds_is_left_alone_until_it_is_free(launch, monkeypatch):
    launch(Trainings(), trials=1)
    search = validated(Search, {"vary": VARY, "trials": 2}, {})
    other = open_study(search, launch.place).ask()  # another worker's, which has not drawn yet
    lock = os.open(launch.place.path / "locks" / "0002", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    trainings = Trainings()
    said = []

    def say(line):
        said.append(line)
        if line.startswith("waiting for"):
            assert trainings.started == []
            os.close(lock)  # the other worker dies

    monkeypatch.setattr(tuning, "Pool", trainings)
    assert tune(search, launch.place, 1, say) == 0
    assert said[0] == "waiting for the last trials of other workers …"
    assert trainings.started == [f"{other.number + 1:04}"]


def evaluations(place, name, rows):
    """Makes an end of a training that shows one more evaluation at each look."""
    looks = iter(rows)

    def end():
        row = next(looks, None)
        if row is None:
            return {"evaluation_mean_return": rows[-1][1]}
        folder = place.path / name
        folder.mkdir(exist_ok=True)
        (folder / "metrics.csv").write_text(f"evaluation_env_steps,evaluation_mean_return\n{row[0]},{row[1]}\n")
        return None

    return end


def test_a_trial_below_the_median_is_stopped_and_pruned(launch):
    """Evaluations come a few steps after every hundredth, which differ between the trials."""
    trainings = Trainings()
    good = {f"{number:04}": [(100 + number, 10.0 + number), (203 + number, 20.0 + number)] for number in range(1, 5)}
    trainings.ends = {name: evaluations(launch.place, name, rows) for name, rows in good.items()}
    slow = evaluations(launch.place, "0005", [(177, 1.0), (200, 30.0), (200, 30.0)])
    trainings.ends["0005"] = lambda: {"stop_reason": "SIGTERM"} if "0005" in trainings.stopped else slow()
    _, said, study = launch(trainings, trials=5, pruner="median")
    assert states(study) == ["COMPLETE"] * 4 + ["PRUNED"]
    assert trainings.stopped == ["0005"]
    assert said[-1].endswith("pruned after evaluation 1")
    assert study.get_trials()[0].intermediate_values == {1: 11.0, 2: 21.0}


def test_a_trial_that_another_program_stops_is_left_to_the_next_launch(launch):
    code, said, study = launch(Trainings({"0001": {"stop_reason": "SIGTERM"}}))
    assert (code, states(study)) == (0, ["RUNNING"] + ["COMPLETE"] * 3)
    # The summary that it left says nothing about a launch that fails at once.
    again = Trainings({"0001": {"exit_code": 2, "log": "distrl: error: no such thing\n"}})
    code, said, study = launch(again)
    assert (again.started, states(study)) == (["0001"], ["FAIL"] + ["COMPLETE"] * 3)
    assert said[-1].endswith("FAILED: no such thing")


def test_a_trial_that_ends_while_it_is_claimed_is_not_trained_again(launch, monkeypatch):
    launch(Trainings(), trials=1)
    search = validated(Search, {"vary": VARY, "trials": 2}, {})
    trial = open_study(search, launch.place).ask()
    claim = tuning._Worker._claim

    def late(worker, number):
        if number == trial.number and claim(worker, number) is not None:
            open_study(search, launch.place).tell(trial, state=tuning.TrialState.PRUNED)
        return os.open(launch.place.path / "locks" / "free", os.O_RDWR | os.O_CREAT)

    monkeypatch.setattr(tuning._Worker, "_claim", late)
    trainings = Trainings()
    code, _, study = launch(trainings, trials=2)
    assert (code, trainings.started, states(study)) == (0, [], ["COMPLETE", "PRUNED"])


def test_a_trial_that_was_left_before_it_had_values_gets_its_own(launch):
    launch(Trainings(), trials=1)
    search = validated(Search, {"vary": VARY, "trials": 2}, {})
    open_study(search, launch.place).ask()
    _, _, study = launch(Trainings(), trials=2)
    first, second = (trial.params["network.learning_rate"] for trial in study.get_trials())
    assert first != second


def test_another_vary_is_refused(launch):
    launch(Trainings(), trials=1)
    with pytest.raises(ConfigError, match=r"^vary \(from file .*search\.yaml\) has changed since"):
        launch(Trainings(), trials=2, vary={"network.learning_rate": [1e-3]})


def test_a_study_that_cannot_be_written_is_one_line(launch):
    launch(Trainings(), trials=1)
    (launch.place.path / "study.db").write_bytes(b"no database")
    with pytest.raises(
        DistrlError, match=r"^the search in .* cannot be used: .*; mend it, and go on with: distrl tune"
    ) as e:
        launch(Trainings(), trials=2)
    assert "\n" not in str(e.value)


def test_best_yaml_is_written_again_where_a_worker_died_before(launch):
    launch(Trainings(), trials=1)
    (launch.place.path / "best.yaml").unlink()
    launch(Trainings(), trials=1)
    assert (launch.place.path / "best.yaml").exists()


@pytest.mark.parametrize(
    "mean", ["NaN", *(pytest.param(mean, marks=pytest.mark.long) for mean in ("Infinity", "-Infinity"))]
)
def test_a_return_that_is_no_number_fails_its_trial_alone(launch, mean):
    def end():
        summary = Summary(**FACTS, seed=1, env_steps=100, mean_return_100=7.5, stop_reason="env_steps", exit_code=0)
        (launch.place.path / "0001").mkdir()
        (launch.place.path / "0001" / "summary.json").write_text(summary.model_dump_json().replace("7.5", mean))
        return {"log": ""}

    code, _, study = launch(Trainings({"0001": end}), trials=2)
    assert (code, states(study)) == (0, ["FAIL", "COMPLETE"])
    assert launch(Trainings(), trials=3)[0] == 0


@pytest.mark.parametrize("read", [outcome_lines, draw_pictures])
def test_readers_of_a_search_write_no_study(launch, read):
    launch(Trainings(), trials=1)
    study, search = launch.place.path / "study.db", validated(Search, {"vary": VARY}, {})
    before = study.read_bytes()
    read(search, launch.place)
    assert study.read_bytes() == before
    study.unlink()
    with pytest.raises(DistrlError, match=r"^the search in .* cannot be used: unable to open database file"):
        read(search, launch.place)
    study.write_bytes(b"")
    with pytest.raises(DistrlError, match=r"^the search in .* cannot be used: "):
        read(search, launch.place)
    assert study.read_bytes() == b""


def test_failed_trials_end_nothing_but_themselves(launch):
    ends = {"0001": {"exit_code": 3, "stop_reason": "x", "error": "not finite"}, "0002": {"mean_return_100": None}}
    code, said, study = launch(Trainings(ends), trials=3)
    assert (code, states(study)) == (0, ["FAIL", "FAIL", "COMPLETE"])
    assert any(line.endswith("FAILED: not finite") for line in said)
    every = {f"{number:04}": {"exit_code": 2, "log": "distrl: error: no such thing\n"} for number in (4, 5)}
    assert launch(Trainings(every), trials=5)[0] == 0  # one is complete
    assert not [
        line for line in outcome_lines(validated(Search, {"vary": VARY}, {}), launch.place) if "under way" in line
    ]


def test_without_a_complete_trial_the_exit_code_is_1(launch):
    assert launch(Trainings({"0001": {"exit_code": 2, "log": "no\n"}}), trials=1)[0] == 1
    assert not (launch.place.path / "best.yaml").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_trials_which_go_on_with_the_next_launch(launch, number, code):
    trainings = Trainings()

    def interrupted():
        if not trainings.stopped:
            os.kill(os.getpid(), number)
            return None
        return {"stop_reason": "SIGTERM"}

    trainings.ends = {"0002": interrupted}
    found, said, study = launch(trainings)
    assert (found, states(study)) == (code, ["COMPLETE", "RUNNING"])
    assert said[-1].endswith("stopped (SIGTERM); another worker or the next launch goes on with it")
    again = Trainings()
    assert launch(again)[0] == 0
    assert again.started == ["0002", "0003", "0004"]


def test_settings_that_do_not_fit_are_found_before_anything_is_trained():
    base = load(flags={"--env": "CartPole-v1"})
    check_search(validated(Search, {"vary": VARY}, {}), base)
    for tree, told in (
        ({"vary": {"network.lerning_rate": [1]}}, "a trial with network.lerning_rate=1: unknown key"),
        (
            {"vary": VARY, "pruner": "median"},
            "pruner: median compares evaluations, and evaluation.every_env_steps is null",
        ),
    ):
        with pytest.raises(ConfigError, match=told):
            check_search(validated(Search, tree, {}), base)


DAMAGES = {
    "update trial_params set param_value = 7.0 where param_name like '%rate'": r"trial 1 has \S+rate=7\.0, which is",
    "delete from trial_params where trial_id = 1": r"ValueError: a complete trial has no network\.learning_rate",
    "update trial_values set value = null": "AssertionError",
    "update trial_values set value = null, value_type = 'INF_POS'": "ValueError: trial 1 has the result inf",
    "update trials set datetime_start = 7": "TypeError: fromisoformat",
    "update trials set number = 9 where number = 0": "ValueError: trial ",
    "update trials set state = 'x'": "LookupError: 'x' is not among",
    "delete from study_directions": "its directions are",
}


def test_a_damaged_study_is_one_line_and_nothing_of_it_is_called_best(launch):
    launch(Trainings(), trials=2)
    (launch.place.path / "best.yaml").unlink()
    database = launch.place.path / "study.db"
    sound = database.read_bytes()
    for damage, told in DAMAGES.items():
        database.write_bytes(sound)
        with contextlib.closing(sqlite3.connect(database)) as opened:
            opened.execute(damage)
            opened.commit()
        more = Trainings()
        with pytest.raises(ConfigError) as refused:
            launch(more, trials=4)
        words = rf"^{re.escape(str(database))} is damaged: .*{told}.*; restore it, or begin another"
        assert re.search(words, str(refused.value)), damage
        assert (more.started, (launch.place.path / "best.yaml").exists()) == ([], False)
