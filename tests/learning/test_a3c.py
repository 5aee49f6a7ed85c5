"""Gradient actors learn: A3C and A2C solve CartPole, and A2C a continuous task, within their presets' budgets."""

import subprocess
import sys

import pytest

from distrl.metrics.summary import Summary

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.mark.row("D163")
@pytest.mark.parametrize(
    ("preset", "seed", "goal", "budget_steps"),
    [
        ("cartpole-a3c", 1, 475.0, 1_000_000),
        pytest.param("cartpole-a3c", 2, 475.0, 1_000_000, marks=pytest.mark.long),
        pytest.param("cartpole-a3c", 3, 475.0, 1_000_000, marks=pytest.mark.long),
        pytest.param("cartpole-a2c", 1, 475.0, 1_000_000, marks=pytest.mark.long),
        pytest.param("reach-a2c", 1, -0.4, 400_000, marks=pytest.mark.long),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for seed in (2, 3)
            for case in (("cartpole-a2c", seed, 475.0, 1_000_000), ("reach-a2c", seed, -0.4, 400_000))
        ),
    ],
)
def test_the_preset_reaches_its_goal_within_its_budget(tmp_path, preset, seed, goal, budget_steps):
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "distrl", "train", "--preset", preset, "--seed", str(seed), "--plain"]
    done = subprocess.run(
        [*command, "--run-dir", str(run_dir)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    summary = Summary.read(run_dir / "summary.json")
    assert (summary.exit_code, summary.stop_reason, summary.seed) == (0, "mean_return", seed)
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= goal
    assert summary.env_steps <= budget_steps
    accounts = (summary.imbalance, summary.foreign, summary.lost, summary.rolled_back, summary.restarts)
    assert accounts == (0, 0, 0, 0, 0)
    assert sum(summary.dropped.values()) == 0
    assert set(summary.peak_rss_mb) == {"learner", *(f"actor {number}" for number in range(4))}
    assert summary.policy_lag.max is not None
    if preset.endswith("a2c"):
        assert summary.policy_lag.max == 0
        assert summary.trained == 4 * summary.updates
    else:
        assert summary.policy_lag.max > 0
        assert summary.trained == summary.updates
