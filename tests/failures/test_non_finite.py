"""A loss that is not finite is never applied and never published, and whoever looks for the cause finds the batch."""

import numpy as np
import pytest

from distrl.memory_backend.codec import decode_weights

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.mark.parametrize("actors", [0, 2])
def test_a_loss_that_is_not_finite_ends_the_run_with_5(start_run, endless, actors):
    run = start_run(*endless, "--actors", str(actors), "--set", "algorithm.reward_scale=1e38")
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (5, 5, "non-finite training")
    assert (summary.updates, summary.trained, summary.imbalance) == (0, 0, 0)
    (line,) = run.errors.read_text().splitlines()
    assert line.startswith("distrl: error: ")
    assert "update 1 is not finite" in line
    assert "it was not applied" in line
    (saved,) = (run.run_dir / "logs").glob("nonfinite-batch-*.npz")
    assert str(saved) in line
    with np.load(saved) as batch:
        assert batch["rewards"].shape == (32, 64)
        assert set(batch["rewards"].ravel()) <= {0.0, 1.0}
    # Neither a checkpoint nor a policy holds anything of that update.
    assert list((run.run_dir / "checkpoints").iterdir()) == []
    weights = run.run_dir / "policy" / "weights.msgpack"
    assert not weights.exists() or decode_weights(weights.read_bytes()).version == 1
