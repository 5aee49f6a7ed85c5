"""Gradient actors learn: A3C and A2C solve CartPole, and A2C a continuous task, within their presets' budgets."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.redis]


@pytest.mark.row("D163")
@pytest.mark.parametrize(
    ("preset", "seed", "goal", "budget_steps"),
    [
        (preset, seed, *goal)
        for seed in (1, 2, 3)
        for preset, *goal in (
            ("cartpole-a3c", 475.0, 1_000_000),
            ("cartpole-a2c", 475.0, 1_000_000),
            ("reach-a2c", -0.4, 400_000),
        )
    ],
)
def test_the_preset_reaches_its_goal_within_its_budget(train_preset, preset, seed, goal, budget_steps):
    summary = train_preset(preset, "--seed", str(seed))
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
