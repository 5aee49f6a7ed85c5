"""Bootstrapped DQN explores: it finds the far end of a chain, where one network that tosses coins does not."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]


def greedy_return(run_dir):
    evaluate = [sys.executable, "-m", "distrl", "evaluate", str(run_dir), "--episodes", "5", "--json"]
    done = subprocess.run(evaluate, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["mean_return"]


@pytest.mark.redis
@pytest.mark.row("D156")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_preset_solves_a_chain_of_twenty_states(train_preset, tmp_path, seed):
    summary = train_preset("chain-bootstrapped-dqn", "--seed", str(seed))
    assert summary.env_steps <= 100_100
    assert summary.imbalance == 0
    assert greedy_return(tmp_path / "run") == pytest.approx(12.0)


@pytest.mark.redis
@pytest.mark.row("D156")
def test_epsilon_greedy_exploration_does_not(train_preset, tmp_path):
    sets = ("algorithm.name=dqn", "network.heads_parameters=[{kind: q, units: [50]}]", "stop.env_steps=60000")
    summary = train_preset("chain-bootstrapped-dqn", *(word for item in sets for word in ("--set", item)))
    assert summary.imbalance == 0
    assert greedy_return(tmp_path / "run") < 1.0
