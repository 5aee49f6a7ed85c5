"""CartPole is solved whatever steps it: nothing changes but the id, or environment.vectorization."""

import subprocess
import sys

import pytest

from distrl.metrics.summary import Summary

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
def test_cart_pole_is_solved_within_the_preset_s_budget(tmp_path, changes):
    command = [sys.executable, "-m", "distrl", "train", "--preset", "cartpole-impala", "--plain"]
    done = subprocess.run(
        [*command, "--run-dir", str(tmp_path / "run"), *changes],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    summary = Summary.read(tmp_path / "run" / "summary.json")
    assert (summary.exit_code, summary.stop_reason) == (0, "mean_return")
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= 475.0
    assert summary.env_steps <= 1_000_000
    assert (summary.imbalance, summary.lost, summary.restarts) == (0, 0, 0)
