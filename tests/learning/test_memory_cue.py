"""The memory cue: with an LSTM it is solved, and without memory it cannot be, whatever the policy."""

import csv

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.fixture
def trained(train_preset):
    def train(*arguments):
        summary = train_preset("memory-cue", *arguments)
        assert (summary.exit_code, summary.imbalance, summary.restarts) == (0, 0, 0)
        return summary

    return train


@pytest.mark.row("D05", "L13")
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_lstm_remembers_the_cue_for_ten_steps(trained, seed):
    summary = trained("--seed", str(seed))
    assert summary.stop_reason == "mean_return"
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= 0.9
    assert summary.env_steps <= 1_000_000


@pytest.mark.long
@pytest.mark.row("R03")
def test_epochs_over_whole_sequences_remember_it_as_well(trained):
    algorithm = "algorithm={name: ppo, discount: 0.99, epochs: 4, minibatches: 4, entropy_weight: 0.01}"
    summary = trained("--set", algorithm, "--set", "learner.batch_size=2")
    assert summary.stop_reason == "mean_return"
    assert summary.env_steps <= 1_000_000


@pytest.mark.long
@pytest.mark.row("J09", "R03")
def test_q_learning_over_prioritised_sequences_remembers_it(trained):
    """Overlapping sequences with a burn-in; the cue is four steps old when it pays."""
    item = "{kind: sequence, length_steps: 20, overlap_steps: 10, burn_in_steps: 4}"
    replay = f"{{capacity_steps: 20000, item: {item}, sampler: {{kind: prioritized}}}}"
    algorithm = f"algorithm={{name: dqn, double: true, target_update_every_updates: 50, replay: {replay}}}"
    epsilon = "{kind: linear, start: 1.0, end: 0.02, steps: 15000}"
    sets = [
        algorithm,
        "environment.kwargs={delay_steps: 4}",
        f"exploration={{kind: epsilon_greedy, epsilon: {epsilon}}}",
        "network.clip_gradients=10.0",
        "actors={count: 0, environments: 8, unroll_length_steps: 40}",
        "learner.batch_size=32",
        "stop.env_steps=60000",
    ]
    summary = trained(*(argument for each in sets for argument in ("--set", each)))
    assert summary.stop_reason == "mean_return"


@pytest.mark.long
def test_without_memory_the_cue_is_guessed(trained, tmp_path):
    without = "network.middleware_parameters={kind: fc, scheme: [32]}"
    summary = trained("--set", without, "--set", "stop.env_steps=600000")
    assert summary.stop_reason == "env_steps"
    with (tmp_path / "run" / "metrics.csv").open() as file:
        means = [float(row["mean_return_100"]) for row in csv.DictReader(file) if row["mean_return_100"]]
    # One window of 100 episodes is off by 0.05 now and then; all of them together are not.
    assert 0.4 <= np.mean(means) <= 0.6
