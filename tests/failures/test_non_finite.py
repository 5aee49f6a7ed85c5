"""A loss that is not finite is never applied and never published; its batch is saved for the search for the cause."""

import re

import numpy as np
import pytest

import distrl
from distrl.data_store.checkpoints import load_newest
from distrl.memory_backend.codec import decode_weights
from distrl.terminal.console import QuietView

pytestmark = pytest.mark.slow
NOT_FINITE = "algorithm.reward_scale=1e38"

# After 300 steps of each environment it pays 7, once: until then everything is as usual.
MODULE = """
from benchmarks.sleeping import Sleeping
from examples.custom_algorithm import MaximumEntropy
from keras import ops


class PaysSeven(Sleeping):
    def __init__(self):
        super().__init__(step_s=0.001)
        self._all = 0

    def step(self, action):
        observation, reward, *rest = super().step(action)
        self._all += 1
        return observation, 7.0 if self._all == 300 else reward, *rest


class Root(MaximumEntropy):
    def loss(self, outputs, batch):
        # The value of a root at 0 is finite, its slope is not.
        made = super().loss(outputs, batch)
        at_zero = ops.where(ops.max(batch.rewards) > 6.0, 0.0, 1.0)
        root = ops.mean(ops.sqrt(at_zero * (1.0 + ops.square(outputs["value"]))))
        return made._replace(terms={**made.terms, "value": made.terms["value"] + 1e-6 * root})
"""


def batches(run_dir) -> list:
    return list((run_dir / "logs").glob("nonfinite-batch-*.npz"))


def assert_told_and_kept(run_dir, summary):
    """By one line that names the batch, while neither a checkpoint nor a policy holds anything of the update."""
    assert (summary.exit_code, summary.stop_reason) == (5, "non-finite training")
    assert (summary.updates, summary.trained, summary.imbalance) == (0, 0, 0)
    assert "update 1 is not finite" in summary.error
    assert "it was not applied" in summary.error
    (saved,) = batches(run_dir)
    assert str(saved) in summary.error
    with np.load(saved) as batch:
        assert batch["rewards"].shape == (64, 128)
        assert set(batch["rewards"].ravel()) <= {0.0, 1.0}
    assert list((run_dir / "checkpoints").iterdir()) == []
    weights = run_dir / "policy" / "weights.msgpack"
    assert not weights.exists() or decode_weights(weights.read_bytes()).version == 1


@pytest.mark.long
@pytest.mark.redis
def test_a_loss_that_is_not_finite_ends_the_run_with_5(start_run, endless):
    run = start_run(*endless, "--set", NOT_FINITE)
    summary = run.finish()
    assert run.process.returncode == 5
    assert run.errors.read_text().endswith(f"distrl: error: {summary.error}\n")
    assert_told_and_kept(run.run_dir, summary)


def test_so_does_one_in_one_process(tmp_path):
    loaded = distrl.load("cartpole-impala", flags={"--actors": 0}, sets=[NOT_FINITE])
    assert_told_and_kept(tmp_path, distrl.train(loaded, run_dir=tmp_path, view=QuietView(write=lambda _: None)))


@pytest.mark.long
@pytest.mark.redis
def test_a_gradient_that_is_not_finite_in_the_middle_of_a_training_is_not_applied(start_run, tmp_path):
    """The loss is, so that nothing but the gradient tells."""
    (tmp_path / "roots.py").write_text(MODULE)
    settings = ["actors.environments=2", "actors.unroll_length_steps=8", "learner.batch_size=1"]
    run = start_run(
        *("--env", "roots:PaysSeven", "--algorithm", "roots:Root"),
        *(argument for value in [*settings, "checkpoint.every_updates=20"] for argument in ("--set", value)),
    )
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (5, 5, "non-finite training")
    assert run.errors.read_text().endswith(f"distrl: error: {summary.error}\n")
    found = re.search(r"update (\d+) is not finite: loss [-\d.]+, gradient norm nan; it was not applied", summary.error)
    assert found, summary.error
    before = int(found[1]) - 1
    assert summary.trained == before > 40
    (saved,) = batches(run.run_dir)
    with np.load(saved) as batch:
        assert batch["rewards"].max() == 7.0
    # What was there before stands.
    newest = load_newest(run.run_dir / "checkpoints")
    assert newest is not None
    assert 0 < newest.step <= before
    assert all(np.isfinite(array).all() for arrays in newest.arrays.values() for array in arrays.values())
    assert decode_weights((run.run_dir / "policy" / "weights.msgpack").read_bytes()).version <= before + 1
    assert (summary.restarts, summary.imbalance, summary.in_flight >= 1) == (0, 0, True)


@pytest.mark.long
@pytest.mark.redis
def test_weights_that_an_update_makes_infinite_are_not_published(start_run, unhurried):
    """Loss and gradient are finite: the step is what is too large."""
    run = start_run(*unhurried, "--set", "network.learning_rate=1e39", "--set", "checkpoint.every_updates=1")
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (5, 5, "non-finite training")
    assert "of version 2 are not finite and stay unpublished" in summary.error
    assert len(batches(run.run_dir)) == 1
    assert list((run.run_dir / "checkpoints").iterdir()) == []
    assert (summary.restarts, summary.imbalance, summary.trained) == (0, 0, 0)
