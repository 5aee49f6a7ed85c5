"""Files that commit 8fb3a1c wrote are read: two run directories, made in one process, and an exported policy; and a
policy of commit 01ddf0e, which took a Discrete as one-hot rows.

`tests/earlier` holds them: CartPole with IMPALA after 980 steps, and Pendulum with SAC after 256. Of the latter, the
changelog names one key of config.yaml that must be moved by hand: `converted` does it.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

import distrl
from distrl.data_store.checkpoints import load_newest
from distrl.errors import ConfigError

EARLIER = Path(__file__).parent / "earlier"


def converted(name, folder):
    """A copy of an earlier run whose config.yaml has `replay.n_step` in its new place."""
    copy = Path(shutil.copytree(EARLIER / name, folder / name))
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace("    n_step: 1 ", "    item: {kind: transition, n_step: 1} "))
    return copy


def test_a_key_that_has_moved_is_named():
    with pytest.raises(
        ConfigError, match=r"algorithm\.replay\.n_step .*; did you mean algorithm\.replay\.item\.n_step\?"
    ):
        distrl.load(file=EARLIER / "pendulum" / "config.yaml")


def test_an_exported_policy_acts_as_it_did():
    policy = distrl.load_policy(EARLIER / "cartpole.onnx")
    assert (policy.exported.algorithm, policy.spec.id, policy.remembers) == ("impala", "CartPole-v1", False)
    seen = np.array([[0.1, -0.2, 0.03, 0.4], [-1.0, 0.5, 0.1, -0.7], [2.0, 1.0, -0.2, 1.5]], np.float32)
    assert policy.act(seen).action.tolist() == [1, 0, 1]  # as the earlier version's `act`


def test_an_exported_policy_of_one_hot_rows_takes_what_the_environment_shows():
    policy = distrl.load_policy(EARLIER / "frozenlake.onnx")
    assert (policy.exported.algorithm, policy.spec.id) == ("ppo", "FrozenLake-v1")
    assert policy.spec.observations["observation"].shape == (16,)
    expected = [2, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 2]  # as the earlier version's `act`
    assert policy.act(np.arange(16)).action.tolist() == expected
    assert policy.act(np.eye(16)).action.tolist() == expected
    assert policy.act(14).action == 1


@pytest.mark.parametrize(
    ("name", "algorithm", "environment", "env_steps", "updates"),
    [("cartpole", "impala", "CartPole-v1", 980, 2), ("pendulum", "sac", "Pendulum-v1", 256, 125)],
)
def test_a_run_directory_is_read(tmp_path, name, algorithm, environment, env_steps, updates):
    run = distrl.load_run(converted(name, tmp_path))
    assert (run.config.algorithm.name, run.config.environment.id) == (algorithm, environment)
    assert run.config.network.middleware_parameters.scheme == (8,)
    assert (run.summary.env_steps, run.summary.updates, run.summary.exit_code) == (env_steps, updates, 0)
    assert (run.metrics["env_steps"][-1], run.metrics["updates"][-1]) == (env_steps, updates)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "env_steps"), [("cartpole", 1200), ("pendulum", 400)])
def test_training_goes_on_from_its_checkpoint(tmp_path, name, env_steps):
    folder = converted(name, tmp_path)
    before = load_newest(folder / "checkpoints")
    loaded = distrl.load(file=folder / "config.yaml", sets=[f"stop.env_steps={env_steps}"])
    summary = distrl.train(loaded, resume=str(folder), view="silent")
    after = load_newest(folder / "checkpoints")
    assert (summary.error, summary.exit_code, summary.imbalance) == (None, 0, 0)
    assert (summary.resumed_updates, summary.resumed_env_steps) == (before.step, before.meta["env_steps"])
    assert summary.env_steps >= env_steps > before.meta["env_steps"]
    assert after.step == summary.updates > before.step
    # The restored optimizers count on.
    for group in ("main.optimizer", "critic.optimizer"):
        if group in before.arrays:
            moved = int(after.arrays[group]["optimizer/iteration"]) - int(before.arrays[group]["optimizer/iteration"])
            assert moved == after.step - before.step
