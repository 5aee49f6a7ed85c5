import itertools
import json
import math
import subprocess
from pathlib import Path

import pytest

from benchmarks import measurement, provenance
from benchmarks.measurement import (
    FailedError,
    Result,
    keep,
    kept_results,
    measure,
    random_return,
    read_curve,
    result_path,
    run,
    thinned,
    train_command,
)
from tests.waiting import wait_until

EVALUATED = {"mean_return": 480.5, "wall_s": 2.0}
SUMMARY = {"env_steps": 2100, "updates": 2, "stop_reason": "mean_return", "mean_return_100": 475.0, "wall_s": 10.0}


@pytest.fixture
def commands(monkeypatch):
    """Stands for distrl: keeps its commands, and leaves what a training leaves."""
    kept = []

    def pretended(arguments):
        kept.append([*arguments])
        if "train" in arguments:
            run_dir = measurement.Path(arguments[arguments.index("--run-dir") + 1])
            run_dir.mkdir(parents=True)
            (run_dir / "summary.json").write_text(json.dumps(SUMMARY))
            (run_dir / "metrics.csv").write_text("env_steps,mean_return_100\n0,\n1000,20.5\n2100,475\n")
        return json.dumps(EVALUATED)

    monkeypatch.setattr(measurement, "run", pretended)
    return kept


def test_a_measurement_is_a_training_and_an_evaluation(row, commands, tmp_path):
    left = tmp_path / "runs" / "cartpole-ppo-seed-3" / "half"
    left.mkdir(parents=True)  # of an attempt that was interrupted
    measured = measure(row(), 3, tmp_path)
    assert not left.exists()
    curve = ((1000, 20.5), (2100, 475.0))
    assert measured == Result(
        row="cartpole-ppo",
        seed=3,
        env_steps=2100,
        update_steps=2048,
        stop_reason="mean_return",
        mean_return=480.5,
        failure=None,
        training_mean_return=475.0,
        wall_s=12.0,
        curve=curve,
        evaluation_seed=1003,
        configuration=provenance.configuration(row()),
        commit=provenance.commit(),
        date=measured.date,
        machine=provenance.machine(),
    )
    run_dir = str(tmp_path / "runs" / "cartpole-ppo-seed-3")
    assert commands == [
        [
            *("-m", "distrl", "train", "--preset", "cartpole-ppo", "--seed", "3", "--run-dir", run_dir, "--quiet"),
            *("--set", "stop.env_steps=500000"),
        ],
        ["-m", "distrl", "evaluate", run_dir, "--seed", "1003", "--episodes", "100", "--json"],
    ]
    assert kept_results(tmp_path, [row("other"), row()], [1, 3]) == [measured]
    assert kept_results(tmp_path, [row(env_steps=600_000)], [1, 3]) == []
    assert kept_results(tmp_path, [row(sets=("network.learning_rate=0.5",))], [1, 3]) == []
    path = result_path(tmp_path, row(), 3)
    keep(path, {key: value for key, value in json.loads(path.read_text()).items() if key != "commit"})
    assert kept_results(tmp_path, [row()], [1, 3]) == []  # of another program


@pytest.mark.parametrize(("code", "counts"), [(5, True), (1, True), (2, False), (6, False), (130, False), (-9, False)])
def test_a_training_that_fails_is_a_result_unless_it_was_not_let_train(
    row, commands, monkeypatch, tmp_path, code, counts
):
    pretended = measurement.run

    def fail(arguments):
        pretended(arguments)
        raise FailedError("distrl: error: the loss is nan", code)

    monkeypatch.setattr(measurement, "run", fail)
    if not counts:
        with pytest.raises(FailedError):
            measure(row(), 1, tmp_path)
        assert not result_path(tmp_path, row(), 1).exists()
        return
    measured = measure(row(), 1, tmp_path)
    assert (measured.mean_return, measured.score) == (None, -math.inf)
    assert (measured.failure, measured.env_steps) == ("distrl: error: the loss is nan", 2100)
    assert kept_results(tmp_path, [row()], [1]) == [measured]
    assert len(commands) == 1


def test_a_failure_leaves_nothing(row, monkeypatch, tmp_path):
    def fail(arguments):
        raise FailedError("no")

    monkeypatch.setattr(measurement, "run", fail)
    with pytest.raises(FailedError):
        measure(row(), 1, tmp_path)
    assert not result_path(tmp_path, row(), 1).exists()


