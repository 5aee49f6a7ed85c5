"""DQN learns: values that can be written down, several choices at once, and its presets' thresholds."""

import numpy as np
import pytest

from distrl.config.presets import preset_facts
from distrl.networks.actions.joint import ActionSelector
from distrl.serving.evaluation import play, saved_policy

GAMMA = 0.9
SMALL = ["actors.environments=4", "actors.unroll_length_steps=8", "learner.batch_size=32", "network.learning_rate=0.05"]
REPLAY = "{capacity_steps: 4000, min_size_steps: 256, samples_per_insert: 16}"
SLOW = ["algorithm.target_update_every_updates=1", "algorithm.target_update_rate=0.1"]

pytestmark = pytest.mark.slow


@pytest.mark.row("D150", "K01")
def test_values_of_a_corridor(train_here):
    """Six fields, every step pays -1: Q(s, right) = -(1 - gamma^n) / (1 - gamma), n steps from the end."""
    policy = train_here(
        "environment.id=distrl.environments.worlds.chains:Corridor",
        "environment.kwargs={length: 6}",
        "algorithm.name=dqn",
        f"algorithm.discount={GAMMA}",
        f"algorithm.replay={REPLAY}",
        "exploration={kind: epsilon_greedy, epsilon: {kind: linear, start: 1.0, end: 0.3, steps: 1000}}",
        "network.middleware_parameters={kind: fc, scheme: Empty}",  # one weight per field and choice, and a bias
        "stop.updates=1500",
        *SMALL,
        *SLOW,
    )
    q = policy.step({"observation": np.arange(5, dtype=np.uint8)[:, None]}, {}).outputs["q/q"]
    steps = 5 - np.arange(5)
    right = -(1.0 - GAMMA**steps) / (1.0 - GAMMA)
    left = -1.0 + GAMMA * np.concatenate([right[:1], right[:-1]])
    np.testing.assert_allclose(q, np.stack([left, right], axis=1), atol=0.15)
    assert (ActionSelector(policy.distributions).mode({"q/q": q})["action"] == 1).all()


@pytest.mark.long
@pytest.mark.parametrize(("name", "head"), [("dqn", "q"), ("c51", "categorical_q")])
def test_the_best_of_what_a_mask_allows(train_here, name, head):
    """The environment raises at a forbidden choice, so none is taken; of two allowed ones the greater pays 1."""
    policy = train_here(
        "environment.id=distrl.environments.worlds.toy:Masked",
        f"algorithm.name={name}",
        "algorithm.discount=0.5",
        f"algorithm.replay={REPLAY}",
        "exploration={kind: epsilon_greedy, random_steps: 64, epsilon: {kind: linear, start: 1, end: 0, steps: 3000}}",
        f"network.heads_parameters=[{{kind: {head}, action_mask: action_mask}}]",
        "network.middleware_parameters={scheme: [32]}",
        "stop.updates=1500",
        *SMALL,
        *SLOW,
        "network.learning_rate=0.005",
    )
    masks = np.array([mask for mask in np.ndindex(*[2] * 6) if sum(mask) == 2], np.int8)
    outputs = policy.step({"action_mask": masks, "x": np.zeros((len(masks), 2), np.float32)}, {}).outputs
    best = ActionSelector(policy.distributions).mode(outputs)["action"]
    np.testing.assert_array_equal(best, [np.flatnonzero(mask).max() for mask in masks])


LOCK = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

class Lock(gymnasium.Env):
    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Dict({"gear": Discrete(3), "keys": MultiDiscrete([2, 2])})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        opened = action["gear"] == 2 and action["keys"].tolist() == [1, 1]
        return np.ones(1, np.float32), float(opened), self.np_random.random() < 0.5, False, {}
"""


@pytest.mark.long
@pytest.mark.row("H15")
def test_values_of_several_choices_at_once(train_here, tmp_path, monkeypatch):
    """One combination of 3 x 2 x 2 pays 1, and a step ends the episode with probability 1/2, whatever is chosen.

    Actions are uniform, so the right choice pays 1/4, or 1/6, by chance of the others. All share one target: the mean
    of the best values, v = (1/4 + 1/6 + 1/6) / 3 + gamma v / 2.
    """
    (tmp_path / "lock_of_choices.py").write_text(LOCK)
    monkeypatch.syspath_prepend(str(tmp_path))
    policy = train_here(
        "environment.id=lock_of_choices:Lock",
        "algorithm.name=dqn",
        "algorithm.dueling=true",
        f"algorithm.discount={GAMMA}",
        f"algorithm.replay={REPLAY}",
        "exploration={kind: epsilon_greedy, epsilon: {kind: constant, value: 1.0}}",
        "network.heads_parameters=[{kind: dueling_q, units: []}]",
        "network.middleware_parameters={scheme: Empty}",
        "stop.updates=600",
        *SMALL,
        *SLOW,
        "learner.batch_size=256",  # one step in twelve is paid for
        "network.learning_rate=0.02",
    )
    outputs = policy.step({"observation": np.ones((1, 1), np.float32)}, {}).outputs
    assert outputs["dueling_q/q/gear"].shape == (1, 3)
    values = np.concatenate([outputs["dueling_q/q/gear"], outputs["dueling_q/q/keys"]], axis=1)
    following = GAMMA / 2.0 * 7.0 / 36.0 / (1.0 - GAMMA / 2.0)
    expected = following + np.array([[0.0, 0.0, 1 / 4, 0.0, 1 / 6, 0.0, 1 / 6]])
    np.testing.assert_allclose(values, expected, atol=0.1)
    best = ActionSelector(policy.distributions).mode(outputs)
    assert (best["gear"].tolist(), best["keys"].tolist()) == ([2], [[1, 1]])


@pytest.mark.row("D155")
@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.redis
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "preset",
    [
        "cartpole-dqn",
        "cartpole-apex",
        "acrobot-dqn",
        "lunarlander-dqn",
        "cartpole-c51",
        "cartpole-qrdqn",
        "cartpole-rainbow",
        "memory-cue-r2d2",
    ],
)
def test_the_preset_reaches_its_goal_within_its_budget(train_preset, tmp_path, preset, seed):
    acceptance = preset_facts(preset).acceptance
    summary = train_preset(preset, "--seed", str(seed))
    # One unroll of every actor may be under way when the budget is spent.
    assert summary.env_steps <= acceptance.env_steps + 1_000
    assert (summary.imbalance, summary.foreign, summary.lost, summary.rolled_back) == (0, 0, 0, 0)
    played = play(saved_policy(tmp_path / "run", "newest"), episodes=100, environments=20, seed=seed)
    assert np.mean([episode.total for episode in played]) >= acceptance.mean_return
