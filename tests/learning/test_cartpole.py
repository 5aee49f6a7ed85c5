"""The preset solves CartPole with every seed within its budget, and accounts for every unroll."""

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.mark.row("D50", "D40")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_the_preset_solves_cartpole_within_a_million_steps(train_preset, tmp_path, seed):
    run_dir = tmp_path / "run"
    summary = train_preset("cartpole-impala", "--seed", str(seed))
    assert (summary.exit_code, summary.stop_reason, summary.seed) == (0, "mean_return", seed)
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= 475.0
    assert summary.env_steps <= 1_000_000
    assert (summary.imbalance, summary.foreign, summary.lost, summary.rolled_back, summary.restarts) == (0, 0, 0, 0, 0)
    # What make train promises beside the return.
    assert summary.weights_version == summary.updates + 1
    assert {"learner", "actor 0", "actor 1"} == set(summary.peak_rss_mb)
    assert (run_dir / "checkpoints" / f"ckpt-{summary.updates:012}" / "manifest.json").exists()
    description = json.loads((run_dir / "policy" / "description.json").read_text())
    assert description["environment"]["id"] == "CartPole-v1"
    assert (run_dir / "policy" / "graph.onnx").stat().st_size > 0


@pytest.mark.row("G36")
@pytest.mark.long
@pytest.mark.parametrize("preset", ["cartpole-ppo", "cartpole-appo"])
def test_several_epochs_on_every_batch_solve_it_in_half_as_many_steps(train_preset, preset):
    summary = train_preset(preset)
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "mean_return", 0)
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= 475.0
    assert summary.env_steps <= 500_000
    if preset == "cartpole-ppo":  # synchronous: nothing is ever old, and so nothing is dropped
        assert (summary.policy_lag.max, sum(summary.dropped.values())) == (0, 0)
