"""TRPO learns: CartPole is solved within the preset's budget."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.mark.row("G29")
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_preset_reaches_its_goal_within_its_budget(train_preset, tmp_path, seed):
    summary = train_preset("cartpole-trpo", "--seed", str(seed))
    assert summary.env_steps <= 500_000
    assert (summary.policy_lag.max, summary.imbalance, sum(summary.dropped.values())) == (0, 0, 0)
    evaluate = [sys.executable, "-m", "distrl", "evaluate", str(tmp_path / "run"), "--episodes", "100", "--json"]
    done = subprocess.run(evaluate, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["mean_return"] >= 475.0
