"""ACER learns: a cue that only memory keeps, within seconds, and CartPole within the preset's budget."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]

CUE = [
    "environment.id=distrl.environments.worlds.toy:MemoryCue",
    "environment.kwargs={delay_steps: 3}",
    "network.middleware_parameters={kind: lstm, scheme: [], number_of_lstm_cells: 16}",
    "network.learning_rate=0.005",
    "network.clip_gradients=10.0",
    "actors.environments=8",
    "actors.unroll_length_steps=20",
    "stop.updates=400",
]


@pytest.mark.row("D164")
def test_a_recurrent_policy_remembers_a_cue(train_here, tmp_path):
    """Without memory no policy gets beyond half of the reward."""
    train_here(*CUE, "algorithm={name: acer, entropy_weight: 0.01, replay: {capacity_steps: 8000}}")
    evaluate = [sys.executable, "-m", "distrl", "evaluate", str(tmp_path / "run"), "--episodes", "50", "--json"]
    done = subprocess.run(evaluate, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["mean_return"] >= 0.9


@pytest.mark.redis
def test_two_actors_send_what_it_learns_from(train_preset):
    sets = ("algorithm.replay.min_size_steps=640", "stop.env_steps=3000", "actors.count=2")
    summary = train_preset("cartpole-acer", *(argument for each in sets for argument in ("--set", each)))
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    assert summary.updates > 0


@pytest.mark.row("D164")
@pytest.mark.redis
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_preset_reaches_its_goal_within_its_budget(train_preset, tmp_path, seed):
    summary = train_preset("cartpole-acer", "--seed", str(seed))
    assert summary.env_steps <= 200_000 + 160  # whole unrolls
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    evaluate = [sys.executable, "-m", "distrl", "evaluate", str(tmp_path / "run"), "--episodes", "100", "--json"]
    done = subprocess.run(evaluate, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["mean_return"] >= 475.0
