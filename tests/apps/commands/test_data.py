"""`distrl record` and `distrl data`, in this process."""

import json
import resource
from itertools import count

import pytest

from distrl.apps.commands.main import main
from distrl.data import minari_sets
from distrl.environments.vector import VectorEnvironment


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments):
    code = main([*arguments])
    return code, *capsys.readouterr()


def test_random_actions_are_recorded_shown_and_checked(capsys, tmp_path):
    arguments = ("record", "random", "--env", "CartPole-v1", "--episodes", "7", "--output", "cartpole/random")
    code, out, _ = run(capsys, *arguments)
    assert (code, out.split(" ")[:2]) == (0, ["7", "episodes,"])
    code, _, error = run(capsys, *arguments)
    assert (code, error.splitlines()[-1]) == (  # before it, a slow machine says what it waits for
        2,
        f"distrl: error: there is a data set cartpole/random-v0 already ({tmp_path}/minari/cartpole/random-v0); "
        "choose another name, or remove it",
    )
    shown = json.loads(run(capsys, "data", "show", "cartpole/random", "--json")[1])
    assert (shown["episodes"], shown["terminated"], shown["episodes_with_behaviour_probabilities"]) == (7, 7, 7)
    assert shown["return"]["mean"] == shown["length_steps"]["mean"] == pytest.approx(shown["steps"] / 7)
    assert sum(shown["actions"][0].values()) == pytest.approx(1.0)
    assert sum(shown["return_histogram"]["counts"]) == 7
    assert "action 0                  0: " in run(capsys, "data", "show", "cartpole/random")[1]
    told = f"cartpole/random fits CartPole-v1: {shown['steps']} steps\n"
    assert run(capsys, "data", "check", "cartpole/random")[:2] == (0, told)
    code, _, error = run(capsys, "data", "check", "cartpole/random", "--env", "Acrobot-v1")
    assert (code, error.splitlines()[-1]) == (
        2,
        "distrl: error: data set cartpole/random does not fit Acrobot-v1: its observation 'observation' has shape "
        "(4,), that of the environment has shape (6,)",
    )


def test_a_table_is_recorded_and_checked(capsys, tmp_path):
    record = ("record", "random", "--env", "Pendulum-v1", "--episodes", "2", "--output", "new/steps.parquet")
    code, out, _ = run(capsys, *record)
    assert (code, out.split(": ")[1]) == (0, f"{tmp_path}/new/steps.parquet\n")
    code, _, error = run(capsys, *record)
    line = f"distrl: error: there is a file {tmp_path}/new/steps.parquet already; choose another name, or remove it"
    assert (code, error.splitlines()[-1]) == (2, line)
    check = ("data", "check", "new/steps.parquet", "--env", "Pendulum-v1")
    assert run(capsys, *check)[:2] == (0, "new/steps.parquet fits Pendulum-v1: 400 steps\n")


@pytest.mark.parametrize("output", ["./set", "steps.csv"])
def test_ctrl_c_keeps_the_episodes_that_have_ended(capsys, monkeypatch, output):
    steps = count()

    def step(self, actions, original=VectorEnvironment.step):
        if next(steps) == 15:
            raise KeyboardInterrupt
        return original(self, actions)

    record = ("record", "random", "--env", "CartPole-v1", "--episodes", "50", "--environments", "10")
    with monkeypatch.context() as patched:
        patched.setattr(VectorEnvironment, "step", step)
        code, out, error = run(capsys, *record, "--output", output)
    ended = int(out.split(" ")[0])
    assert (code, error, 0 < ended < 50) == (130, "", True)
    name = {"./set": "./set-v0"}.get(output, output)
    shown = json.loads(run(capsys, "data", "show", name, "--env", "CartPole-v1", "--json")[1])
    assert (shown["episodes"], shown["terminated"]) == (ended, ended)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["record", "--output", "x"], "who acts? A run, a file of distrl export, human, or random: distrl record"),
        (
            ["record", "random", "--env", "CartPole-v1", "--output", "a b"],
            "a data set cannot be called a b-v0;",
        ),
        (["record", "random", "--output", "x"], "random actions in which environment? distrl record random --env ID"),
        (["record", "runs/none", "--output", "x"], "runs/none is not a run's directory"),
        (["train", "--env", "CartPole-v1", "--record", "a b"], "a data set cannot be called a b-v0; Minari's names"),
        (
            ["train", "--env", "CartPole-v1", "--seeds", "1..2", "--record", "x"],
            "--seeds 1..2 begins several new runs, and --record is for one; leave one out",
        ),
        (["data", "show", "none"], "no data set none: neither a folder with Minari's metadata.json nor in"),
        (["data", "show", "./here"], "data set "),
        (["data", "show", "steps.csv", "--columns", "{foo: 1}", "--env", "CartPole-v1"], "data.sets"),
        (["data", "show", "none", "--env", "CartPole-v1"], "no data set none: neither a folder with Minari's"),
        (["data", "show", "none.csv", "--env", "CartPole-v1"], "none.csv cannot be read: "),
        (
            ["train", "--env", "CartPole-v1", "--algorithm", "dqn", "--data", "none"],
            "data: nothing acts in a run that learns from data; set actors.count: 0, not 2",
        ),
        (
            ["train", "--env", "CartPole-v1", "--algorithm", "dqn", "--actors", "0", "--data", "none"],
            "no data set none: neither a folder with Minari's metadata.json nor in",
        ),
    ],
)
def test_bad_input_costs_one_line(capsys, tmp_path, arguments, line):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "metadata.json").write_text("{")  # damaged
    code, _, error = run(capsys, *arguments)
    assert (code, error.count("\n")) == (2, 1)
    assert line in error


@pytest.mark.parametrize("most", [700, 50_000, 700_000])  # of the metadata, of the file, of its second part
def test_a_disk_that_is_full_leaves_nothing(capsys, tmp_path, monkeypatch, most):
    monkeypatch.setattr(minari_sets, "WRITTEN_BYTES", 90_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        code, _, error = run(
            capsys, "record", "random", "--env", "CartPole-v1", "--output", "./full", "--episodes", "60"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (code, error.count("\n")) == (2, 1)
    assert "data set ./full-v0 cannot be written: [Errno 27] File too large" in error
    assert not [*tmp_path.iterdir()]


def test_a_disk_that_refuses_leaves_nothing(capsys, tmp_path):
    (tmp_path / "minari").write_text("no folder")
    code, _, error = run(capsys, "record", "random", "--env", "CartPole-v1", "--output", "ab/cd", "--episodes", "1")
    assert (code, error.count("\n")) == (2, 1)
    assert "data set ab/cd-v0 cannot be written: " in error