def test_a_budget_of_time_knows_no_other_end(row, tmp_path):
    pong = row("pong-impala", None, env_steps=None, minutes=60.0, sets=("actors.count=1",))
    sets = [value for option, value in zip(*[iter(train_command(pong, 1, tmp_path)[-8:])] * 2, strict=True)]
    assert sets == ["stop.mean_return=null", "stop.env_steps=null", "stop.minutes=60", "actors.count=1"]


def test_random_actions_are_measured_once(row, commands, tmp_path):
    pong = row("pong-impala", task="ALE/Pong-v5")
    assert [random_return(pong, 2, tmp_path) for _ in range(2)] == [480.5, 480.5]
    (command,) = commands
    assert command[2:6] == ["evaluate", str(tmp_path / "runs" / "pong-impala-seed-2"), "--baseline", "random"]
    assert command[6:8] == ["--seed", "1000"]
    assert json.loads((tmp_path / "results" / "random" / "ALE-Pong-v5.json").read_text()) == {
        "task": "ALE/Pong-v5",
        "mean_return": 480.5,
    }


def test_curves_are_thinned_evenly():
    curve = [(step, float(step)) for step in range(1000)]
    thin = thinned(curve)
    assert (len(thin), thin[0], thin[-1]) == (100, (0, 0.0), (999, 999.0))
    assert {after[0] - before[0] for before, after in itertools.pairwise(thin)} == {10, 11}
    assert thinned(curve[:7]) == tuple(curve[:7])


def test_curves_begin_with_the_first_return(tmp_path):
    (tmp_path / "metrics.csv").write_text("updates,env_steps,mean_return_100\n1,5,\n2,9,-1.5\n")
    assert list(read_curve(tmp_path / "metrics.csv")) == [(9, -1.5)]


def test_json_has_a_line_for_each_item(tmp_path):
    tree = {"a": 1, "b": [{"c": [1, 2]}, {"c": []}], "d": {"e": [0.5]}}
    keep(tmp_path / "new" / "x.json", tree)
    text = (tmp_path / "new" / "x.json").read_text()
    assert json.loads(text) == tree
    assert text.splitlines() == [
        "{",
        '"a": 1,',
        '"b": [',
        ' {"c": [1, 2]},',
        ' {"c": []}',
        "],",
        '"d": {"e": [0.5]}',
        "}",
    ]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x.json"]


def test_what_a_command_prints_or_why_it_failed():
    assert run(["-c", "print(3)"]) == "3\n"
    program = "import sys; print('distrl: error: no such thing\\nsee the log', file=sys.stderr); sys.exit(2)"
    with pytest.raises(FailedError, match=r"^distrl: error: no such thing$") as raised:
        run(["-c", program])
    assert raised.value.code == 2
    with pytest.raises(FailedError, match=r"^exit code 3$"):
        run(["-c", "import sys; sys.exit(3)"])


def test_a_program_that_takes_too_long_is_asked_to_end_and_then_killed(tmp_path, monkeypatch):
    class Started(subprocess.Popen):
        """A program whose limit is over once it has made its file."""

        def communicate(self, input=None, timeout=None):
            if timeout == 2.0:
                wait_until(Path(self.args[-1]).exists, "it is ready")
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().communicate(input, timeout)

    program = f"""
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (open({str(tmp_path / "asked")!r}, "a").write("x"), {{}}))
open(sys.argv[1], "w")
while True:
    signal.pause()
"""
    monkeypatch.setattr(measurement.subprocess, "Popen", Started)
    with pytest.raises(FailedError, match=r"^not done after 2 s$"):
        run(["-c", program.format("sys.exit()"), str(tmp_path / "first")], limit_s=2.0)
    monkeypatch.setattr(measurement, "ENDS_WITHIN_S", 0.5)
    with pytest.raises(FailedError, match=r"^not done after 2 s$"):
        run(["-c", program.format("None"), str(tmp_path / "second")], limit_s=2.0)
    assert (tmp_path / "asked").read_text() == "xx"


def test_a_program_has_the_variables_that_it_is_given():
    assert run(["-c", "import os; print(os.environ['GIVEN'])"], variables={"GIVEN": "yes"}) == "yes\n"
