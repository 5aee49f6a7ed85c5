"""Discrete SAC learns: the best of what a mask allows, within seconds, and CartPole within the preset's budget."""

import json
import subprocess
import sys

import numpy as np
import pytest

from distrl.config.presets import preset_facts
from distrl.networks.actions.joint import ActionSelector

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_the_best_of_what_a_mask_allows(train_here):
    """The environment raises at a forbidden choice, so none is taken; of two allowed ones the greater pays 1."""
    policy = train_here(
        "environment.id=distrl.environments.worlds.toy:Masked",
        "algorithm={name: discrete_sac, discount: 0.5, target_update_rate: 0.05, initial_temperature: 0.1}",
        "algorithm.replay={capacity_steps: 4000, min_size_steps: 256, samples_per_insert: 32}",
        "exploration={kind: policy, random_steps: 64}",
        "network.heads_parameters=[{kind: policy, action_mask: action_mask}]",
        "network.middleware_parameters={scheme: [32]}",
        "network.learning_rate=0.005",
        "actors.environments=4",
        "actors.unroll_length_steps=8",
        "learner.batch_size=64",
        "stop.updates=1500",
    )
    masks = np.array([mask for mask in np.ndindex(*[2] * 6) if sum(mask) == 2], np.int8)
    outputs = policy.step({"action_mask": masks, "x": np.zeros((len(masks), 2), np.float32)}, {}).outputs
    best = ActionSelector(policy.distributions).mode(outputs)["action"]
    np.testing.assert_array_equal(best, [np.flatnonzero(mask).max() for mask in masks])


@pytest.mark.long
@pytest.mark.redis
def test_two_actors_send_what_it_learns_from(train_preset):
    sets = ("algorithm.replay.min_size_steps=512", "stop.env_steps=1500", "actors.count=2")
    summary = train_preset("cartpole-discrete-sac", *(argument for each in sets for argument in ("--set", each)))
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    assert summary.updates > 0


@pytest.mark.long
@pytest.mark.redis
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_preset_reaches_its_goal_within_its_budget(train_preset, tmp_path, seed):
    summary = train_preset("cartpole-discrete-sac", "--seed", str(seed))
    acceptance = preset_facts("cartpole-discrete-sac").acceptance
    assert summary.env_steps <= acceptance.env_steps + 128  # whole unrolls
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    evaluate = [sys.executable, "-m", "distrl", "evaluate", str(tmp_path / "run"), "--episodes", "100", "--json"]
    done = subprocess.run(evaluate, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["mean_return"] >= acceptance.mean_return
