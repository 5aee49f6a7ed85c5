"""The recipes of docs/recipes.md: Optuna and Ray Tune over `distrl.iterate`, for real."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import distrl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "recipes.md").read_text()
OPTUNA, TRAINABLE = (
    text.split("\n```")[0]
    for text in PAGE.split("```python norun: tests/launch/test_iteration_recipes.py runs it\n")[1:]
)
TUNE = """
import json, sys
from distrl.launch.distributed import make_private_token
make_private_token()  # which Ray reads when it is imported
import ray
from examples.ray_tune import search
from ray import tune

ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=2**27, _temp_dir=sys.argv[1])
rates = tune.grid_search([0.001, 0.002])
settings = {"actors.count": 0, "stop.updates": 4, "network.learning_rate": rates}
grid = search(settings, trials=1, folder="runs", storage=sys.argv[2])
print(json.dumps([[each.config["network.learning_rate"], each.metrics, str(each.error)] for each in grid]))
"""


def run(program, *arguments, folder):
    """Run a program in `folder`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_the_page_has_the_trainable_of_the_example():
    assert len(TRAINABLE.splitlines()) == 6  # with the first
    lines = [line for line in (ROOT / "examples" / "ray_tune.py").read_text().splitlines() if '"""' not in line]
    assert TRAINABLE in "\n".join(lines)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.timeout(600)
def test_ray_tunes_results_are_those_of_the_runs(tmp_path):
    with tempfile.TemporaryDirectory(prefix="tune-", dir="/tmp") as short:  # Ray puts unix sockets deep inside
        told = run(TUNE, f"{short}/ray", f"{tmp_path}/results", folder=tmp_path).stdout.splitlines()[-1]
    trials = json.loads(told)
    assert [rate for rate, _, _ in trials] == [0.001, 0.002]
    for rate, metrics, error in trials:
        assert error == "None"
        run_dir = tmp_path / "runs" / metrics["trial_id"]
        summary = json.loads((run_dir / "summary.json").read_text())
        assert distrl.load_run(run_dir).config.network.learning_rate == rate
        names = ("updates", "env_steps", "episodes", "mean_return_100")
        assert {name: metrics[name] for name in names} == {name: summary[name] for name in names}
        assert metrics["updates"] == 4


@pytest.mark.long
@pytest.mark.timeout(600)
def test_optuna_prunes_trials_and_their_runs_end_in_order(tmp_path):
    """With two trials to start with, of which each later one is compared with the better half."""
    program = OPTUNA.replace("n_startup_trials=4", "n_startup_trials=2").replace("n_trials=20", "n_trials=6")
    program = program.replace("create_study(", "create_study(sampler=optuna.samplers.RandomSampler(seed=1), ")
    program += "\nimport json; print(json.dumps([trial.state.name for trial in study.trials]))"
    done = run(program, folder=tmp_path)
    states = json.loads(done.stdout.splitlines()[-1])
    assert len(states) == 6
    assert set(states) == {"COMPLETE", "PRUNED"}
    ended = [json.loads(file.read_text())["stop_reason"] for file in tmp_path.glob("runs/*/summary.json")]
    # A trial that is pruned at its last evaluation has ended by then.
    assert len(ended) == 6
    assert set(ended) <= {"asked", "env_steps"}
    assert ended.count("asked") <= states.count("PRUNED")
