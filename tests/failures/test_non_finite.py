"""A loss that is not finite is never applied and never published, and whoever looks for the cause finds the batch."""

import numpy as np
import pytest

import distrl
from distrl.memory_backend.codec import decode_weights
from distrl.metrics.console import QuietView

pytestmark = pytest.mark.slow
NOT_FINITE = "algorithm.reward_scale=1e38"


def assert_told_and_kept(run_dir, summary):
    """By one line that names the batch, while neither a checkpoint nor a policy holds anything of the update."""
    assert (summary.exit_code, summary.stop_reason) == (5, "non-finite training")
    assert (summary.updates, summary.trained, summary.imbalance) == (0, 0, 0)
    assert "update 1 is not finite" in summary.error
    assert "it was not applied" in summary.error
    (saved,) = (run_dir / "logs").glob("nonfinite-batch-*.npz")
    assert str(saved) in summary.error
    with np.load(saved) as batch:
        assert batch["rewards"].shape == (64, 128)
        assert set(batch["rewards"].ravel()) <= {0.0, 1.0}
    assert list((run_dir / "checkpoints").iterdir()) == []
    weights = run_dir / "policy" / "weights.msgpack"
    assert not weights.exists() or decode_weights(weights.read_bytes()).version == 1


@pytest.mark.redis
def test_a_loss_that_is_not_finite_ends_the_run_with_5(start_run, endless):
    run = start_run(*endless, "--set", NOT_FINITE)
    summary = run.finish()
    assert run.process.returncode == 5
    assert run.errors.read_text() == f"distrl: error: {summary.error}\n"
    assert_told_and_kept(run.run_dir, summary)


def test_so_does_one_in_one_process(tmp_path):
    loaded = distrl.load("cartpole-impala", flags={"--actors": 0}, sets=[NOT_FINITE])
    assert_told_and_kept(tmp_path, distrl.train(loaded, run_dir=tmp_path, view=QuietView(write=lambda _: None)))
