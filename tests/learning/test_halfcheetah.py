"""MuJoCo is learned from normalised observations and rewards: the preset's return rises far above that of chance."""

import csv
import subprocess
import sys

import pytest

from distrl.metrics.summary import Summary

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.long]


@pytest.mark.row("D104", "D113")
def test_halfcheetah_runs_within_600000_steps(tmp_path):
    """A cheetah that moves at random has a return of some -230, and one that lies still 0."""
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "distrl", "train", "--preset", "halfcheetah-impala", "--plain"]
    stop = ["--set", "stop.mean_return=500", "--set", "stop.env_steps=600000"]
    done = subprocess.run(
        [*command, *stop, "--run-dir", str(run_dir)], capture_output=True, text=True, timeout=900, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    summary = Summary.read(run_dir / "summary.json")
    assert (summary.exit_code, summary.stop_reason) == (0, "mean_return")
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    with (run_dir / "metrics.csv").open() as file:
        deviations = [float(row["reward_deviation"]) for row in csv.DictReader(file)]
    assert deviations[0] == 1.0
    assert deviations[-1] > 10.0
