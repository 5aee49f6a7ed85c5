"""One decision that lasts several steps of an environment."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.environments.vectors import vectorizations
from distrl.errors import ConfigError


class Paying(gymnasium.Env):
    """Pays 1 for each step, shows their number, and ends after 10."""

    observation_space = Box(0, 10, (1,))
    action_space = Discrete(2)
    max_episode_steps = 10

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.steps], np.float32), 1.0, self.steps == 10, False, {"steps": self.steps}


def configured(**more):
    environment = {"id": f"{__name__}:Paying", "action_repeat": 4, "metrics": {"steps": "last"}} | more
    return RunConfig.model_validate({"environment": environment}).environment


@pytest.mark.row("N01")
@pytest.mark.parametrize("vectorization", ["auto", "sync", "async"])
def test_rewards_are_added_until_the_end_of_the_episode(vectorization):
    environment = VectorEnvironment(configured(vectorization=vectorization), 1)
    try:
        assert environment.spec.max_episode_steps == 3
        environment.reset(0)
        steps = [environment.step({"action": np.zeros(1, np.int32)}) for _ in range(4)]
        assert [step.rewards[0] for step in steps] == [4.0, 4.0, 2.0, 0.0]
        assert [step.observations["observation"][0, 0] for step in steps] == [4.0, 8.0, 10.0, 0.0]
        assert [step.terminated[0] for step in steps] == [False, False, True, False]
    finally:
        environment.close()


def test_a_runner_of_mujoco_is_stepped_alone_then():
    config = RunConfig.model_validate({"environment": {"id": "Hopper-v5", "action_repeat": 2}}).environment
    made = vectorizations.make_vector(config, 2)
    assert made.vectorization == "sync"
    made.vector.close()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"vectorization": "own"}, "action_repeat: 4, but vectorization: own cannot; use sync or async"),
        ({"id": "ALE/Pong-v5", "atari": {}, "metrics": {}}, "action_repeat: 4, but atari has frame_skip"),
        ({"id": "tcp://host:1"}, "action_repeat: 4, but other code steps tcp://host:1; repeat actions there"),
    ],
)
def test_what_cannot_repeat_actions(more, told):
    with pytest.raises(ValueError, match=told):
        configured(**more)


def test_a_vector_of_the_environments_own_is_not_taken_for_it(monkeypatch):
    monkeypatch.setattr(Paying, "vector_entry_point", lambda num_envs: None, raising=False)
    made = vectorizations.make_vector(configured(), 1)
    assert made.vectorization == "sync"
    made.vector.close()


def test_errors_stay_those_of_the_environment():
    with pytest.raises(ConfigError, match="unknown environment"):
        vectorizations.make_vector(configured(id="NoSuch-v0"), 1)
