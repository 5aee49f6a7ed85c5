"""Curiosity finds what is never found without it, and runs with actors of its own process, policy and replay alike."""

import csv
import subprocess
import sys

import pytest

from distrl.data_store.checkpoints import load_newest
from distrl.runs.summary import Summary

pytestmark = [pytest.mark.slow, pytest.mark.redis]

PRESET = "key-and-door-ppo-rnd"
WORLD = "distrl.environments.worlds.key_and_door:KeyAndDoor"


@pytest.mark.row("D175")
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_door_is_found_by_curiosity(train_preset, seed):
    summary = train_preset(PRESET, "--seed", str(seed))
    assert summary.stop_reason == "mean_return"
    assert summary.env_steps <= 500_000


@pytest.mark.row("D175")
@pytest.mark.long
def test_the_door_is_not_found_without_it(train_preset):
    summary = train_preset(PRESET, "--set", "algorithm.curiosity=null")
    assert (summary.stop_reason, summary.mean_return_100) == ("env_steps", 0.0)


def train(run_dir, sets):
    command = [sys.executable, "-m", "distrl", "train", "--plain", "--run-dir", str(run_dir), "--env", WORLD]
    given = [part for each in sets for part in ("--set", each)]
    return subprocess.run([*command, *given], capture_output=True, text=True, check=False)


@pytest.mark.row("D175")
def test_gradient_actors_are_refused_with_2(tmp_path):
    done = train(tmp_path / "run", ["algorithm={name: a2c, curiosity: {kind: rnd}}"])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "algorithm.curiosity: actors of a2c differentiate their own unrolls" in done.stderr


@pytest.mark.long
@pytest.mark.row("D175")
@pytest.mark.parametrize(
    ("kind", "sets"),
    [
        ("rnd", ["algorithm.name=ppo", "algorithm.minibatches=4"]),
        ("icm", ["algorithm={name: dqn, replay: {min_size_steps: 128, samples_per_insert: 8}}"]),
    ],
)
def test_two_actors_train_with_it(tmp_path, kind, sets):
    """Actors get the policy alone; checkpoints hold everything, and metrics are written."""
    sets = [
        *sets,
        f"algorithm.curiosity={{kind: {kind}}}",
        "actors={count: 2, environments: 4, unroll_length_steps: 16}",
        "stop.updates=8",
    ]
    done = train(tmp_path / "run", sets)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = Summary.read(tmp_path / "run" / "summary.json")
    assert (summary.updates, summary.imbalance) == (8, 0)
    loaded = load_newest(tmp_path / "run" / "checkpoints")
    assert {"main.online", "curiosity.online", "curiosity.optimizer", "curiosity.rewards"} <= {*loaded.arrays}
    assert ("curiosity_forward.online" in loaded.arrays) == (kind == "icm")
    assert not any(name.startswith("curiosity") for name in loaded.arrays["main.online"])
    with (tmp_path / "run" / "metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["intrinsic_reward"]) > 0.0
    assert float(last["predictor_loss"]) > 0.0
    assert bool(last.get("inverse_loss")) == (kind == "icm")
