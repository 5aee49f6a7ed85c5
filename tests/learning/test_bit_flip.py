"""Hindsight reaches goals that are never reached without it, and every algorithm of transitions takes it."""

import numpy as np
import pytest

import distrl
from distrl.serving.evaluation import play, saved_policy
from distrl.terminal.console import QuietView

pytestmark = pytest.mark.slow

BIT_FLIP = "environment.id=distrl.environments.worlds.bit_flip:BitFlip"


def success(folder):
    """Return the share of greedy episodes that get there: all others return minus the number of bits."""
    played = play(saved_policy(folder, "newest"), episodes=200, environments=20, seed=0)
    return np.mean([episode.total > -16.0 for episode in played])


@pytest.mark.row("D135", "D193.1")
@pytest.mark.long
@pytest.mark.redis
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_hindsight_sixteen_bits_are_flipped(train_preset, tmp_path, seed):
    summary = train_preset("bitflip-dqn-her", "--seed", str(seed))
    assert summary.stop_reason == "mean_return"
    assert success(tmp_path / "run") >= 0.9


@pytest.mark.row("D135")
@pytest.mark.long
@pytest.mark.redis
def test_without_hindsight_they_are_not(train_preset, tmp_path):
    summary = train_preset("bitflip-dqn-her", "--set", "algorithm.replay.hindsight=null")
    assert summary.stop_reason == "env_steps"
    assert success(tmp_path / "run") <= 0.05


POINT = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict

class Point(gymnasium.Env):
    \"\"\"Move a point on a line to a goal, within 1/10; episodes have 10 steps.\"\"\"

    one = Box(-2.0, 2.0, (1,), np.float64)
    observation_space = Dict({"observation": one, "achieved_goal": one, "desired_goal": one})
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps = 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.at, self.goal = 0, np.zeros(1), self.np_random.uniform(-1, 1, 1)
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        self.at = np.clip(self.at + 0.5 * action, -2, 2)
        return self.seen(), -float(np.abs(self.at - self.goal)[0] > 0.1), False, self.steps == 10, {}

    def seen(self):
        return {"observation": self.at.copy(), "achieved_goal": self.at.copy(), "desired_goal": self.goal.copy()}
"""


@pytest.fixture
def point(tmp_path, monkeypatch):
    (tmp_path / "point_to_move.py").write_text(POINT)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "environment.id=point_to_move:Point"


def settings(algorithm, terminates, tolerance):
    replay = "{min_size_steps: 128, samples_per_insert: 8, item: {n_step: 1}, hindsight: HINDSIGHT}"
    hindsight = f"{{terminates: {terminates}, tolerance: {tolerance}}}"
    return [
        f"algorithm={{name: {algorithm}, replay: {replay.replace('HINDSIGHT', hindsight)}}}",
        "actors.environments=4",
        "actors.unroll_length_steps=22",
        "learner.batch_size=32",
        "stop.updates=20",
    ]


@pytest.mark.row("D135")
@pytest.mark.parametrize(
    "algorithm", ["dqn", *(pytest.param(name, marks=pytest.mark.long) for name in ("c51", "qrdqn", "rainbow"))]
)
def test_choices_are_learned_with_it(train_here, algorithm):
    policy = train_here(BIT_FLIP, *settings(algorithm, "true", 0.0))
    assert {*policy.spec.observations} == {"achieved_goal", "desired_goal", "observation"}


@pytest.mark.row("D135")
@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_real_numbers_are_learned_with_it(train_here, point, algorithm):
    """Its goals are float64 and travel as float32."""
    train_here(point, *settings(algorithm, "false", 0.1))


@pytest.mark.row("D29")
@pytest.mark.parametrize(
    ("tolerance", "reward", "reason"),
    [
        pytest.param(
            0.1, "distance", "algorithm.replay.hindsight.reward: kind distance makes ", marks=pytest.mark.long
        ),
        (
            3.0,
            "sparse",
            "algorithm.replay.hindsight.reward: kind sparse makes 0 of a step for which the environment pays",
        ),
    ],
)
def test_another_reward_than_the_environments_ends_the_run_with_2(point, tmp_path, tolerance, reward, reason):
    sets = ["actors.count=0", point, *settings("td3", "false", tolerance)]
    loaded = distrl.load(sets=[*sets, f"algorithm.replay.hindsight.reward.kind={reward}"])
    summary = distrl.train(loaded, run_dir=tmp_path / "run", view=QuietView(tmp_path / "run", lambda text: None))
    assert (summary.exit_code, summary.updates) == (2, 0)
    assert summary.error.startswith(reason)
    assert "\n" not in summary.error
