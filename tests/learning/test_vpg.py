"""VPG learns: with a baseline it solves CartPole within the preset's budget; without one, it learns all the same."""

import numpy as np
import pytest

from distrl.actors.policy import Policy
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.codec import decode_weights
from distrl.networks.actions.joint import ActionSelector
from distrl.types import PolicyBundle

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def greedy_returns(folder, episodes=100):
    """Return the mean return of greedy episodes of CartPole by the policy in `folder`."""
    policy = Policy(PolicyBundle((folder / "graph.onnx").read_bytes(), (folder / "description.json").read_text()))
    policy.set_weights(decode_weights((folder / "weights.msgpack").read_bytes()))
    environment, select = VectorEnvironment(EnvironmentConfig(), episodes), ActionSelector(policy.distributions)
    observations, returns, over = environment.reset(seed=7), np.zeros(episodes), np.zeros(episodes, bool)
    while not over.all():
        step = environment.step(select.mode(policy.step(observations, {}).outputs))
        returns += np.where(over, 0.0, step.rewards)
        over |= step.terminated | step.truncated
        observations = step.observations
    environment.close()
    return returns


@pytest.mark.row("D162", "G28")
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_preset_reaches_its_goal_within_its_budget(train_preset, tmp_path, seed):
    summary = train_preset("cartpole-vpg", "--seed", str(seed))
    assert summary.env_steps <= 500_000
    assert (summary.policy_lag.max, summary.imbalance, sum(summary.dropped.values())) == (0, 0, 0)
    assert greedy_returns(tmp_path / "run" / "policy").mean() >= 400.0


@pytest.mark.long
@pytest.mark.parametrize("rescaler", ["future_return", "future_return_normalized_by_timestep"])
def test_without_a_baseline_it_learns_from_whole_episodes(train_preset, rescaler):
    """Unrolls of two episodes' greatest length: half of the rows are sure to see their episode's end."""
    sets = ["algorithm.gae_lambda=null", "algorithm.baseline=none", f"algorithm.rescaler={rescaler}"]
    sets += ["actors.unroll_length_steps=200", "environment.kwargs={max_episode_steps: 100}", "stop.mean_return=80"]
    sets += ["network.use_separate_networks_per_head=false"]
    summary = train_preset("cartpole-vpg", "--seed", "1", *(part for given in sets for part in ("--set", given)))
    assert (summary.stop_reason, summary.imbalance) == ("mean_return", 0)
