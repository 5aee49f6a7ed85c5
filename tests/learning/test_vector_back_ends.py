"""CartPole is solved whatever steps it: nothing changes but the id, or environment.vectorization."""

import pytest

pytestmark = [pytest.mark.long, pytest.mark.redis, pytest.mark.timeout(1000)]


@pytest.mark.row("M10", "M18")
@pytest.mark.parametrize(
    "changes",
    [
        ["--set", "environment.vectorization=own"],
        ["--set", "environment.vectorization=sync"],
        # 128 processes: what they cost is in docs/environments.md.
        ["--set", "environment.vectorization=async"],
        ["--set", "environment.vectorization=envpool"],
        ["--env", "gym:CartPole-v1"],
    ],
    ids=["own", "sync", "async", "envpool", "old gym"],
)
def test_cart_pole_is_solved_within_the_preset_s_budget(train_preset, changes):
    summary = train_preset("cartpole-impala", *changes)
    assert (summary.exit_code, summary.stop_reason) == (0, "mean_return")
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= 475.0
    assert summary.env_steps <= 1_000_000
    assert (summary.imbalance, summary.lost, summary.restarts) == (0, 0, 0)
