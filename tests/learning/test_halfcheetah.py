"""MuJoCo is learned from normalised observations and rewards: the preset's return rises far above that of chance."""

import csv

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.row("D104", "D113")
def test_halfcheetah_runs_within_600000_steps(train_preset, tmp_path):
    """A cheetah that moves at random has a return of some -230, and one that lies still 0."""
    stop = ["--set", "stop.mean_return=500", "--set", "stop.env_steps=600000"]
    summary = train_preset("halfcheetah-impala", *stop)
    assert (summary.exit_code, summary.stop_reason) == (0, "mean_return")
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    with (tmp_path / "run" / "metrics.csv").open() as file:
        deviations = [float(row["reward_deviation"]) for row in csv.DictReader(file)]
    assert deviations[0] == 1.0
    assert deviations[-1] > 10.0
