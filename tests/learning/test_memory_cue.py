"""The memory cue: with an LSTM it is solved, and without memory it cannot be, whatever the policy."""

import csv
import subprocess
import sys

import numpy as np
import pytest

from distrl.metrics.summary import Summary

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def trained(run_dir, *arguments):
    command = [sys.executable, "-m", "distrl", "train", "--preset", "memory-cue", "--plain", "--run-dir", str(run_dir)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    summary = Summary.read(run_dir / "summary.json")
    assert (summary.exit_code, summary.imbalance, summary.restarts) == (0, 0, 0)
    return summary


@pytest.mark.row("D05", "L13")
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_lstm_remembers_the_cue_for_ten_steps(tmp_path, seed):
    summary = trained(tmp_path / "run", "--seed", str(seed))
    assert summary.stop_reason == "mean_return"
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= 0.9
    assert summary.env_steps <= 1_000_000


@pytest.mark.long
@pytest.mark.row("R03")
def test_epochs_over_whole_sequences_remember_it_as_well(tmp_path):
    algorithm = "algorithm={name: ppo, discount: 0.99, epochs: 4, minibatches: 4, entropy_weight: 0.01}"
    summary = trained(tmp_path / "run", "--set", algorithm, "--set", "learner.batch_size=2")
    assert summary.stop_reason == "mean_return"
    assert summary.env_steps <= 1_000_000


@pytest.mark.long
def test_without_memory_the_cue_is_guessed(tmp_path):
    without = "network.middleware_parameters={kind: fc, scheme: [32]}"
    summary = trained(tmp_path / "run", "--set", without, "--set", "stop.env_steps=600000")
    assert summary.stop_reason == "env_steps"
    with (tmp_path / "run" / "metrics.csv").open() as file:
        means = [float(row["mean_return_100"]) for row in csv.DictReader(file) if row["mean_return_100"]]
    # One window of 100 episodes is off by 0.05 now and then; all of them together are not.
    assert 0.4 <= np.mean(means) <= 0.6
