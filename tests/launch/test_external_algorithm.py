"""An algorithm in the user's own file, through the real command: asked beforehand, trained, resumed, refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from distrl.config.load import config_of_run, load
from distrl.errors import ConfigError
from distrl.launch import external_algorithm
from distrl.launch.external_algorithm import settled
from distrl.runs.summary import Summary

ROOT = Path(distrl.__file__).parents[1]
NAME = "my_algorithm:MaximumEntropy"
SMALL = ["actors.environments=2", "actors.unroll_length_steps=8", "learner.batch_size=1", "algorithm.steps=3"]


@pytest.fixture
def command(tmp_path):
    """`distrl …` in a directory with the user's file in it, as a console script would be: the directory is no path."""
    shutil.copy(ROOT / "examples" / "custom_algorithm.py", tmp_path / "my_algorithm.py")

    def run(*arguments, sets=()):
        given = [part for assignment in sets for part in ("--set", assignment)]
        return subprocess.run(
            [sys.executable, "-P", "-m", "distrl", *arguments, *given],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    return run


def answered(monkeypatch, **section):
    monkeypatch.setattr(external_algorithm, "_ask", lambda *_: {"name": NAME, "declared": {"batch_size": 7}, **section})


def test_what_distrl_has_itself_is_not_asked(monkeypatch):
    monkeypatch.setattr(external_algorithm, "_ask", None)
    loaded = load(preset="cartpole-impala")
    assert settled(loaded) is loaded


def test_the_answer_becomes_the_effective_configuration(monkeypatch):
    answered(monkeypatch, steps=3, temperature=0.5)
    loaded = settled(load(sets=["algorithm.steps=3"], flags={"--algorithm": NAME}))
    assert (loaded.config.batch_size, loaded.config.undeclared) == (7, False)
    told = {key: loaded.origins[f"algorithm.{key}"] for key in ("steps", "temperature", "declared.batch_size")}
    assert told == {"steps": "flag --set", "temperature": "default", "declared.batch_size": NAME}
    assert settled(loaded).config == loaded.config


def test_what_the_class_declares_cannot_be_set(monkeypatch):
    answered(monkeypatch)
    with pytest.raises(
        ConfigError, match=r"algorithm\.declared is not what my_algorithm:MaximumEntropy says of itself"
    ):
        settled(load(sets=["algorithm.declared.batch_size=3"], flags={"--algorithm": NAME}))


def test_the_rest_must_go_with_what_is_declared(monkeypatch):
    answered(monkeypatch, declared={"ships": "unrolls"})
    with pytest.raises(ConfigError, match=r"^network\.async_training is of gradient actors"):
        settled(load(sets=["network.async_training=false"], flags={"--algorithm": NAME}))


@pytest.mark.row("G35", "H10")
@pytest.mark.slow
def test_it_trains_from_the_users_own_file(command, tmp_path):
    done = command(
        "train",
        "--env",
        "CartPole-v1",
        "--algorithm",
        NAME,
        "--plain",
        "--run-dir",
        "run",
        sets=[*SMALL, "actors.count=0", "stop.updates=5", "slurm.python=python3"],  # a section of an application
    )
    assert (done.returncode, done.stderr.replace("trying out CartPole-v1 …\n", "")) == (0, "")  # however slow
    summary = Summary.read(tmp_path / "run" / "summary.json")
    assert (summary.algorithm, summary.updates, summary.imbalance, summary.policy_lag.max) == (NAME, 5, 0, 0)
    config = config_of_run(tmp_path / "run")
    assert (config.algorithm.steps, config.algorithm.temperature) == (3, 0.01)
    assert (config.algorithm.max_staleness_updates, config.algorithm.declared.batch_size) == (0, 4)
    assert "entropy" in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]


@pytest.mark.long
@pytest.mark.slow
def test_a_wrong_key_is_one_line_and_nothing_is_left_behind(command, tmp_path):
    done = command(
        "train", "--env", "CartPole-v1", "--algorithm", NAME, "--run-dir", "run", sets=["algorithm.temprature=1"]
    )
    line = "distrl: error: unknown key algorithm.temprature (from flag --set); did you mean algorithm.temperature?\n"
    assert (done.returncode, done.stderr) == (2, line)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_it_is_resumed_and_goes_on_bit_by_bit_in_deterministic_mode(command, tmp_path):
    sets = [*SMALL, "actors.count=0", "checkpoint.every_updates=4"]
    for folder, updates in (("whole", 8), ("parts", 4)):
        done = command(
            "train",
            "--env",
            "CartPole-v1",
            "--algorithm",
            NAME,
            "--plain",
            "--run-dir",
            folder,
            sets=[*sets, f"stop.updates={updates}"],
        )
        assert (done.returncode, done.stderr.replace("trying out CartPole-v1 …\n", "")) == (0, "")  # however slow
    assert command("train", "--resume", "parts", "--plain", sets=["stop.updates=8"]).returncode == 0
    whole, parts = ((tmp_path / folder / "policy" / "weights.msgpack").read_bytes() for folder in ("whole", "parts"))
    assert whole == parts
    shown = command("config", "show", "parts").stdout
    assert f"name: {NAME}" in shown
    assert "temperature: 0.01" in shown


@pytest.mark.long
@pytest.mark.ray
def test_it_trains_as_ray_actors(command, tmp_path):
    sets = [*SMALL, "actors.count=1", "stop.updates=5"]
    done = command(
        "train",
        "--env",
        "CartPole-v1",
        "--algorithm",
        NAME,
        "--launcher",
        "ray",
        "--plain",
        "--run-dir",
        "run",
        sets=sets,
    )
    assert done.returncode == 0, done.stderr
    assert Summary.read(tmp_path / "run" / "summary.json").updates == 5
