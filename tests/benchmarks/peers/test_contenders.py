import ast
import sys
from pathlib import Path

import pytest

from benchmarks.peers.contenders import CONTENDERS, SCRIPTS, TASKS, command, progress_path, python_of, selected
from benchmarks.peers.environments import NAMES
from distrl.config.load import load

BY_NAME = {contender.name: contender for contender in CONTENDERS}


def names(*given):
    return [contender.name for contender in selected(given)]


def test_libraries_and_algorithms_are_selected_by_name():
    assert names() == list(BY_NAME)
    assert names("sb3", "distrl") == ["distrl", "sb3-ppo", "sb3-a2c"]  # not distrl-jax: the name is one exactly
    assert names("rllib-appo", "rllib") == ["rllib-ppo", "rllib-impala", "rllib-appo"]
    with pytest.raises(ValueError, match=r"^--only coach: there is distrl, distrl-jax, sf-appo, "):
        names("coach")


def test_a_peer_is_told_when_the_command_was_given_and_ends_by_itself():
    contender, folder = BY_NAME["sb3-a2c"], Path("/out")
    words = command(contender, TASKS["solve"], 90.0, 3, folder, python_of(contender, Path("/peers")), 1234.5)
    assert words == [
        *("/peers/sb3/bin/python", str(SCRIPTS / "sb3.py"), "--task", "solve"),
        *("--progress", "/out/progress.jsonl", "--seed", "3"),
        *("--seconds", "90.0", "--since", "command", "--began", "1234.5"),
        *("--until-return", "475.0", "--algorithm", "a2c"),
    ]
    assert "--until-return" not in command(contender, TASKS["cartpole"], 30.0, 1, folder, "python", 0.0)


def test_distrl_trains_a_preset_without_a_budget():
    contender, folder = BY_NAME["distrl-jax"], Path("/out")
    words = command(contender, TASKS["cartpole"], 30.0, 2, folder, python_of(contender, Path("/peers")), 1234.5)
    assert words == [
        *(sys.executable, "-m", "distrl", "train", "--preset", "cartpole-impala"),
        *("--seed", "2", "--run-dir", "/out/run", "--quiet"),
        *("--set", "stop.mean_return=null", "--set", "stop.env_steps=null", "--set", "learner.backend=jax"),
    ]
    assert progress_path(contender, folder) == Path("/out/run/metrics.csv")
    assert "stop.mean_return=null" not in command(contender, TASKS["solve"], 120.0, 1, folder, "python", 0.0)


def test_presets_are_there_and_solve_what_the_peers_solve():
    for contender in (contender for contender in CONTENDERS if contender.ours):
        configs = {task: load(preset=preset).config for task, preset in contender.program.items()}
        assert configs.keys() == set(contender.tasks)
        assert configs["solve"].stop.mean_return == TASKS["solve"].until_return
        ids = {task: config.environment.id for task, config in configs.items()}
        assert ids == {
            "cartpole": "CartPole-v1",
            "solve": "CartPole-v1",
            "halfcheetah": "HalfCheetah-v5",
            "pong": "ALE/Pong-v5",
        }


@pytest.mark.parametrize("contender", [one for one in CONTENDERS if not one.ours], ids=lambda one: one.name)
def test_a_script_has_settings_for_every_task_it_is_given(contender):
    """Read, not imported: the peer is not installed here."""
    tree = ast.parse((SCRIPTS / contender.program).read_text("utf-8"))
    (settings,) = (node.value for node in tree.body if _assigns(node, "SETTINGS"))
    algorithm = contender.name.rpartition("-")[2]
    keys = [ast.literal_eval(key) for key in settings.keys]
    assert [task for of, task in keys if of == algorithm] == list(contender.tasks)
    assert contender.environment in NAMES


def _assigns(node, name):
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name
